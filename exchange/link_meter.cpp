#include "exchange/link_meter.hpp"

#include <algorithm>
#include <chrono>

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
    side.busy_seconds += std::max(0.0, std::chrono::duration<double>(now - side.busy_since).count());
    side.busy_since = now;
}

void LinkMeter::forget(PeerIndex index) { peer(index) = {}; }

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
