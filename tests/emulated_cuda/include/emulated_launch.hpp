// Starting kernels of the emulated card. Any host thread.
#pragma once

#include "cuda_runtime_api.h"

#include <functional>
#include <tuple>
#include <utility>

namespace gradsieve::emulated {

/// Enqueues `blocks` blocks of `threads` threads behind the stream's earlier work; `body` is one thread's life.
cudaError_t enqueue_kernel(dim3 blocks, dim3 threads, cudaStream_t stream, std::function<void()> body);

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
                   const Arguments&... arguments) {
    std::tuple<std::decay_t<Parameters>...> values(arguments...);
    return enqueue_kernel(blocks, threads, stream, [kernel, values] { std::apply(kernel, values); });
}

}  // namespace gradsieve::emulated
