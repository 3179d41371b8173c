// The link between the demo's two nodes: as root two network namespaces joined by a veth pair whose rate is limited,
// otherwise two loopback addresses. Everything it made is removed by the destructor. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::cli {

class DemoLink {
public:
    /// `rate_mbit` limits both directions where namespaces can be made.
    explicit DemoLink(std::size_t rate_mbit, bool is_plain_loopback);
    ~DemoLink();
    DemoLink(const DemoLink&) = delete;
    DemoLink& operator=(const DemoLink&) = delete;

    [[nodiscard]] const std::string& address(std::size_t node) const { return addresses_[node]; }
    [[nodiscard]] std::uint16_t port(std::size_t node) const { return ports_[node]; }
    /// What goes in front of a command that is to run on `node`.
    [[nodiscard]] std::vector<std::string> prefix(std::size_t node) const;
    /// "two network namespaces, 100 Mbit/s" or "loopback, unlimited (not root)".
    [[nodiscard]] const std::string& description() const noexcept { return description_; }

private:
    bool make_namespaces(std::size_t rate_mbit);
    void remove_namespaces();

    std::array<std::string, 2> addresses_;
    std::array<std::uint16_t, 2> ports_{};
    std::array<std::string, 2> namespaces_;
    std::string description_;
};

}  // namespace gradsieve::cli
