#include "exchange/link_meter.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace gradsieve::exchange {

LinkMeter::Peer& LinkMeter::peer(PeerIndex index) {
    if (peers_.size() <= index) peers_.resize(index + 1);
    return peers_[index];
}

void LinkMeter::on_sent(PeerIndex to, ByteCount bytes, TimePoint now) {
    if (bytes == 0) return;
    auto& side = peer(to);
    if (side.unanswered_bytes == 0) side.busy_since = now;
    side.unanswered_bytes += bytes;
}

void LinkMeter::on_answered(PeerIndex from, ByteCount bytes, TimePoint now) {
    auto& side = peer(from);
    const auto answered = std::min(bytes, side.unanswered_bytes);
    if (answered == 0) return;
    side.unanswered_bytes -= answered;
    side.answered_bytes += answered;
    const double seconds = std::max(0.0, std::chrono::duration<double>(now - side.busy_since).count());
    side.busy_seconds += seconds;
    side.busy_since = now;
    side.open.bytes += answered;
    side.open.seconds += seconds;
    if (side.unanswered_bytes > 0) return;
    side.bursts[side.next_burst] = std::exchange(side.open, {});
    side.next_burst = (side.next_burst + 1) % side.bursts.size();
}

void LinkMeter::forget(PeerIndex index) { peer(index) = {}; }

double LinkMeter::best_seconds_per_byte() const noexcept {
    double slowest = 0;
    for (const auto& side : peers_) {
        const ByteCount largest = std::ranges::max(side.bursts, {}, &Burst::bytes).bytes;
        if (largest == 0) continue;
        double best = std::numeric_limits<double>::max();
        for (const auto& burst : side.bursts)
            if (burst.bytes >= largest - largest / 2)
                best = std::min(best, burst.seconds / static_cast<double>(burst.bytes));
        slowest = std::max(slowest, best);
    }
    return slowest;
}

void LinkMeter::settle() {
    double slowest = 0;
    for (auto& side : peers_) {
        if (side.answered_bytes == 0) continue;
        slowest = std::max(slowest, side.busy_seconds / static_cast<double>(side.answered_bytes));
        side.busy_seconds = 0;
        side.answered_bytes = 0;
    }
    if (slowest > 0) seconds_per_byte_ = slowest;
}

}  // namespace gradsieve::exchange
