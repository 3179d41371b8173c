#include "transport_testing.hpp"

#include "base/unique_fd.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gradsieve::transport::testing {

std::uint16_t find_free_port(const std::string& host) {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    socklen_t address_bytes = sizeof address;
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes) != 0) {
        ADD_FAILURE() << "no free port on " << host;
        return 0;
    }
    return ntohs(address.sin_port);
}

std::vector<PeerAddress> make_node_list(std::size_t nodes) {
    std::vector<PeerAddress> list;
    for (std::size_t node = 0; node < nodes; ++node) {
        list.push_back({std::string(1, static_cast<char>('a' + node)), "127.0.0.1", find_free_port()});
    }
    return list;
}

std::vector<KeyPair> give_keys(std::vector<PeerAddress>& nodes) {
    std::vector<KeyPair> pairs;
    for (auto& node : nodes) {
        pairs.push_back(make_key_pair().value());
        node.public_key = pairs.back().public_key;
    }
    return pairs;
}

ZmqOptions make_options(const std::vector<PeerAddress>& nodes, PeerIndex self) {
    ZmqOptions options;
    options.nodes = nodes;
    options.self = self;
    options.heartbeat_every = std::chrono::milliseconds(50);
    options.silent_after = std::chrono::milliseconds(2000);
    return options;
}

SharedView make_body(std::string_view text) {
    const auto bytes = as_bytes(text);
    return SharedView::take(Bytes(bytes.begin(), bytes.end()));
}

SharedView make_body(ByteCount bytes, std::uint64_t seed) {
    Bytes made(bytes);
    for (ByteCount place = 0; place < bytes; ++place)
        made[place] = static_cast<std::byte>((place * 131 + place / 251 + seed) & 0xFFU);
    return SharedView::take(std::move(made));
}

OutFrame make_frame(std::uint16_t type, std::uint64_t step, std::vector<SharedView> parts) {
    return {{type, 7, step}, std::move(parts)};
}

std::string text_of(const SharedView& body) {
    return {reinterpret_cast<const char*>(body.bytes().data()), body.bytes().size()};
}

std::string hex_of(ByteView bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string hex;
    for (const auto byte : bytes) {
        hex += kDigits[static_cast<unsigned>(byte) >> 4U];
        hex += kDigits[static_cast<unsigned>(byte) & 15U];
    }
    return hex;
}

Bytes bytes_of(std::string_view hex) {
    Bytes bytes;
    for (std::size_t place = 0; place + 1 < hex.size(); place += 2) {
        bytes.push_back(static_cast<std::byte>(std::stoul(std::string(hex.substr(place, 2)), nullptr, 16)));
    }
    return bytes;
}

bool Node::has_event(PeerIndex peer, PeerState state) const {
    for (const auto& event : inbox.events) {
        if (event.peer == peer && event.state == state) return true;
    }
    return false;
}

const PeerEvent& Node::last_event(PeerIndex peer) const {
    static const PeerEvent none;
    for (auto event = inbox.events.rbegin(); event != inbox.events.rend(); ++event) {
        if (event->peer == peer) return *event;
    }
    return none;
}

bool poll_until(const std::vector<Node*>& nodes, const std::function<bool()>& is_done) {
    const SteadyClock clock;
    const auto deadline = clock.now() + kWatchdog;
    while (!is_done()) {
        if (clock.now() > deadline) return false;
        for (auto* node : nodes) {
            if (!node->transport) continue;
            const auto status = node->transport->poll(std::chrono::milliseconds(1), node->inbox);
            if (!status.is_ok()) {
                ADD_FAILURE() << status.to_string();
                return false;
            }
        }
    }
    return true;
}

}  // namespace gradsieve::transport::testing
