// Which key is whose: the allow-list of the node list, and what came with other keys. Remembers only so many strangers,
// so that they fill neither a log nor memory. Pure but for its counters; one thread.
#pragma once

#include "transport/zmq_transport.hpp"

#include <map>
#include <optional>
#include <set>
#include <span>

namespace gradsieve::transport {

/// Refused keys that are named one by one; more are only counted.
inline constexpr std::size_t kStrangersNamed = 64;

class PeerKeys {
public:
    PeerKeys(std::span<const PeerAddress> nodes, PeerIndex self);

    struct Verdict {
        std::optional<PeerIndex> node;  ///< whose key it is; none: refused
        std::string notice;             ///< what to log of a refusal; empty if it was said before
    };
    /// `key`: as text. `address`: where it came from.
    [[nodiscard]] Verdict judge(const std::string& key, const std::string& address);

    [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }
    [[nodiscard]] const std::string& last_refusal() const noexcept { return last_refusal_; }

private:
    // constant after construction
    PeerIndex self_;
    std::map<std::string, PeerIndex> owners_;  ///< by key

    std::set<std::string> strangers_;  ///< named already; at most kStrangersNamed
    bool has_said_more_ = false;
    std::uint64_t refused_ = 0;
    std::string last_refusal_;
};

}  // namespace gradsieve::transport
