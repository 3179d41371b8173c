#include "codec/cuda/encode_memory.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec::cuda {
namespace {

/// The mirror holds what sparse pipelines send: at 12 bits an element, 4 % of the elements. And all that dense ones do,
/// up to a limit, since it is page-locked. More comes in pieces.
constexpr ByteCount kMirrorPerElements = 16;
constexpr ByteCount kLeastMirrorBytes = ByteCount{1} << 20U;
constexpr ByteCount kMostMirrorBytes = ByteCount{512} << 20U;
constexpr ByteCount kPiecesBytes = ByteCount{16} << 20U;

ByteCount rounded(ByteCount bytes) { return rounded_up(bytes, kWorkspaceUnitBytes); }

ByteCount pieces_bytes(const EncodeBatch& batch) {
    return batch.payload_bound_bytes() > EncodeMemory::mirror_bytes(batch) ? kPiecesBytes : 0;
}

struct Region {
    DeviceMemory* memory;
    ByteCount bytes;
    const char* name;
};
using Regions = std::array<Region, 10>;

Regions regions_of(EncodeMemory& memory, const EncodeBatch& batch, ByteCount scratch_bytes) {
    const ByteCount histograms =
        batch.has_top_k() ? batch.tensors().size() * kHistogramBins * sizeof(std::uint32_t) : 0;
    return {Region{&memory.plan, batch.layout().end, "the plan of a batch"},
            Region{&memory.indices, batch.slots().indices, "indices of lists"},
            Region{&memory.values, batch.slots().values, "values of lists"},
            Region{&memory.infos, batch.slots().infos, "tiles of lists"},
            Region{&memory.gates, batch.slots().gates, "gates of lists"},
            Region{&memory.sums, batch.slots().sums, "sums of squares"},
            Region{&memory.payload, batch.payload_memory_bytes(), "payloads"},
            Region{&memory.histograms, histograms, "counters of top-k"},
            Region{&memory.scratch, scratch_bytes, "samples looked at twice"},
            Region{&memory.staging, batch.staging_bytes(), "samples of other GPUs"}};
}

std::string mebibytes(ByteCount bytes) { return std::to_string((bytes + (1U << 20U) - 1) >> 20U) + " MiB"; }

Status fit_pinned(PinnedMemory& memory, ByteCount bytes, const char* name) {
    if (bytes <= memory.size()) return {};
    GRADSIEVE_ASSIGN(memory, PinnedMemory::make(rounded(bytes), name));
    return {};
}

}  // namespace

ByteCount EncodeMemory::mirror_bytes(const EncodeBatch& batch) noexcept {
    const ByteCount sparse = std::max(kLeastMirrorBytes, batch.elements() / kMirrorPerElements);
    return std::min(batch.payload_bound_bytes(), sparse + std::min(batch.dense_payload_bytes(), kMostMirrorBytes));
}

ByteCount EncodeMemory::device_bytes() const noexcept {
    return plan.size() + indices.size() + values.size() + infos.size() + gates.size() + sums.size() + payload.size() +
           histograms.size() + scratch.size() + staging.size();
}

bool EncodeMemory::fits(const EncodeBatch& batch, ByteCount scratch_bytes) const noexcept {
    auto& memory = const_cast<EncodeMemory&>(*this);
    const Regions regions = regions_of(memory, batch, scratch_bytes);
    return std::ranges::all_of(regions, [](const Region& region) { return region.bytes <= region.memory->size(); }) &&
           batch.layout().end <= upload.size() && download_bytes(batch) <= download.size() &&
           pieces_bytes(batch) <= pieces.size();
}

Status EncodeMemory::fit(const Stream& stream, const EncodeBatch& batch, ByteCount scratch_bytes,
                         ByteCount limit_bytes) {
    const Regions regions = regions_of(*this, batch, scratch_bytes);
    ByteCount wanted = 0;
    for (const Region& region : regions) wanted += std::max(rounded(region.bytes), region.memory->size());
    if (limit_bytes > 0 && wanted > limit_bytes) {
        return {StatusCode::kResourceExhausted,
                "workspace on the GPU: " + mebibytes(wanted) + " for a batch of " + std::to_string(batch.elements()) +
                    " elements; allowed are " + mebibytes(limit_bytes) +
                    "; hand in fewer tensors at once, lower batch_elements, or raise workspace_bytes"};
    }
    for (const Region& region : regions) {
        if (region.bytes <= region.memory->size()) continue;
        *region.memory = DeviceMemory();  // before the larger one, so that both need not fit
        GRADSIEVE_ASSIGN(*region.memory, DeviceMemory::make(stream.device(), rounded(region.bytes), region.name));
        // Counters are zero between kernels; payloads leave gaps, which are copied with them.
        if (region.memory == &histograms || region.memory == &payload) {
            GRADSIEVE_CUDA_TRY(cudaMemsetAsync(region.memory->data(), 0, region.memory->size(),
                                               static_cast<cudaStream_t>(stream.handle())),
                               "clearing memory");
        }
    }
    GRADSIEVE_TRY(fit_pinned(upload, batch.layout().end, "plans on their way to the GPU"));
    GRADSIEVE_TRY(fit_pinned(download, download_bytes(batch), "results on their way from the GPU"));
    return fit_pinned(pieces, pieces_bytes(batch), "payloads on their way from the GPU");
}

}  // namespace gradsieve::codec::cuda
