// Starting a kernel: on a GPU, or on the emulated card of the tests. Kernel arguments are converted to the kernel's own
// parameters and copied before the call returns. For .cu and .cpp files; any thread.
#pragma once

#include <cuda_runtime_api.h>

#if defined(GRADSIEVE_EMULATED_CUDA)

#include <emulated_launch.hpp>

namespace gradsieve::codec::cuda {
using emulated::launch;
}

#else

#include <array>
#include <tuple>
#include <type_traits>

namespace gradsieve::codec::cuda {

/// Enqueues `blocks` blocks of `threads` threads. Errors: CUDA's own, of the launch alone.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
                   const Arguments&... arguments) {
    std::tuple<std::decay_t<Parameters>...> values(arguments...);
    return std::apply(
        [&](auto&... value) {
            std::array<void*, sizeof...(value)> pointers{&value...};
            return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, threads, pointers.data(), 0, stream);
        },
        values);
}

}  // namespace gradsieve::codec::cuda

#endif
