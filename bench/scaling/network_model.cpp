#include "bench/scaling/network_model.hpp"

#include "transport/frame.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::scaling {
namespace {

constexpr double kSegmentBytes = 1448;       // of TCP in an Ethernet frame of 1,500 bytes, with timestamps
constexpr double kSegmentHeaderBytes = 66;   // Ethernet 14, IPv4 20, TCP with timestamps 32
constexpr double kMessageFramingBytes = 11;  // ZeroMQ: 2 bytes for the header part, 9 for a long body

Duration as_duration(double seconds) { return Duration(static_cast<std::int64_t>(seconds * 1e9)); }

}  // namespace

double bytes_on_the_wire(double body_bytes) {
    const double stream = body_bytes + static_cast<double>(transport::kFrameHeaderBytes) + kMessageFramingBytes;
    return stream + kSegmentHeaderBytes * std::max(1.0, stream / kSegmentBytes);
}

void Agenda::at(TimePoint when, std::function<void()> event) {
    events_.push({std::max(when, now_), next_number_++, std::move(event)});
}

bool Agenda::run_next() {
    if (events_.empty()) return false;
    // The queue only gives out constant references; what is taken here is popped at once.
    auto event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.at;
    event.run();
    return true;
}

NetworkModel::NetworkModel(Agenda& agenda, std::size_t nodes, const LinkModel& link)
    : agenda_(agenda), link_(link), ends_(nodes) {
    for (std::size_t node = 0; node < nodes; ++node) ends_[node].last_receiver = node;  // the next one comes first
}

Duration NetworkModel::time_of(double wire_bytes) const { return as_duration(8 * wire_bytes / link_.bits_per_second); }

void NetworkModel::send(std::size_t from, std::size_t to, bool is_bulk, double wire_bytes,
                        std::function<void()> deliver) {
    auto& end = ends_[from];
    end.sent.bytes += wire_bytes;
    ++end.sent.frames;
    (is_bulk ? end.bulk[to] : end.control).push_back({to, wire_bytes, std::move(deliver)});
    if (!end.is_sending) send_next(from);
}

std::optional<NetworkModel::Frame> NetworkModel::next_frame(End& end) {
    const auto take = [](std::deque<Frame>& queue) {
        Frame frame = std::move(queue.front());
        queue.pop_front();
        return frame;
    };
    if (!end.control.empty()) return take(end.control);
    if (end.bulk.empty()) return std::nullopt;
    auto place = end.bulk.upper_bound(end.last_receiver);
    if (place == end.bulk.end()) place = end.bulk.begin();
    end.last_receiver = place->first;
    Frame frame = take(place->second);
    if (place->second.empty()) end.bulk.erase(place);
    return frame;
}

void NetworkModel::send_next(std::size_t from) {
    auto next = next_frame(ends_[from]);
    ends_[from].is_sending = next.has_value();
    if (!next) return;
    Frame frame = std::move(*next);
    const auto takes = time_of(frame.wire_bytes);
    agenda_.after(takes, [this, from] { send_next(from); });
    agenda_.after(link_.latency, [this, takes, frame = std::move(frame)]() mutable {
        auto& until = ends_[frame.to].receives_until;
        until = std::max(until, agenda_.now()) + takes;
        agenda_.at(until, std::move(frame.deliver));
    });
}

TimePoint WorkerModel::done_at(TimePoint now, double seconds) {
    auto& first = *std::min_element(free_at_.begin(), free_at_.end());
    first = std::max(first, now) + as_duration(seconds);
    return first;
}

}  // namespace gradsieve::scaling
