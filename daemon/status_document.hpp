// Puts what the conductor knows into the JSON document of docs/status-document.md. Conductor thread; reads only.
#pragma once

#include "base/clock.hpp"

#include <string>

namespace gradsieve::daemon {

class Conductor;

[[nodiscard]] std::string status_document(const Conductor& conductor, TimePoint now);

}  // namespace gradsieve::daemon
