// One group's step. One thread; owned by GroupRounds.
#include "exchange/round.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

bool same_bytes(const SharedView& left, const SharedView& right) {
    return std::ranges::equal(left.bytes(), right.bytes());
}

}  // namespace

Assembly::Taken Assembly::take(const Record& record) {
    if (record.header.kind == RecordKind::kMark) return take_mark(record);
    if (mark_) return Taken::kConflict;
    const auto& header = record.header;
    const bool is_last = header.kind != RecordKind::kChunk;
    if (is_last && count_ && *count_ != header.count) return Taken::kConflict;
    if (const auto found = chunks_.find(header.chunk); found != chunks_.end()) {
        if (!same_bytes(found->second, record.payload)) return Taken::kConflict;
        if (!is_last || count_) return Taken::kRepeated;
        if (chunks_.size() > header.count) return Taken::kConflict;
    } else {
        const auto count = is_last ? std::optional(header.count) : count_;
        if (count && chunks_.size() >= *count) return Taken::kConflict;
        chunks_.emplace(header.chunk, record.payload);
        payload_bytes_ += header.payload_bytes;
    }
    if (is_last) count_ = header.count;
    return Taken::kNew;
}

Assembly::Taken Assembly::take_mark(const Record& record) {
    if (!chunks_.empty()) return Taken::kConflict;
    if (mark_) {
        const bool is_same = mark_->header == record.header && same_bytes(mark_->payload, record.payload);
        return is_same ? Taken::kRepeated : Taken::kConflict;
    }
    mark_ = record;
    if (record.header.chunk == 0) return Taken::kNew;
    const auto text = record.payload.bytes();
    failure_ = Status(static_cast<StatusCode>(record.header.chunk),
                      std::string(reinterpret_cast<const char*>(text.data()), text.size()));
    return Taken::kNew;
}

std::vector<Record> Assembly::records(std::uint32_t tensor) const {
    if (mark_) return {*mark_};
    return records_of_chunks(tensor, chunks());
}

std::vector<std::pair<std::uint32_t, SharedView>> Assembly::chunks() const { return {chunks_.begin(), chunks_.end()}; }

std::vector<Record> records_of_chunks(std::uint32_t tensor, std::vector<std::pair<std::uint32_t, SharedView>> chunks) {
    std::vector<Record> records;
    if (chunks.empty()) {
        records.push_back({.header = {.tensor = tensor, .kind = RecordKind::kMark}, .payload = {}});
        return records;
    }
    const auto count = static_cast<std::uint32_t>(chunks.size());
    for (auto& [chunk, payload] : chunks) {
        const auto bytes = static_cast<std::uint32_t>(payload.bytes().size());
        records.push_back(
            {.header = {.tensor = tensor, .chunk = chunk, .payload_bytes = bytes}, .payload = std::move(payload)});
    }
    auto& last = records.back().header;
    last.count = count;
    last.kind = last.chunk + 1 == count ? RecordKind::kLast : RecordKind::kLastOfCount;
    return records;
}

Record mark_of_failure(std::uint32_t tensor, const Status& status) {
    constexpr std::size_t kTextLimitBytes = 1024;
    const auto text = as_bytes(std::string_view(status.text()).substr(0, kTextLimitBytes));
    const auto code = static_cast<std::uint32_t>(status.code());
    return {.header = {.tensor = tensor,
                       .kind = RecordKind::kMark,
                       .chunk = code,
                       .payload_bytes = static_cast<std::uint32_t>(text.size())},
            .payload = SharedView::take(Bytes(text.begin(), text.end()))};
}

bool TensorRound::is_submitted() const {
    return std::all_of(submitted.begin(), submitted.end(), [](bool value) { return value; });
}

bool TensorRound::is_complete() const {
    return std::all_of(from.begin(), from.end(), [](const Assembly& assembly) { return assembly.is_complete(); });
}

Round::Round(Step number, std::size_t payload_count, std::size_t second_phases, std::size_t members,
             std::size_t local_ranks)
    : step(number), payloads(payload_count), acks(members), progress(members) {
    for (std::size_t position = 0; position < payload_count; ++position) {
        if (position + second_phases < payload_count) payloads[position].submitted.assign(local_ranks, false);
        payloads[position].from.resize(members);
    }
}

bool Round::is_submitted() const {
    return std::all_of(payloads.begin(), payloads.end(), [](const auto& payload) { return payload.is_submitted(); });
}

bool Round::is_complete() const {
    return std::all_of(payloads.begin(), payloads.end(), [](const auto& payload) { return payload.is_complete(); });
}

bool Round::has_all_from(std::size_t member) const {
    return std::all_of(payloads.begin(), payloads.end(),
                       [member](const auto& payload) { return payload.from[member].is_complete(); });
}

bool Round::has_submission() const {
    return std::any_of(payloads.begin(), payloads.end(), [](const auto& payload) {
        return std::any_of(payload.submitted.begin(), payload.submitted.end(), [](bool value) { return value; });
    });
}

ByteCount Round::payload_bytes() const {
    ByteCount sum = 0;
    for (const auto& payload : payloads)
        for (const auto& assembly : payload.from) sum += assembly.payload_bytes();
    return sum;
}

}  // namespace gradsieve::exchange
