// What is refused of a batch before anything of it is decoded. Plain checks; any thread.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"

namespace gradsieve::codec::cuda {

/// `place`: of the request in its batch; `devices`: that share it. Errors: kInvalidArgument.
[[nodiscard]] Status check_decode_request(const GpuDecodeRequest& request, std::size_t place, std::size_t devices);

}  // namespace gradsieve::codec::cuda
