// Reads the messages' bytes. No length or number is believed before it was compared with what is left of the body or
// with what its type can hold. Any thread; owns nothing.
#include "exchange/messages.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

namespace gradsieve::exchange {
namespace {

/// Beyond any run; leaves room to count on.
constexpr Step kLastStep = Step{1} << 62U;

class BodyReader {
public:
    BodyReader(std::string_view name, ByteView body) : name_(name), body_(body), reader_(body) {
        (void)reader_.read<std::uint64_t>();
    }

    std::uint64_t number() { return reader_.read_varint(); }
    std::uint32_t small() {
        const auto value = reader_.read_varint();
        if (value > std::numeric_limits<std::uint32_t>::max()) ok_ = false;
        return static_cast<std::uint32_t>(value);
    }
    std::uint64_t word() { return reader_.read<std::uint64_t>(); }
    std::uint8_t byte(std::uint8_t largest) {
        const auto value = reader_.read<std::uint8_t>();
        if (value > largest) ok_ = false;
        return value;
    }
    std::string text() { return reader_.read_text(kMessageTextLimitBytes); }
    /// A count of things of at least `least_bytes` each; zero if they cannot be there.
    std::uint64_t count(std::size_t least_bytes) {
        const auto value = reader_.read_varint();
        if (value <= reader_.remaining_bytes() / least_bytes) return value;
        ok_ = false;
        return 0;
    }
    std::vector<std::uint32_t> smalls() {
        std::vector<std::uint32_t> values(count(1));
        for (auto& value : values) value = small();
        return values;
    }
    std::vector<std::uint64_t> numbers() {
        std::vector<std::uint64_t> values(count(1));
        for (auto& value : values) value = number();
        return values;
    }
    Reason reason() {
        Reason value;
        const auto code = small();
        if (code > static_cast<std::uint16_t>(StatusCode::kCancelled)) ok_ = false;
        value.code = static_cast<StatusCode>(code);
        value.text = text();
        return value;
    }
    ByteView rest() { return reader_.read_bytes(reader_.remaining_bytes()); }
    [[nodiscard]] std::size_t position_bytes() const { return reader_.position_bytes(); }
    [[nodiscard]] bool is_ok() const { return ok_ && reader_.is_ok(); }

    template <typename T>
    Result<T> finish(T value) const {
        if (ok_ && reader_.is_done()) return value;
        return refused();
    }
    [[nodiscard]] Status refused() const {
        return {StatusCode::kCorrupt, std::string(name_) + " of " + std::to_string(body_.size()) +
                                          " bytes does not parse: allowed is the layout of version 1; "
                                          "install the same release on all nodes"};
    }

private:
    std::string_view name_;
    ByteView body_;
    ByteReader reader_;
    bool ok_ = true;
};

/// Epochs in front of a specification, cut off; nothing: they do not parse.
std::optional<std::vector<Epoch>> take_epochs(ByteView& inout_spec) {
    std::vector<Epoch> epochs;
    if (inout_spec.empty() || inout_spec.front() != std::byte{kKeptEpochs}) return epochs;
    ByteReader reader(inout_spec.subspan(1));
    const auto count = reader.read_varint();
    if (count == 0 || count > reader.remaining_bytes() / sizeof(Epoch)) return std::nullopt;
    for (std::uint64_t place = 0; place < count; ++place) epochs.push_back(reader.read<std::uint64_t>());
    inout_spec = reader.read_bytes(reader.remaining_bytes());
    return epochs;
}

/// Cuts off what stands behind the first step of each group: as many kept steps for each, descending, then zeros; and
/// an epoch for each of those, if there are any.
bool take_kept_steps(std::vector<Step>& inout_steps, const std::vector<Epoch>& epochs, std::size_t groups,
                     std::vector<KeptSteps>& ret_kept) {
    if (groups == 0) return inout_steps.empty() && epochs.empty();
    const auto places = inout_steps.size() / groups - (inout_steps.size() < groups ? 0 : 1);
    if (inout_steps.size() != groups * (places + 1) || places > kKeptStepsLimit) return false;
    if (!epochs.empty() && epochs.size() != groups * places) return false;
    for (std::size_t group = 0; group < groups && places > 0; ++group) {
        KeptSteps kept;
        Step before = kLastStep + 1;
        for (std::size_t place = 0; place < places; ++place) {
            const auto step = inout_steps[groups + group * places + place];
            if (step != 0 && step >= before) return false;
            const auto epoch = epochs.empty() ? Epoch{0} : epochs[group * places + place];
            if (step == 0 && epoch != 0) return false;
            if (step != 0) kept.steps.push_back(step);
            if (step != 0 && !epochs.empty()) kept.epochs.push_back(epoch);
            before = step;
        }
        ret_kept.push_back(std::move(kept));
    }
    inout_steps.resize(groups);
    return true;
}

}  // namespace

Result<Prepared> parse_prepared(ByteView body) {
    BodyReader reader("prepared", body);
    Prepared message;
    message.key.name = reader.text();
    message.key.run_id = reader.text();
    message.nonce = reader.word();
    message.sequence = reader.number();
    message.ranks = reader.smalls();
    auto steps = reader.numbers();
    auto spec = reader.rest();
    const auto epochs = take_epochs(spec);
    if (!reader.is_ok() || !epochs) return reader.refused();
    GRADSIEVE_ASSIGN(message.spec, parse_job_spec(spec));
    std::set<std::string_view> groups;
    for (const auto& tensor : message.spec.tensors) groups.insert(tensor.group);
    if (!take_kept_steps(steps, *epochs, groups.size(), message.kept_steps)) return reader.refused();
    const auto is_sound = [](Step step) { return step >= 1 && step <= kLastStep; };
    if (!std::ranges::all_of(steps, is_sound)) return reader.refused();
    message.next_steps = std::move(steps);
    return message;
}

Result<Start> parse_start(ByteView body) {
    BodyReader reader("start", body);
    Start message;
    message.spec_digest = reader.word();
    message.members.resize(reader.count(10));
    for (auto& member : message.members) {
        member.peer = reader.small();
        member.nonce = reader.word();
        member.ranks = reader.smalls();
    }
    message.first_steps = reader.numbers();
    return reader.finish(std::move(message));
}

Result<Reason> parse_reason(ByteView body) {
    BodyReader reader("reason", body);
    auto message = reader.reason();
    return reader.finish(std::move(message));
}

Result<Ack> parse_ack(ByteView body) {
    BodyReader reader("acknowledgement", body);
    Ack message;
    const auto stream = reader.number();
    if (stream >> 33U != 0) return reader.refused();
    message.stream = static_cast<Stream>(stream >> 1U);
    message.is_aborted = (stream & 1U) != 0;
    message.digest = reader.word();
    return reader.finish(message);
}

Result<Credit> parse_credit(ByteView body) {
    BodyReader reader("credit", body);
    Credit message;
    message.stream = reader.small();
    message.bytes = reader.number();
    return reader.finish(message);
}

Result<Progress> parse_progress(ByteView body) {
    BodyReader reader("progress", body);
    Progress message;
    message.stream = reader.small();
    const auto flags = reader.byte(7);
    message.is_submitted = (flags & 1U) != 0;
    message.is_complete = (flags & 2U) != 0;
    message.is_reply = (flags & 4U) != 0;
    message.late_ranks = reader.smalls();
    return reader.finish(std::move(message));
}

Result<Fetch> parse_fetch(ByteView body) {
    BodyReader reader("fetch", body);
    Fetch message;
    message.wants.resize(reader.count(2));
    for (auto& want : message.wants) {
        want.origin = reader.small();
        want.tensor = reader.small();
    }
    return reader.finish(std::move(message));
}

Result<Complaint> parse_complaint(ByteView body) {
    BodyReader reader("complaint", body);
    Complaint message;
    message.reason = reader.reason();
    message.failed = reader.smalls();
    return reader.finish(std::move(message));
}

Result<Query> parse_query(ByteView body) {
    BodyReader reader("query", body);
    Query message;
    message.attempt = reader.small();
    message.reason = reader.reason();
    return reader.finish(std::move(message));
}

Result<Report> parse_report(ByteView body) {
    BodyReader reader("report", body);
    Report message;
    message.attempt = reader.small();
    message.is_refused = reader.byte(1) != 0;
    message.coordinator = reader.small();
    message.groups.resize(reader.count(2));
    for (auto& group : message.groups) {
        group.done = reader.number();
        group.is_complete = reader.byte(1) != 0;
    }
    return reader.finish(std::move(message));
}

Result<Verdict> parse_verdict(ByteView body) {
    BodyReader reader("verdict", body);
    Verdict message;
    message.reason = reader.reason();
    message.groups.resize(reader.count(2));
    for (auto& group : message.groups) {
        group.target = reader.number();
        group.source = reader.small();
    }
    return reader.finish(std::move(message));
}

Result<RankDied> parse_rank_died(ByteView body) {
    BodyReader reader("news of a dead rank", body);
    RankDied message;
    message.rank = reader.small();
    message.text = reader.text();
    return reader.finish(std::move(message));
}

Result<Detached> parse_detached(ByteView body) {
    BodyReader reader("news of detached ranks", body);
    Detached message;
    message.ranks.resize(reader.count(4));
    for (auto& rank : message.ranks) {
        rank.rank = reader.small();
        rank.last_broadcast = reader.number();
        rank.last_check = reader.number();
        rank.last_steps = reader.numbers();
    }
    return reader.finish(std::move(message));
}

Result<BroadcastAsk> parse_broadcast_ask(ByteView body) {
    BodyReader reader("broadcast request", body);
    BroadcastAsk message;
    message.tensor = reader.small();
    message.root = reader.small();
    return reader.finish(message);
}

Result<Check> parse_check(ByteView body) {
    BodyReader reader("check", body);
    Check message;
    message.digests.resize(reader.count(9));
    for (auto& [rank, digest] : message.digests) {
        rank = reader.small();
        digest = reader.word();
    }
    return reader.finish(std::move(message));
}

Result<SnapshotAsk> parse_snapshot_ask(ByteView body) {
    BodyReader reader("snapshot request", body);
    SnapshotAsk message;
    message.group = reader.small();
    return reader.finish(message);
}

Result<SnapshotAnswer> parse_snapshot_answer(ByteView body) {
    BodyReader reader("snapshot answer", body);
    SnapshotAnswer message;
    message.group = reader.small();
    message.reason = reader.reason();
    message.digest = reader.word();
    message.bytes = reader.number();
    return reader.finish(std::move(message));
}

Result<DataPrefix> parse_data_prefix(ByteView body, bool is_relay) {
    BodyReader reader("data frame", body);
    DataPrefix prefix;
    prefix.flags = reader.byte(kFlagCreditWanted);
    if (is_relay) prefix.origin = reader.small();
    prefix.first_byte = reader.position_bytes();
    if (!reader.is_ok()) return reader.refused();
    return prefix;
}

Result<BroadcastPiece> parse_broadcast_piece(ByteView body) {
    BodyReader reader("broadcast piece", body);
    BroadcastPiece piece;
    (void)reader.byte(kFlagCreditWanted);
    piece.ask.tensor = reader.small();
    piece.ask.root = reader.small();
    piece.total_bytes = reader.number();
    piece.first_byte = reader.number();
    piece.header_bytes = reader.position_bytes();
    if (!reader.is_ok()) return reader.refused();
    return piece;
}

}  // namespace gradsieve::exchange
