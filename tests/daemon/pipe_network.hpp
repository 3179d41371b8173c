// An in-process network whose endpoints may each be driven by a thread of their own, as NetworkThread does: frames
// arrive in order, links can be held, and every call of `send` can be looked at. Tests only.
#pragma once

#include "transport/transport.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gradsieve::daemon::test {

class PipeNetwork {
public:
    explicit PipeNetwork(PeerIndex nodes) : mailboxes_(nodes) {
        for (PeerIndex self = 0; self < nodes; ++self)
            for (PeerIndex peer = 0; peer < nodes; ++peer)
                if (peer != self)
                    mailboxes_[self].inbox.events.push_back({peer, transport::PeerState::kUp, 100 + peer, ""});
    }
    /// Must not outlive the network.
    [[nodiscard]] std::unique_ptr<transport::Transport> make_endpoint(PeerIndex self);

    /// Frames from one node to another wait while the link is held.
    void hold(PeerIndex from, PeerIndex to, bool is_held) {
        const std::lock_guard lock(m_);
        auto& box = mailboxes_[to];
        box.is_held[from] = is_held;
        if (!is_held)
            for (auto& frame : std::exchange(box.held[from], {})) box.inbox.frames.push_back(std::move(frame));
        changed_.notify_all();
    }
    /// `poll` of a node takes as long as this is on: a network thread that is busy.
    void stall(PeerIndex node, bool is_stalled) {
        const std::lock_guard lock(m_);
        mailboxes_[node].is_stalled = is_stalled;
        changed_.notify_all();
    }
    void tell(PeerIndex node, transport::PeerEvent event) {
        const std::lock_guard lock(m_);
        mailboxes_[node].inbox.events.push_back(std::move(event));
        changed_.notify_all();
    }
    void deliver(PeerIndex node, transport::InFrame frame) {
        const std::lock_guard lock(m_);
        mailboxes_[node].inbox.frames.push_back(std::move(frame));
        changed_.notify_all();
    }
    [[nodiscard]] std::uint64_t tick_of(PeerIndex node) {
        const std::lock_guard lock(m_);
        return mailboxes_[node].tick;
    }
    /// The node's thread is inside a stalled `poll`.
    [[nodiscard]] bool is_stuck(PeerIndex node) {
        const std::lock_guard lock(m_);
        return mailboxes_[node].is_stuck;
    }
    [[nodiscard]] std::size_t waiting_for(PeerIndex node) {
        const std::lock_guard lock(m_);
        return mailboxes_[node].inbox.frames.size();
    }

private:
    struct Mailbox {
        transport::Inbox inbox;
        std::map<PeerIndex, bool> is_held;
        std::map<PeerIndex, std::deque<transport::InFrame>> held;
        std::map<PeerIndex, transport::PeerCounters> counters;
        std::uint64_t tick = 0;
        bool is_woken = false, is_stalled = false, is_stuck = false;
    };
    class Endpoint;

    std::mutex m_;
    std::condition_variable changed_;
    std::vector<Mailbox> mailboxes_;  // guarded by m_
};

class PipeNetwork::Endpoint final : public transport::Transport {
public:
    Endpoint(PipeNetwork& network, PeerIndex self) : network_(network), self_(self) {}

    Status send(PeerIndex to, transport::Lane, transport::OutFrame frame) override {
        const std::lock_guard lock(network_.m_);
        if (to >= network_.mailboxes_.size() || to == self_)
            return {StatusCode::kUnavailable, "no peer " + std::to_string(to)};
        Bytes body;
        for (const auto& part : frame.parts) {
            const auto bytes = part.bytes();
            body.insert(body.end(), bytes.begin(), bytes.end());
        }
        auto& counters = network_.mailboxes_[self_].counters[to];
        ++counters.frames_sent;
        counters.bytes_sent += body.size();
        auto& box = network_.mailboxes_[to];
        transport::InFrame arrived{self_, frame.header, SharedView::take(std::move(body))};
        if (box.is_held[self_])
            box.held[self_].push_back(std::move(arrived));
        else
            box.inbox.frames.push_back(std::move(arrived));
        network_.changed_.notify_all();
        return {};
    }
    Status poll(Duration timeout, transport::Inbox& ret_inbox) override {
        std::unique_lock lock(network_.m_);
        auto& box = network_.mailboxes_[self_];
        box.is_stuck = box.is_stalled;
        network_.changed_.wait(lock, [&] { return !box.is_stalled; });
        box.is_stuck = false;
        network_.changed_.wait_for(
            lock, timeout, [&] { return box.is_woken || !box.inbox.frames.empty() || !box.inbox.events.empty(); });
        box.is_woken = false;
        for (auto& frame : box.inbox.frames) {
            auto& counters = box.counters[frame.from];
            ++counters.frames_received;
            counters.bytes_received += frame.body.bytes().size();
            ret_inbox.frames.push_back(std::move(frame));
        }
        for (auto& event : box.inbox.events) {
            box.counters[event.peer].state = event.state;
            ret_inbox.events.push_back(std::move(event));
        }
        box.inbox.clear();
        return {};
    }
    void wake() override {
        const std::lock_guard lock(network_.m_);
        network_.mailboxes_[self_].is_woken = true;
        network_.changed_.notify_all();
    }
    void set_tick(std::uint64_t tick) override {
        const std::lock_guard lock(network_.m_);
        network_.mailboxes_[self_].tick = tick;
    }
    std::vector<transport::PeerCounters> counters() const override {
        const std::lock_guard lock(network_.m_);
        std::vector<transport::PeerCounters> counters(network_.mailboxes_.size());
        for (const auto& [peer, counter] : network_.mailboxes_[self_].counters) counters[peer] = counter;
        return counters;
    }
    std::string bound_address() const override { return "pipe " + std::to_string(self_); }

private:
    PipeNetwork& network_;
    PeerIndex self_;
};

inline std::unique_ptr<transport::Transport> PipeNetwork::make_endpoint(PeerIndex self) {
    return std::make_unique<Endpoint>(*this, self);
}

}  // namespace gradsieve::daemon::test
