#include "transport/loopback_transport.hpp"
