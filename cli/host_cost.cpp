#include "cli/host_cost.hpp"

#include "base/unique_fd.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace gradsieve::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;
constexpr std::size_t kPassNumbers = std::size_t{1} << 22U;
constexpr std::size_t kPassBytes = kPassNumbers * sizeof(float);
constexpr unsigned kPasses = 5;  // and one more, before them, in which the kernel finds its buffers' sizes
constexpr auto kPatience = std::chrono::seconds(2);

Status failed(const char* call) {
    return {StatusCode::kUnavailable, std::string("TCP over the loopback: ") + call + ": " + std::strerror(errno) +
                                          "; allowed is a loopback interface that is up; try `ip link set lo up`"};
}

struct Pair {
    UniqueFd sender;
    UniqueFd receiver;
};

Result<Pair> connected_pair() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener.get(), place, length) != 0) return failed("bind");
    if (::listen(listener.get(), 1) != 0 || ::getsockname(listener.get(), place, &length) != 0) return failed("listen");
    Pair pair;
    pair.sender.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(pair.sender.get(), place, length) != 0) return failed("connect");
    pair.receiver.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!pair.receiver.is_open()) return failed("accept");
    return pair;
}

/// Sends all of `from` and receives it in `to`, a piece at a time, each as far as it goes.
Status move(const Pair& pair, const std::vector<float>& from, std::vector<float>& to, Clock::time_point deadline) {
    const auto* const source = reinterpret_cast<const char*>(from.data());
    auto* const target = reinterpret_cast<char*>(to.data());
    std::size_t sent = 0;
    std::size_t received = 0;
    while (received < kPassBytes) {
        if (Clock::now() > deadline) {
            errno = ETIMEDOUT;
            return failed("transfer");
        }
        ssize_t out = 0;
        if (sent < kPassBytes) {
            out = ::send(pair.sender.get(), source + sent, std::min(kPieceBytes, kPassBytes - sent), MSG_DONTWAIT);
            if (out < 0 && errno != EAGAIN && errno != EINTR) return failed("send");
            if (out > 0) sent += static_cast<std::size_t>(out);
        }
        const auto in = ::recv(pair.receiver.get(), target + received, kPassBytes - received, MSG_DONTWAIT);
        if (in == 0 || (in < 0 && errno != EAGAIN && errno != EINTR)) return failed("receive");
        if (in > 0) received += static_cast<std::size_t>(in);
        if (in < 0 && out <= 0) {
            pollfd entry{pair.receiver.get(), POLLIN, 0};
            ::poll(&entry, 1, 10);
        }
    }
    return {};
}

/// Seconds for a byte: median of passes, each timed.
template <class Pass>
Result<double> median_of_passes(Pass pass) {
    std::array<double, kPasses> seconds{};
    GRADSIEVE_TRY(pass());
    for (double& one : seconds) {
        const auto begin = Clock::now();
        GRADSIEVE_TRY(pass());
        one = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    std::nth_element(seconds.begin(), seconds.begin() + kPasses / 2, seconds.end());
    return seconds[kPasses / 2] / static_cast<double>(kPassBytes);
}

}  // namespace

Result<HostCost> measure_host_cost() {
    GRADSIEVE_ASSIGN(const auto pair, connected_pair());
    const std::vector<float> from(kPassNumbers, 1.0F);
    std::vector<float> to(kPassNumbers);
    const auto deadline = Clock::now() + kPatience;
    HostCost cost;
    GRADSIEVE_ASSIGN(cost.socket_seconds_per_byte, median_of_passes([&] { return move(pair, from, to, deadline); }));
    GRADSIEVE_ASSIGN(cost.sum_seconds_per_byte, median_of_passes([&] {
                         std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<>());
                         return Status();
                     }));
    return cost;
}

}  // namespace gradsieve::cli
