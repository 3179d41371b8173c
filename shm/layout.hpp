// Where everything lies in the control segment, the gradient segment and the result area. Both ends compute it from the
// tensor table with these functions alone; nothing of it is ever taken from the other side. Field by field in
// docs/shared-memory.md. Pure functions; any thread.
#pragma once

#include "shm/message.hpp"

#include <span>
#include <vector>

namespace gradsieve::shm {

/// Slices, rings and tensors of the result area start at multiples of this: a cache line, a vector register.
inline constexpr std::uint64_t kAlignmentBytes = 64;
/// Segments are whole pages, and never empty.
inline constexpr std::uint64_t kPageBytes = 4096;
/// More than any host maps; keeps every sum below far from overflow.
inline constexpr std::uint64_t kSegmentLimitBytes = std::uint64_t{1} << 44U;

inline constexpr std::uint64_t kControlHeaderBytes = 1024;
inline constexpr std::uint32_t kSubmissionCellBytes = 64;
inline constexpr std::uint32_t kCompletionCellBytes = 512;

/// Offsets of the words in the control segment's header; each hot word has a cache line of its own.
struct ControlWord {
    static constexpr std::uint64_t kMagic = 0;
    static constexpr std::uint64_t kAbiVersion = 8;
    static constexpr std::uint64_t kHeaderBytes = 12;
    static constexpr std::uint64_t kTotalBytes = 16;
    static constexpr std::uint64_t kSubmissionCapacity = 24;
    static constexpr std::uint64_t kCompletionCapacity = 28;
    static constexpr std::uint64_t kSubmissionCells = 32;
    static constexpr std::uint64_t kCompletionCells = 40;
    static constexpr std::uint64_t kReadyWords = 48;
    static constexpr std::uint64_t kHeaderMark = 64;
    static constexpr std::uint64_t kSubmissionHead = 128;
    static constexpr std::uint64_t kSubmissionTail = 192;
    static constexpr std::uint64_t kCompletionHead = 256;
    static constexpr std::uint64_t kCompletionTail = 320;
    static constexpr std::uint64_t kDaemonAsleep = 384;
    static constexpr std::uint64_t kClientBell = 448;
    static constexpr std::uint64_t kClientWaiters = 512;
};

struct ControlLayout {
    std::uint32_t submission_capacity = 0;  ///< cells, a power of two
    std::uint32_t completion_capacity = 0;
    std::uint64_t submission_cells = 0;  ///< offset of the first cell
    std::uint64_t completion_cells = 0;
    std::uint64_t ready_words = 0;  ///< offset of one u32 per tensor, in the session's order
    std::uint32_t ready_word_count = 0;
    ByteCount total_bytes = 0;
};
/// Room for every tensor's step and broadcast at once, twice over.
[[nodiscard]] ControlLayout control_layout(std::span<const TensorEntry> tensors);

struct SlabPlace {
    std::uint64_t counts = 0;  ///< offset of samples_max u32: training samples behind each slice
    std::uint64_t slices = 0;  ///< offset of slice 0
    /// From slice to slice; the second moment is slice number samples_max. 0 if there are no slices here.
    std::uint64_t stride_bytes = 0;
    ElementCount elements = 0;
    std::uint32_t samples_max = 0;
    bool has_second_moment = false;
    bool on_device = false;  ///< only the counts are here
};
struct GradientLayout {
    std::vector<SlabPlace> slabs;
    ByteCount total_bytes = 0;
};
/// Errors: kInvalidArgument (sizes overflow or exceed kSegmentLimitBytes; the tensor is named).
[[nodiscard]] Result<GradientLayout> gradient_layout(std::span<const TensorEntry> tensors);

struct ResultLayout {
    std::vector<std::uint64_t> offsets;
    ByteCount total_bytes = 0;
};
/// `tensor_elements`: 0 for a tensor that every local rank has on a device: its average is written there.
/// Errors: kInvalidArgument (as above; the tensor's index is named).
[[nodiscard]] Result<ResultLayout> result_layout(std::span<const ElementCount> tensor_elements);

}  // namespace gradsieve::shm
