#include "shm/doorbell.hpp"

#include "shm/system_error.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include <cstdint>

namespace gradsieve::shm {

Result<Doorbell> Doorbell::make() {
    UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event.is_open()) return Doorbell(std::move(event));
    return Status(StatusCode::kResourceExhausted, "doorbell: eventfd: " + errno_text(errno) +
                                                      "; allowed is what the limit on open files leaves; raise "
                                                      "`ulimit -n` or LimitNOFILE=");
}

void Doorbell::drain() noexcept {
    std::uint64_t rings = 0;
    iovec place{&rings, sizeof(rings)};
    // RWF_NOWAIT, because O_NONBLOCK belongs to the open file that every client shares and may clear.
    if (::preadv2(event_.get(), &place, 1, -1, RWF_NOWAIT) >= 0 || errno != EOPNOTSUPP) return;
    // Before Linux 5.8 an eventfd knows no RWF_NOWAIT; only there a client that clears the flag could make this wait.
    pollfd ready{event_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 0) == 1) static_cast<void>(::read(event_.get(), &rings, sizeof(rings)) == 0);
}

void ring_doorbell(int event_fd) noexcept {
    // A full counter answers EAGAIN: then the daemon has not drained it yet and will wake anyway.
    const std::uint64_t one = 1;
    static_cast<void>(::write(event_fd, &one, sizeof(one)) == sizeof(one));
}

}  // namespace gradsieve::shm
