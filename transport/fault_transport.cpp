#include "transport/fault_transport.hpp"
