// Frame batching and credits. One thread; owned by JobMachine.
#include "exchange/outbox.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::exchange {
namespace {

FrameType type_of(const OutKey& key, PeerIndex self) {
    if (key.stream == kBroadcastStream) return FrameType::kBroadcast;
    return key.origin == self ? FrameType::kRecords : FrameType::kRelay;
}

}  // namespace

Outbox::Outbox(JobContext& context) : context_(context), sides_(context.nodes.size()) {}

void Outbox::add(PeerIndex to, const OutKey& key, OutRecord record) {
    auto& queue = sides_[to].queues[key];
    queue.frame_bytes += record.frame_bytes();
    queue.records.push_back(std::move(record));
    if (queue.frame_bytes >= context_.limits.frame_target_bytes) pump(to);
}

void Outbox::complete(PeerIndex to, const OutKey& key) {
    const auto found = sides_[to].queues.find(key);
    if (found == sides_[to].queues.end()) return;
    found->second.is_complete = true;
    pump(to);
}

void Outbox::flush() {
    for (PeerIndex to = 0; to < sides_.size(); ++to) {
        if (sides_[to].queues.empty()) continue;
        for (auto& [key, queue] : sides_[to].queues) queue.is_complete = true;
        pump(to);
    }
}

void Outbox::release(Side& side, Stream stream, Step step, ByteCount bytes) {
    const auto found = side.in_flight.find({stream, step});
    if (found == side.in_flight.end()) return;
    const auto released = std::min(bytes, found->second);
    found->second -= released;
    side.in_flight_bytes -= released;
    if (found->second == 0) side.in_flight.erase(found);
}

void Outbox::on_credit(PeerIndex from, Stream stream, Step step, ByteCount bytes) {
    auto& side = sides_[from];
    release(side, stream, step, bytes);
    side.is_reserve_used = false;
    pump(from);
}

void Outbox::on_acknowledged(PeerIndex from, Stream stream, Step step) {
    auto& side = sides_[from];
    std::erase_if(side.queues,
                  [&](const auto& entry) { return entry.first.stream == stream && entry.first.step <= step; });
    std::vector<std::pair<Stream, Step>> done;
    for (const auto& [round, bytes] : side.in_flight)
        if (round.first == stream && round.second <= step) done.push_back(round);
    for (const auto& round : done) release(side, round.first, round.second, side.in_flight[round]);
    side.is_reserve_used = false;
    pump(from);
}

void Outbox::forget(PeerIndex to, const OutKey& key) {
    auto& side = sides_[to];
    side.queues.erase(key);
    const auto found = side.in_flight.find({key.stream, key.step});
    if (found != side.in_flight.end()) release(side, key.stream, key.step, found->second);
    side.is_reserve_used = false;
}

void Outbox::drop(PeerIndex to) { sides_[to] = Side{}; }

void Outbox::pump(PeerIndex to) {
    auto& side = sides_[to];
    bool is_blocked = false;
    for (auto entry = side.queues.begin(); entry != side.queues.end();) {
        auto& [key, queue] = *entry;
        while (!queue.records.empty() &&
               (queue.is_complete || queue.frame_bytes >= context_.limits.frame_target_bytes)) {
            if (fill_frame(to, key, queue)) continue;
            is_blocked = true;
            break;
        }
        entry = queue.records.empty() ? side.queues.erase(entry) : std::next(entry);
    }
    if (is_blocked && !side.is_reserve_used) send_reserved(to);
}

/// Takes one frame's worth of records that fit the window; false if not even the first one does.
bool Outbox::fill_frame(PeerIndex to, const OutKey& key, Queue& queue) {
    const auto target = context_.limits.frame_target_bytes;
    const auto window = context_.limits.credit_bytes;
    const bool is_alone = key.stream == kBroadcastStream;
    std::vector<OutRecord> records;
    ByteCount frame_bytes = 0;
    auto& side = sides_[to];
    while (!queue.records.empty() && frame_bytes < target) {
        const auto payload_bytes = queue.records.front().payload.bytes().size();
        const auto bytes = queue.records.front().frame_bytes();
        if (side.in_flight_bytes + payload_bytes > window) break;
        if (!records.empty() && (is_alone || bytes > target)) break;
        if (payload_bytes > 0) side.in_flight[{key.stream, key.step}] += payload_bytes;
        side.in_flight_bytes += payload_bytes;
        frame_bytes += bytes;
        queue.frame_bytes -= bytes;
        records.push_back(std::move(queue.records.front()));
        queue.records.pop_front();
        if (bytes > target) break;
    }
    if (records.empty()) return false;
    emit(to, key, std::move(records), false);
    return true;
}

/// The window is full: the lowest incomplete (step, stream, tensor, chunk) goes all the same, once per credit.
void Outbox::send_reserved(PeerIndex to) {
    auto& side = sides_[to];
    const auto entry = side.queues.begin();
    auto& [key, queue] = *entry;
    const auto lowest = std::min_element(queue.records.begin(), queue.records.end(), [](const auto& a, const auto& b) {
        return std::pair(a.tensor, a.chunk) < std::pair(b.tensor, b.chunk);
    });
    std::vector<OutRecord> records;
    records.push_back(std::move(*lowest));
    queue.records.erase(lowest);
    const auto payload_bytes = records.front().payload.bytes().size();
    queue.frame_bytes -= records.front().frame_bytes();
    if (payload_bytes > 0) side.in_flight[{key.stream, key.step}] += payload_bytes;
    side.in_flight_bytes += payload_bytes;
    side.is_reserve_used = true;
    emit(to, key, std::move(records), true);
    if (queue.records.empty()) side.queues.erase(entry);
}

void Outbox::emit(PeerIndex to, const OutKey& key, std::vector<OutRecord> records, bool is_credit_wanted) {
    const auto type = type_of(key, context_.self);
    const bool is_measured =
        context_.are_answers_wanted && key.origin == context_.self && key.stream != kBroadcastStream;
    const std::uint8_t flags = is_credit_wanted || is_measured ? kFlagCreditWanted : 0;
    const auto prefix = type == FrameType::kRelay ? build_relay_prefix(context_.hash, flags, key.origin)
                                                  : build_data_prefix(context_.hash, flags);
    SendFrame frame{.to = to,
                    .is_bulk = true,
                    .type = static_cast<std::uint16_t>(type),
                    .epoch = context_.epoch,
                    .step = key.step,
                    .parts = {}};
    if (context_.watcher != nullptr) tell_watcher(to, key, records, frame);
    for (const auto& record : records) frame.answered_bytes += is_measured ? record.payload.bytes().size() : 0;
    // One that is alone in its frame because of its size travels without a copy.
    const bool is_large = records.front().frame_bytes() > context_.limits.frame_target_bytes;
    ByteCount frame_bytes = prefix.size();
    for (const auto& record : records) frame_bytes += is_large ? record.header.size() : record.frame_bytes();
    auto bytes = frames_.take(frame_bytes);
    auto* end = bytes.data();
    const auto append = [&end](ByteView view) {
        if (!view.empty()) std::memcpy(end, view.data(), view.size());
        end += view.size();
    };
    append(prefix);
    for (const auto& record : records) {
        append(record.header);
        if (!is_large) append(record.payload.bytes());
    }
    frame.parts.push_back(share(std::move(bytes)));
    if (is_large) frame.parts.push_back(std::move(records.front().payload));
    context_.actions.emplace_back(std::move(frame));
}

void Outbox::tell_watcher(PeerIndex to, const OutKey& key, const std::vector<OutRecord>& records, SendFrame& frame) {
    if (key.stream == kBroadcastStream || key.origin != context_.self) return;
    frame.number = ++context_.frames_watched;
    for (std::size_t place = 0; place < records.size(); ++place)
        if (place == 0 || records[place].tensor != records[place - 1].tensor)
            context_.watcher->on_record_out(context_.tensor_of(records[place].tensor), key.step, to, frame.number);
}

void Outbox::on_received(PeerIndex from, Stream stream, Step step, ByteCount payload_bytes, bool is_credit_wanted) {
    auto& side = sides_[from];
    if (payload_bytes > 0) side.owed[{stream, step}] += payload_bytes;
    side.owed_bytes += payload_bytes;
    if (!is_credit_wanted && side.owed_bytes < context_.limits.credit_bytes / 2) return;
    if (side.owed.empty()) side.owed[{stream, step}] = 0;  // only re-arms the sender's reserve
    for (const auto& [round, bytes] : side.owed)
        context_.send(from, FrameType::kCredit, round.second,
                      build_message(context_.hash, Credit{.stream = round.first, .bytes = bytes}));
    side.owed.clear();
    side.owed_bytes = 0;
}

void Outbox::on_own_acknowledgement(Stream stream, Step step) {
    for (auto& side : sides_)
        std::erase_if(side.owed, [&](const auto& entry) {
            if (entry.first.first != stream || entry.first.second > step) return false;
            side.owed_bytes -= entry.second;
            return true;
        });
}

ByteCount Outbox::in_flight_bytes(PeerIndex to) const { return sides_[to].in_flight_bytes; }

bool Outbox::is_empty(PeerIndex to) const { return sides_[to].queues.empty(); }

}  // namespace gradsieve::exchange
