#include "shm/layout.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <string_view>

namespace gradsieve::shm {
namespace {

Status too_large(const std::string& what) {
    return {StatusCode::kInvalidArgument, what + ": shared memory would exceed " + std::to_string(kSegmentLimitBytes) +
                                              " bytes; allowed is up to that; register fewer or smaller tensors"};
}

/// Moves `offset` past `bytes`, aligned; nothing once the limit is passed.
std::optional<std::uint64_t> advance(std::uint64_t offset, std::optional<std::uint64_t> bytes) {
    if (!bytes) return std::nullopt;
    const auto sum = checked_add(offset, *bytes);
    if (!sum) return std::nullopt;
    const auto aligned = checked_align(*sum, kAlignmentBytes);
    if (!aligned || *aligned > kSegmentLimitBytes) return std::nullopt;
    return aligned;
}

ByteCount whole_pages(std::uint64_t bytes) noexcept {
    return std::max(kPageBytes, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
}

}  // namespace

ControlLayout control_layout(std::span<const TensorEntry> tensors) {
    std::set<std::string_view> groups;
    for (const auto& tensor : tensors) groups.insert(tensor.group);
    const auto tensor_count = static_cast<std::uint32_t>(std::min<std::size_t>(tensors.size(), kTensorLimit));
    const auto group_count = static_cast<std::uint32_t>(std::min<std::size_t>(groups.size(), kTensorLimit));
    ControlLayout layout;
    layout.submission_capacity = std::bit_ceil(2 * tensor_count + 16);
    layout.completion_capacity = std::bit_ceil(2 * tensor_count + 2 * group_count + 32);
    layout.submission_cells = kControlHeaderBytes;
    layout.completion_cells =
        layout.submission_cells + std::uint64_t{layout.submission_capacity} * kSubmissionCellBytes;
    layout.ready_words = layout.completion_cells + std::uint64_t{layout.completion_capacity} * kCompletionCellBytes;
    static_assert(kControlHeaderBytes % kAlignmentBytes == 0 && kSubmissionCellBytes % kAlignmentBytes == 0 &&
                  kCompletionCellBytes % kAlignmentBytes == 0);
    layout.ready_word_count = tensor_count;
    layout.total_bytes = whole_pages(layout.ready_words + std::uint64_t{tensor_count} * sizeof(std::uint32_t));
    return layout;
}

Result<GradientLayout> gradient_layout(std::span<const TensorEntry> tensors) {
    GradientLayout layout;
    layout.slabs.reserve(tensors.size());
    std::uint64_t offset = 0;
    for (const auto& tensor : tensors) {
        SlabPlace slab{.counts = offset,
                       .elements = tensor.elements(),
                       .samples_max = tensor.samples_max,
                       .has_second_moment = tensor.has_second_moment,
                       .on_device = tensor.on_device};
        const auto stride = advance(0, checked_multiply(slab.elements, sizeof(float)));
        const auto slices = advance(offset, std::uint64_t{tensor.samples_max} * sizeof(std::uint32_t));
        if (!stride || !slices) return too_large("tensor '" + tensor.name + "'");
        slab.stride_bytes = tensor.on_device ? 0 : *stride;  // bounded all the same: device memory is no larger
        slab.slices = *slices;
        const auto slice_count = std::uint64_t{tensor.samples_max} + (tensor.has_second_moment ? 1U : 0U);
        const auto end = advance(slab.slices, checked_multiply(slab.stride_bytes, slice_count));
        if (!end) return too_large("tensor '" + tensor.name + "'");
        offset = *end;
        layout.slabs.push_back(slab);
    }
    layout.total_bytes = whole_pages(offset);
    return layout;
}

Result<ResultLayout> result_layout(std::span<const ElementCount> tensor_elements) {
    ResultLayout layout;
    layout.offsets.reserve(tensor_elements.size());
    std::uint64_t offset = 0;
    for (const auto elements : tensor_elements) {
        layout.offsets.push_back(offset);
        const auto end = advance(offset, checked_multiply(elements, sizeof(float)));
        if (!end) return too_large("result of tensor " + std::to_string(layout.offsets.size() - 1));
        offset = *end;
    }
    layout.total_bytes = whole_pages(offset);
    return layout;
}

}  // namespace gradsieve::shm
