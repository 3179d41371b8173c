// An in-process network for tests and the simulator: delivers frames between Transport objects of one process in order,
// under a caller-driven clock. One thread drives all of its endpoints.
#pragma once

#include "transport/transport.hpp"

#include <memory>

namespace gradsieve::transport {

class LoopbackNetwork {
public:
    explicit LoopbackNetwork(PeerIndex nodes, const Clock& clock);
    ~LoopbackNetwork();
    /// The endpoint of one node; owned by the caller, and must not outlive the network.
    [[nodiscard]] std::unique_ptr<Transport> make_endpoint(PeerIndex self);
    /// Stops (or resumes) delivery from one node to another; what was in flight stays queued.
    void set_link(PeerIndex from, PeerIndex to, bool is_open);
    /// Plays the death of a node: its queues vanish, the others get kClosed.
    void kill(PeerIndex node);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gradsieve::transport
