// What a ZeroMQ transport may be asked for. Pure functions.
#pragma once

#include "transport/zmq_transport.hpp"

namespace gradsieve::transport {

/// Errors: kInvalidArgument with the option, the value seen and what is allowed.
[[nodiscard]] Status check_options(const ZmqOptions& options);

/// "10.0.0.1:7077", "[::1]:7077", "node-b:7077": what peers connect to.
[[nodiscard]] std::string address_text(const PeerAddress& node);

}  // namespace gradsieve::transport
