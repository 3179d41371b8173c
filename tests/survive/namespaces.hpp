// Two network namespaces joined by a link, for faults of the network. Needs root and iproute2. Of one thread.
#pragma once

#include "tests/e2e/cluster.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::survive {

/// Gone with the object; those of runs that were killed go with the next one. Errors: std::runtime_error, with what
/// `ip` said.
class Namespaces {
public:
    Namespaces();
    ~Namespaces();
    Namespaces(const Namespaces&) = delete;
    Namespaces& operator=(const Namespaces&) = delete;

    /// Of the daemons, one in each.
    [[nodiscard]] std::vector<e2e::Place> places() const;
    /// What node 0 or 1 sends to the other is dropped, or comes through again.
    void blackhole(std::size_t node, bool is_on) const;
    /// Both directions by a token bucket, `tc tbf`; once.
    void limit(std::uint64_t bits_per_s, std::uint64_t burst_bytes) const;
    /// That the limited link has carried from that node.
    [[nodiscard]] std::uint64_t sent_bytes(std::size_t node) const;

private:
    std::vector<std::string> names_;
};

}  // namespace gradsieve::survive
