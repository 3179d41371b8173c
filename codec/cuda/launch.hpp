// Starting a kernel: on a GPU, or on the emulated card of the tests. Kernel arguments are converted to the kernel's own
// parameters and copied before the call returns. For .cu and .cpp files; any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace gradsieve::codec::cuda {
struct LaunchShape {
    dim3 blocks;
    dim3 threads;
    std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
};
}  // namespace gradsieve::codec::cuda

#if defined(GRADSIEVE_EMULATED_CUDA)

#include <emulated_launch.hpp>

namespace gradsieve::codec::cuda {
/// Dynamic shared memory has its full size always.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   const Arguments&... arguments) {
    return emulated::launch(kernel, shape.blocks, shape.threads, stream, arguments...);
}
}  // namespace gradsieve::codec::cuda

#else

#include <array>
#include <tuple>
#include <type_traits>

namespace gradsieve::codec::cuda {

/// Errors: CUDA's own, of the launch alone.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   const Arguments&... arguments) {
    std::tuple<std::decay_t<Parameters>...> values(arguments...);
    return std::apply(
        [&](auto&... value) {
            std::array<void*, sizeof...(value)> pointers{&value...};
            return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), shape.blocks, shape.threads, pointers.data(),
                                    shape.shared_bytes, stream);
        },
        values);
}

}  // namespace gradsieve::codec::cuda

#endif
