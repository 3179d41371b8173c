// Writes the messages' bytes, field by field. Any thread; the caller owns what is returned.
#include "exchange/messages.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// A body under construction: starts with the job's hash.
struct Body {
    explicit Body(std::uint64_t hash) : writer(bytes) { writer.write(hash); }

    void number(std::uint64_t value) { writer.write_varint(value); }
    void flag(bool value) { writer.write<std::uint8_t>(value ? 1 : 0); }
    void text(std::string_view value) { writer.write_text(value.substr(0, kMessageTextLimitBytes)); }
    void reason(const Reason& value) {
        number(static_cast<std::uint16_t>(value.code));
        text(value.text);
    }
    template <typename T>
    void numbers(const std::vector<T>& values) {
        number(values.size());
        for (const auto value : values) number(value);
    }

    Bytes bytes;
    ByteWriter writer;
};

}  // namespace

Bytes build_message(std::uint64_t hash, const Prepared& message) {
    Body body(hash);
    body.text(message.key.name);
    body.text(message.key.run_id);
    body.writer.write(message.nonce);
    body.number(message.sequence);
    body.numbers(message.ranks);
    std::vector<Step> steps = message.next_steps;
    std::vector<Epoch> epochs;
    std::size_t places = 0;
    for (const auto& kept : message.kept_steps) places = std::max(places, kept.steps.size());
    for (const auto& kept : message.kept_steps) {
        steps.insert(steps.end(), kept.steps.begin(), kept.steps.end());
        steps.insert(steps.end(), places - kept.steps.size(), 0);
        for (const auto step : kept.steps) epochs.push_back(kept.epoch_of(step));
        epochs.insert(epochs.end(), places - kept.steps.size(), 0);
    }
    body.numbers(steps);
    if (std::ranges::any_of(epochs, [](Epoch epoch) { return epoch != 0; })) {
        body.writer.write(kKeptEpochs);
        body.number(epochs.size());
        for (const auto epoch : epochs) body.writer.write(epoch);
    }
    body.writer.write_bytes(build_job_spec(message.spec));
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Start& message) {
    Body body(hash);
    body.writer.write(message.spec_digest);
    body.number(message.members.size());
    for (const auto& member : message.members) {
        body.number(member.peer);
        body.writer.write(member.nonce);
        body.numbers(member.ranks);
    }
    body.numbers(message.first_steps);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Reason& message) {
    Body body(hash);
    body.reason(message);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Ack& message) {
    Body body(hash);
    body.number((std::uint64_t{message.stream} << 1U) | (message.is_aborted ? 1U : 0U));
    body.writer.write(message.digest);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Credit& message) {
    Body body(hash);
    body.number(message.stream);
    body.number(message.bytes);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Progress& message) {
    Body body(hash);
    body.number(message.stream);
    body.writer.write<std::uint8_t>(static_cast<std::uint8_t>(
        (message.is_submitted ? 1U : 0U) | (message.is_complete ? 2U : 0U) | (message.is_reply ? 4U : 0U)));
    body.numbers(message.late_ranks);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Fetch& message) {
    Body body(hash);
    body.number(message.wants.size());
    for (const auto& want : message.wants) {
        body.number(want.origin);
        body.number(want.tensor);
    }
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Complaint& message) {
    Body body(hash);
    body.reason(message.reason);
    body.numbers(message.failed);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Query& message) {
    Body body(hash);
    body.number(message.attempt);
    body.reason(message.reason);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Report& message) {
    Body body(hash);
    body.number(message.attempt);
    body.flag(message.is_refused);
    body.number(message.coordinator);
    body.number(message.groups.size());
    for (const auto& group : message.groups) {
        body.number(group.done);
        body.flag(group.is_complete);
    }
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Verdict& message) {
    Body body(hash);
    body.reason(message.reason);
    body.number(message.groups.size());
    for (const auto& group : message.groups) {
        body.number(group.target);
        body.number(group.source);
    }
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const RankDied& message) {
    Body body(hash);
    body.number(message.rank);
    body.text(message.text);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Detached& message) {
    Body body(hash);
    body.number(message.ranks.size());
    for (const auto& rank : message.ranks) {
        body.number(rank.rank);
        body.number(rank.last_broadcast);
        body.number(rank.last_check);
        body.numbers(rank.last_steps);
    }
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const BroadcastAsk& message) {
    Body body(hash);
    body.number(message.tensor);
    body.number(message.root);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const Check& message) {
    Body body(hash);
    body.number(message.digests.size());
    for (const auto& [rank, digest] : message.digests) {
        body.number(rank);
        body.writer.write(digest);
    }
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const SnapshotAsk& message) {
    Body body(hash);
    body.number(message.group);
    return std::move(body.bytes);
}

Bytes build_message(std::uint64_t hash, const SnapshotAnswer& message) {
    Body body(hash);
    body.number(message.group);
    body.reason(message.reason);
    body.writer.write(message.digest);
    body.number(message.bytes);
    return std::move(body.bytes);
}

Bytes build_data_prefix(std::uint64_t hash, std::uint8_t flags) {
    Body body(hash);
    body.writer.write(flags);
    return std::move(body.bytes);
}

Bytes build_relay_prefix(std::uint64_t hash, std::uint8_t flags, PeerIndex origin) {
    Body body(hash);
    body.writer.write(flags);
    body.number(origin);
    return std::move(body.bytes);
}

Bytes build_piece_header(const BroadcastPiece& piece) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write_varint(piece.ask.tensor);
    writer.write_varint(piece.ask.root);
    writer.write_varint(piece.total_bytes);
    writer.write_varint(piece.first_byte);
    return bytes;
}

}  // namespace gradsieve::exchange
