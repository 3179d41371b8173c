#include "codec/cuda/residual_norm.hpp"

#include "codec/cuda/residual_norm_kernel.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/tile_sum_tree.hpp"

namespace gradsieve::codec::cuda {
namespace {

ElementCount tiles_in(const ResidualPart& part) { return (part.elements + kTileElements - 1) / kTileElements; }

/// Enqueues the sums of one part's tiles, and their way to the host.
Status sum_part(const ResidualPart& part, DeviceMemory& inout_sums, double* ret_sums) {
    const ByteCount bytes = tiles_in(part) * sizeof(double);
    if (bytes == 0) return {};
    if (bytes > inout_sums.size()) {
        inout_sums = {};
        GRADSIEVE_ASSIGN(inout_sums, DeviceMemory::make(part.stream->device(), bytes, "sums of the residual's norm"));
    }
    GRADSIEVE_TRY(part.stream->make_current());
    auto* const handle = handle_of(*part.stream);
    GRADSIEVE_CUDA_TRY(launch_tile_square_sums(part.residual, part.elements, inout_sums.as<double>(), handle),
                       "summing a residual");
    return status_of(cudaMemcpyAsync(ret_sums, inout_sums.data(), bytes, cudaMemcpyDeviceToHost, handle),
                     "copying a residual's sums");
}

}  // namespace

Result<double> ResidualNorm::square_sum(std::span<const ResidualPart> parts) {
    ElementCount tiles = 0;
    for (const ResidualPart& part : parts) tiles += tiles_in(part);
    if (tiles == 0) return 0.0;
    if (tiles * sizeof(double) > host_sums_.size()) {
        GRADSIEVE_ASSIGN(host_sums_, PinnedMemory::make(tiles * sizeof(double), "sums of the residual's norm"));
    }
    sums_.resize(parts.size());
    Status status;
    ElementCount first_tile = 0;
    for (std::size_t part = 0; part < parts.size() && status.is_ok(); ++part) {
        status = sum_part(parts[part], sums_[part], host_sums_.as<double>() + first_tile);
        first_tile += tiles_in(parts[part]);
    }
    for (const ResidualPart& part : parts)
        if (auto waited = part.stream->synchronize(); status.is_ok()) status = std::move(waited);
    GRADSIEVE_TRY(std::move(status));
    TileSumTree total;
    for (ElementCount tile = 0; tile < tiles; ++tile) total.add(host_sums_.as<double>()[tile]);
    return total.total();
}

}  // namespace gradsieve::codec::cuda
