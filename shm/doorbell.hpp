// How a client wakes the daemon: an eventfd that the daemon polls along with its sockets. Clients hold a duplicate and
// may do to it what they like, so nothing here ever blocks on it. Conductor thread only; the object owns the
// descriptor.
#pragma once

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace gradsieve::shm {

/// The daemon's side. One per session is best: a hostile client then only deafens itself.
class Doorbell {
public:
    /// Errors: kResourceExhausted (open files).
    [[nodiscard]] static Result<Doorbell> make();
    /// Polls readable once somebody rang. Handed to clients as the fourth descriptor of an attach reply.
    [[nodiscard]] int fd() const noexcept { return event_.get(); }
    /// Forgets all rings so far; call it before looking at the rings of the sessions. Does not wait.
    void drain() noexcept;

private:
    explicit Doorbell(UniqueFd event) : event_(std::move(event)) {}
    UniqueFd event_;
};

/// The client's side: wakes whoever polls `event_fd`. Does not wait.
void ring_doorbell(int event_fd) noexcept;

}  // namespace gradsieve::shm
