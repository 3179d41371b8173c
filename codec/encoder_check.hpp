// Whether an encode request fits together, before any of its memory is touched.
#pragma once

#include "codec/encoder.hpp"

namespace gradsieve::codec {

/// Errors: kInvalidArgument naming the argument, the value seen, what is allowed and what to do.
[[nodiscard]] Status check_encode_request(const EncodeRequest& request);

}  // namespace gradsieve::codec
