#include "shm/control_header.hpp"

#include "shm/shared_word.hpp"

#include <cstring>

namespace gradsieve::shm {
namespace {

template <typename T>
void store(std::span<std::byte> control, std::uint64_t offset, T value) noexcept {
    std::memcpy(control.data() + offset, &value, sizeof(T));
}
template <typename T>
T load(std::span<const std::byte> control, std::uint64_t offset) noexcept {
    T value{};
    std::memcpy(&value, control.data() + offset, sizeof(T));
    return value;
}

Status expect_equal(const char* field, std::uint64_t seen, std::uint64_t expected) {
    if (seen == expected) return {};
    return {StatusCode::kCorrupt, std::string("control segment: ") + field + " " + std::to_string(seen) +
                                      "; allowed is " + std::to_string(expected) +
                                      ", which follows from the tensors; attach again, and report it if it stays"};
}

}  // namespace

void write_control_header(std::span<std::byte> control, const ControlLayout& layout) noexcept {
    store(control, ControlWord::kMagic, kControlMagic);
    store(control, ControlWord::kAbiVersion, kAbiVersion);
    store(control, ControlWord::kHeaderBytes, static_cast<std::uint32_t>(kControlHeaderBytes));
    store(control, ControlWord::kTotalBytes, layout.total_bytes);
    store(control, ControlWord::kSubmissionCapacity, layout.submission_capacity);
    store(control, ControlWord::kCompletionCapacity, layout.completion_capacity);
    store(control, ControlWord::kSubmissionCells, layout.submission_cells);
    store(control, ControlWord::kCompletionCells, layout.completion_cells);
    store(control, ControlWord::kReadyWords, layout.ready_words);
    // Pairs with the acquire in check_control_header: whoever sees the mark sees the fields.
    shared_word32(control, ControlWord::kHeaderMark).store(kHeaderMarkValue, std::memory_order_release);
}

Status check_control_header(std::span<std::byte> control, const ControlLayout& layout) {
    if (control.size() < kControlHeaderBytes) return expect_equal("size", control.size(), layout.total_bytes);
    // Pairs with the release in write_control_header.
    const auto mark = shared_word32(control, ControlWord::kHeaderMark).load(std::memory_order_acquire);
    if (mark == 0) {
        return {StatusCode::kUnavailable,
                "control segment: its header mark is 0; allowed is a finished segment; attach again in a moment"};
    }
    GRADSIEVE_TRY(expect_equal("header mark", mark, kHeaderMarkValue));
    GRADSIEVE_TRY(expect_equal("magic", load<std::uint64_t>(control, ControlWord::kMagic), kControlMagic));
    const auto version = load<std::uint32_t>(control, ControlWord::kAbiVersion);
    if (version != kAbiVersion) return version_mismatch(version, kAbiVersion);
    GRADSIEVE_TRY(
        expect_equal("header size", load<std::uint32_t>(control, ControlWord::kHeaderBytes), kControlHeaderBytes));
    GRADSIEVE_TRY(expect_equal("size", control.size(), layout.total_bytes));
    GRADSIEVE_TRY(
        expect_equal("stated size", load<std::uint64_t>(control, ControlWord::kTotalBytes), layout.total_bytes));
    GRADSIEVE_TRY(expect_equal("submission capacity", load<std::uint32_t>(control, ControlWord::kSubmissionCapacity),
                               layout.submission_capacity));
    GRADSIEVE_TRY(expect_equal("completion capacity", load<std::uint32_t>(control, ControlWord::kCompletionCapacity),
                               layout.completion_capacity));
    GRADSIEVE_TRY(expect_equal("submission cells' offset", load<std::uint64_t>(control, ControlWord::kSubmissionCells),
                               layout.submission_cells));
    GRADSIEVE_TRY(expect_equal("completion cells' offset", load<std::uint64_t>(control, ControlWord::kCompletionCells),
                               layout.completion_cells));
    return expect_equal("ready words' offset", load<std::uint64_t>(control, ControlWord::kReadyWords),
                        layout.ready_words);
}

RingPlace submission_ring(const ControlLayout& layout) noexcept {
    return {ControlWord::kSubmissionHead, ControlWord::kSubmissionTail, layout.submission_cells, kSubmissionCellBytes,
            layout.submission_capacity};
}

RingPlace completion_ring(const ControlLayout& layout) noexcept {
    return {ControlWord::kCompletionHead, ControlWord::kCompletionTail, layout.completion_cells, kCompletionCellBytes,
            layout.completion_capacity};
}

Status version_mismatch(std::uint32_t seen, std::uint32_t own) {
    return {StatusCode::kVersionMismatch,
            "shared-memory ABI: the other side speaks version " + std::to_string(seen) + "; this side speaks version " +
                std::to_string(own) + "; install libgradsieve and gradsieved of the same release, and restart both"};
}

}  // namespace gradsieve::shm
