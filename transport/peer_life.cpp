#include "transport/peer_life.hpp"

#include <cstdio>

namespace gradsieve::transport {
namespace {

std::string seconds_text(Duration duration) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
    return text;
}

}  // namespace

PeerLife::PeerLife(PeerIndex peer, std::string text, Duration silent_after, std::size_t connections)
    : peer_(peer), text_(std::move(text)), silent_after_(silent_after), connections_(connections, false) {}

void PeerLife::on_hello(std::uint64_t instance, TimePoint now, std::vector<PeerEvent>& ret_events) {
    if (instance_ != 0 && instance != instance_) close(text_ + " was restarted", ret_events);
    instance_ = instance;
    // A hello opens a connection, so it is news even while ours are down; other frames may be the last words of a dead
    // peer that were still on the way.
    is_heard_ = true;
    on_heard(now, ret_events);
}

void PeerLife::on_heard(TimePoint now, std::vector<PeerEvent>& ret_events) {
    last_heard_ = now;
    quiet_since_ = now;
    if (is_connected()) is_heard_ = true;
    try_rise(ret_events);
}

void PeerLife::on_connected(std::size_t connection, std::vector<PeerEvent>& ret_events) {
    if (connections_[connection]) return;
    connections_[connection] = true;
    ++open_connections_;
    is_refused_ = false;
    try_rise(ret_events);
}

void PeerLife::on_disconnected(std::size_t connection, std::vector<PeerEvent>& ret_events) {
    if (!connections_[connection]) return;
    connections_[connection] = false;
    --open_connections_;
    close("connection closed by " + text_, ret_events);
}

void PeerLife::on_refused(const std::string& cause, std::vector<PeerEvent>& ret_events) {
    is_refused_ = true;
    close("refused by " + text_ + ": " + cause, ret_events);
}

void PeerLife::on_time(TimePoint now, std::vector<PeerEvent>& ret_events) {
    if (!is_watched() || now - quiet_since_ < silent_after_) return;
    enter(PeerState::kSilent, "nothing arrived from " + text_ + " for " + seconds_text(now - last_heard_), ret_events);
}

TimePoint PeerLife::silent_at() const noexcept {
    return is_watched() ? quiet_since_ + silent_after_ : TimePoint::max();
}

bool PeerLife::is_watched() const noexcept {
    return state_ == PeerState::kUp || (state_ == PeerState::kConnecting && is_heard_);
}

void PeerLife::enter(PeerState state, std::string text, std::vector<PeerEvent>& ret_events) {
    state_ = state;
    ret_events.push_back({peer_, state, instance_, std::move(text)});
}

void PeerLife::close(const std::string& cause, std::vector<PeerEvent>& ret_events) {
    is_heard_ = false;
    if (state_ == PeerState::kUp || state_ == PeerState::kSilent) enter(PeerState::kClosed, cause, ret_events);
}

void PeerLife::try_rise(std::vector<PeerEvent>& ret_events) {
    if (state_ == PeerState::kUp || !is_heard_ || is_refused_ || !is_connected()) return;
    enter(PeerState::kUp, text_ + " answers", ret_events);
}

}  // namespace gradsieve::transport
