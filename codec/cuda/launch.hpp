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
    /// Its blocks may come before the kernel before it in the stream has ended: it calls begin_kernel
    /// (early_start.cuh).
    bool begins_early = false;
};
}  // namespace gradsieve::codec::cuda

#if defined(GRADSIEVE_EMULATED_CUDA)

#include <emulated_launch.hpp>

namespace gradsieve::codec::cuda {
/// Of this card none can.
template <typename... Parameters>
cudaError_t ask_early_start(void (*)(Parameters...), bool& ret_can) {
    ret_can = false;
    return cudaSuccess;
}
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

/// Whether the kernel, as it was loaded for the current device, can be launched to begin early: it is of a form that
/// waits by itself. Errors: CUDA's own.
template <typename... Parameters>
cudaError_t ask_early_start(void (*kernel)(Parameters...), bool& ret_can) {
    constexpr int kFirstCompute = 90;
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    ret_can = error == cudaSuccess && attributes.ptxVersion >= kFirstCompute;
    return error;
}

/// Errors: CUDA's own, of the launch alone.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   const Arguments&... arguments) {
    std::tuple<std::decay_t<Parameters>...> values(arguments...);
    return std::apply(
        [&](auto&... value) {
            std::array<void*, sizeof...(value)> pointers{&value...};
            cudaLaunchAttribute early{};
            early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
            early.val.programmaticStreamSerializationAllowed = 1;
            cudaLaunchConfig_t config{};
            config.gridDim = shape.blocks;
            config.blockDim = shape.threads;
            config.dynamicSmemBytes = shape.shared_bytes;
            config.stream = stream;
            config.attrs = &early;
            config.numAttrs = shape.begins_early ? 1 : 0;
            return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers.data());
        },
        values);
}

}  // namespace gradsieve::codec::cuda

#endif
