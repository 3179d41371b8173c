// In the source tree: forwards to the one Status. An installed prefix has base/status.hpp itself under this name.
#pragma once

#include "base/status.hpp"
