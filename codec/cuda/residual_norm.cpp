#include "codec/cuda/residual_norm.hpp"

#include "codec/cuda/residual_norm_kernel.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/tile_sum_tree.hpp"

namespace gradsieve::codec::cuda {

Result<double> ResidualNorm::square_sum(const Stream& stream, const float* residual, ElementCount elements) {
    const ElementCount tiles = (elements + kTileElements - 1) / kTileElements;
    const ByteCount bytes = tiles * sizeof(double);
    if (tiles == 0) return 0.0;
    if (bytes > sums_.size()) {
        GRADSIEVE_ASSIGN(sums_, DeviceMemory::make(stream.device(), bytes, "sums of the residual's norm"));
        GRADSIEVE_ASSIGN(host_sums_, PinnedMemory::make(bytes, "sums of the residual's norm"));
    }
    GRADSIEVE_TRY(stream.make_current());
    auto* const handle = static_cast<cudaStream_t>(stream.handle());
    GRADSIEVE_CUDA_TRY(launch_tile_square_sums(residual, elements, sums_.as<double>(), handle), "summing a residual");
    GRADSIEVE_CUDA_TRY(cudaMemcpyAsync(host_sums_.data(), sums_.data(), bytes, cudaMemcpyDeviceToHost, handle),
                       "copying a residual's sums");
    GRADSIEVE_TRY(stream.synchronize());
    TileSumTree total;
    for (ElementCount tile = 0; tile < tiles; ++tile) total.add(host_sums_.as<double>()[tile]);
    return total.total();
}

}  // namespace gradsieve::codec::cuda
