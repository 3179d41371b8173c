#include "shm/cell.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gradsieve::shm {
namespace {

/// Writes little-endian fields one after another into a cell; what is left stays zero.
class CellWriter {
public:
    explicit CellWriter(std::span<std::byte> cell) : cell_(cell) {}
    template <typename T>
    void write(T value) noexcept {
        std::memcpy(cell_.data() + position_, &value, sizeof(T));
        position_ += sizeof(T);
    }

private:
    std::span<std::byte> cell_;
    std::size_t position_ = 0;
};

Status refuse(const char* field, const std::string& seen, const std::string& allowed) {
    return {StatusCode::kCorrupt,
            std::string(field) + " " + seen + " in a ring cell; allowed is " + allowed + "; end this session"};
}

Status check_tensor_index(std::uint32_t index, std::size_t tensor_count) {
    if (index < tensor_count) return {};
    return refuse("tensor index", std::to_string(index), "below " + std::to_string(tensor_count));
}

Status check_average(const Submission& submission, const SlabPlace& slab) {
    if (submission.sample_count < 1 || submission.sample_count > slab.samples_max) {
        return refuse("sample count", std::to_string(submission.sample_count),
                      "1 to " + std::to_string(slab.samples_max));
    }
    if (!std::isfinite(submission.scale) || submission.scale <= 0) {
        return refuse("scale", std::to_string(submission.scale), "finite and above 0");
    }
    return {};
}

bool names_a_tensor(SubmissionKind kind) noexcept {
    return kind == SubmissionKind::kAverage || kind == SubmissionKind::kBroadcast;
}
bool names_a_tensor(CompletionKind kind) noexcept {
    return kind != CompletionKind::kCheckEqual && kind != CompletionKind::kJobEnded;
}

}  // namespace

SubmissionCell build_submission_cell(const Submission& submission) noexcept {
    SubmissionCell cell{};
    CellWriter writer(cell);
    writer.write(static_cast<std::uint32_t>(submission.kind));
    writer.write(submission.tensor_index);
    writer.write(submission.step);
    writer.write(submission.sample_count);
    writer.write(submission.root);
    writer.write(submission.batch_samples);
    writer.write(submission.scale);
    writer.write(submission.digest);
    return cell;
}

Result<Submission> parse_submission_cell(const SubmissionCell& cell, std::span<const SlabPlace> slabs) {
    ByteReader reader(cell);
    const auto kind = reader.read<std::uint32_t>();
    if (kind < 1 || kind > static_cast<std::uint32_t>(SubmissionKind::kDetach)) {
        return refuse("submission kind", std::to_string(kind), "1 to 4");
    }
    Submission submission;
    submission.kind = static_cast<SubmissionKind>(kind);
    submission.tensor_index = reader.read<std::uint32_t>();
    submission.step = reader.read<Step>();
    submission.sample_count = reader.read<std::uint32_t>();
    submission.root = reader.read<Rank>();
    submission.batch_samples = reader.read<std::uint64_t>();
    submission.scale = reader.read<double>();
    submission.digest = reader.read<std::uint64_t>();
    if (names_a_tensor(submission.kind)) GRADSIEVE_TRY(check_tensor_index(submission.tensor_index, slabs.size()));
    if (submission.kind != SubmissionKind::kDetach && submission.step == 0) {
        return refuse("step", "0", "1 or more");
    }
    if (submission.kind == SubmissionKind::kAverage) {
        GRADSIEVE_TRY(check_average(submission, slabs[submission.tensor_index]));
    }
    return submission;
}

CompletionCell build_completion_cell(const Completion& completion) noexcept {
    CompletionCell cell{};
    CellWriter writer(cell);
    writer.write(static_cast<std::uint16_t>(completion.kind));
    writer.write(static_cast<std::uint16_t>(completion.code));
    writer.write(completion.index);
    writer.write(completion.step);
    writer.write(completion.value);
    writer.write(completion.text);
    return cell;
}

Result<Completion> parse_completion_cell(const CompletionCell& cell, std::size_t tensor_count) {
    ByteReader reader(cell);
    const auto kind = reader.read<std::uint16_t>();
    const auto code = reader.read<std::uint16_t>();
    if (kind < 1 || kind > static_cast<std::uint16_t>(CompletionKind::kJobEnded)) {
        return refuse("completion kind", std::to_string(kind), "1 to 6");
    }
    if (code > static_cast<std::uint16_t>(StatusCode::kCancelled)) {
        return refuse("status code", std::to_string(code), "0 to 18");
    }
    Completion completion;
    completion.kind = static_cast<CompletionKind>(kind);
    completion.code = static_cast<StatusCode>(code);
    completion.index = reader.read<std::uint32_t>();
    completion.step = reader.read<Step>();
    completion.value = reader.read<std::uint64_t>();
    const auto text = reader.read_bytes(Completion::kTextBytes);
    std::memcpy(completion.text.data(), text.data(), text.size());
    completion.text.back() = '\0';
    if (names_a_tensor(completion.kind)) GRADSIEVE_TRY(check_tensor_index(completion.index, tensor_count));
    return completion;
}

}  // namespace gradsieve::shm
