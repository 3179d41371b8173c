#include "codec/cuda/gpu_sketch.hpp"

#include "codec/cuda/cell_kernels.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

Status launched(cudaError_t error) { return status_of(error, "starting a kernel of sketch"); }

/// Offsets, and then cells.
ByteCount offset_bytes(const DeviceSketch& sketch) {
    return aligned_to_line(sizeof(std::uint32_t) * ByteCount{sketch.rows} * sketch.offsets());
}
ByteCount insert_bytes(const DeviceSketch& sketch) {
    return offset_bytes(sketch) + sizeof(float) * ByteCount{sketch.rows} * sketch.row_room();
}

/// State, bins, and then tallies.
constexpr ByteCount kStateBytes = aligned_to_line(sizeof(EstimateState));
constexpr ByteCount kBinBytes = aligned_to_line(sizeof(std::uint32_t) * kEstimateBins);
ByteCount choose_bytes(const SketchShape& shape) {
    return kStateBytes + kBinBytes +
           sizeof(EstimateTally) * ByteCount{sketch_tiles(static_cast<std::uint32_t>(shape.elements))};
}

}  // namespace

Status GpuSketch::fit_scratch(const Stream& stream, ByteCount bytes) {
    if (bytes <= scratch_.size()) return {};
    GRADSIEVE_TRY(stream.make_current());
    scratch_ = {};
    GRADSIEVE_ASSIGN(scratch_, DeviceMemory::make(device_, rounded_up(bytes, kWorkspaceUnitBytes),
                                                  "what cells of sketch are "
                                                  "made of"));
    return {};
}

Status GpuSketch::insert(const Stream& stream, std::span<const InsertWork> work) {
    std::vector<RoundTrip::Slot> slots;
    ByteCount scratch = 0;
    for (const InsertWork& one : work) {
        slots.push_back({{}, {std::as_writable_bytes(one.ret_rows), {}}, {}});
        scratch = std::max(scratch, insert_bytes(device_sketch(one.shape, one.key)));
    }
    GRADSIEVE_TRY(fit_scratch(stream, scratch));
    return trip_.run(stream, slots, [&](std::size_t number, const RoundTrip::Slot& slot) -> Status {
        const InsertWork& one = work[number];
        const DeviceSketch sketch = device_sketch(one.shape, one.key);
        auto* offsets = scratch_.as<std::uint32_t>();
        auto* cells = scratch_.as<float>(offset_bytes(sketch));
        GRADSIEVE_TRY(launched(launch_draw_offsets(sketch, offsets, handle_of(stream))));
        GRADSIEVE_TRY(launched(launch_insert(sketch, one.values, offsets, cells, handle_of(stream))));
        return launched(launch_fold(sketch, cells, trip_.as<float>(slot.at[2]), handle_of(stream)));
    });
}

Status GpuSketch::choose(const Stream& stream, std::span<const ChooseWork> work) {
    std::vector<RoundTrip::Slot> slots;
    std::vector<std::vector<std::uint32_t>> chosen(work.size());
    ByteCount scratch = 0;
    for (std::size_t number = 0; number < work.size(); ++number) {
        const ChooseWork& one = work[number];
        chosen[number].resize(one.shape.kept);
        slots.push_back({{std::as_bytes(one.rows), {}},
                         {std::as_writable_bytes(std::span(chosen[number])), std::as_writable_bytes(one.ret_values)},
                         {}});
        scratch = std::max(scratch, choose_bytes(one.shape));
    }
    GRADSIEVE_TRY(fit_scratch(stream, scratch));
    GRADSIEVE_TRY(trip_.run(stream, slots, [&](std::size_t number, const RoundTrip::Slot& slot) -> Status {
        const ChooseWork& one = work[number];
        const EstimateScratch own{scratch_.as<EstimateState>(), scratch_.as<std::uint32_t>(kStateBytes),
                                  scratch_.as<EstimateTally>(kStateBytes + kBinBytes)};
        return launched(launch_choose(device_sketch(one.shape, one.key), trip_.as<float>(slot.at[0]), own,
                                      {one.residual, one.momentum, trip_.as<float>(slot.at[3])},
                                      trip_.as<std::uint32_t>(slot.at[2]), static_cast<unsigned>(multiprocessors_),
                                      handle_of(stream)));
    }));
    for (std::size_t number = 0; number < work.size(); ++number)
        std::ranges::copy(chosen[number], work[number].ret_chosen.begin());
    return {};
}

Status GpuSketch::filter(const Stream& stream, std::span<const FilterWork> work) {
    GRADSIEVE_TRY(stream.make_current());
    const auto enqueue = [&]() -> Status {
        for (const FilterWork& one : work)
            GRADSIEVE_TRY(launched(launch_low_pass(one.residual, one.before, one.factors,
                                                   static_cast<std::uint32_t>(one.elements), handle_of(stream))));
        return {};
    };
    Status status = enqueue();
    if (Status waited = stream.synchronize(); status.is_ok()) status = std::move(waited);
    return status;
}

Status GpuSketch::scatter(const Stream& stream, std::span<const ScatterWork> work) {
    std::vector<RoundTrip::Slot> slots;
    std::vector<std::vector<std::uint32_t>> chosen;
    for (const ScatterWork& one : work) {
        chosen.emplace_back(one.chosen.begin(), one.chosen.end());
        const std::span digest(one.ret_digest, one.ret_digest == nullptr ? 0 : 1);
        slots.push_back({{std::as_bytes(std::span(chosen.back())), std::as_bytes(one.values)},
                         {std::as_writable_bytes(digest), {}},
                         {}});
    }
    return trip_.run(stream, slots, [&](std::size_t number, const RoundTrip::Slot& slot) -> Status {
        const ScatterWork& one = work[number];
        for (const GpuResult& result : one.results)
            GRADSIEVE_TRY(fill_bytes(stream, result.data, one.elements * element_bytes(result.type), 0));
        if (one.chosen.empty()) return {};
        // Also without a result there is a digest, of the first launch.
        for (std::size_t first = 0; first == 0 || first < one.results.size(); first += ResultTargets::kMost) {
            ResultTargets targets;
            targets.take(std::span(one.results).subspan(first));
            targets.digest_seed = mix64(mix64(one.tensor) + one.step);
            if (first == 0 && one.ret_digest != nullptr) targets.digest = trip_.as<unsigned long long>(slot.at[2]);
            GRADSIEVE_TRY(
                launched(launch_scatter(targets, trip_.as<std::uint32_t>(slot.at[0]), trip_.as<float>(slot.at[1]),
                                        static_cast<std::uint32_t>(one.chosen.size()), handle_of(stream))));
        }
        return {};
    });
}

}  // namespace gradsieve::codec::cuda
