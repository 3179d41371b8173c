#include "transport/interface.hpp"

#include <arpa/inet.h>
#include <algorithm>
#include <charconv>
#include <functional>

namespace gradsieve::transport {
namespace {

/// What the rule allows, parsed.
struct Filter {
    std::function<bool(const LocalAddress&)> allows;
    bool is_wildcard = false;
    IpAddress wildcard;
};

std::string local_text(const BindQuestion& question) {
    std::string text;
    for (const auto& local : question.local) {
        text += (text.empty() ? "" : ", ") + local.interface + " " + ip_text(local.address);
    }
    return text.empty() ? "none" : text;
}

Status refused(const BindQuestion& question, const std::string& problem, const std::string& advice) {
    const std::string subject = question.rule.empty() ? "listening address" : "interface \"" + question.rule + "\"";
    return {StatusCode::kInvalidArgument,
            subject + ": " + problem + "; this host has " + local_text(question) + "; " + advice};
}

Result<Filter> parse_network(const BindQuestion& question) {
    const auto slash = question.rule.find('/');
    const auto network = parse_ip(question.rule.substr(0, slash));
    const auto digits = std::string_view(question.rule).substr(slash + 1);
    unsigned bits = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    const bool is_number = error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
    if (!network || !is_number || bits > (network->is_ipv6 ? 128U : 32U)) {
        return refused(question, "is no network", "write it like 10.0.0.0/24");
    }
    const auto inside = [network = *network, bits](const LocalAddress& local) {
        return is_in_network(local.address, network, bits);
    };
    return Filter{inside, false, {}};
}

Result<Filter> parse_rule(const BindQuestion& question) {
    const auto& rule = question.rule;
    if (rule.empty()) return Filter{[](const LocalAddress&) { return true; }, false, {}};
    if (rule.front() == '!') {
        return Filter{
            [name = rule.substr(1)](const LocalAddress& local) { return local.interface != name; }, false, {}};
    }
    if (rule.find('/') != std::string::npos) return parse_network(question);
    if (const auto address = parse_ip(rule)) {
        if (is_wildcard(*address)) return Filter{[](const LocalAddress&) { return true; }, true, *address};
        return Filter{[address = *address](const LocalAddress& local) { return local.address == address; }, false, {}};
    }
    const auto has_name = [&](const LocalAddress& local) { return local.interface == rule; };
    if (std::none_of(question.local.begin(), question.local.end(), has_name)) {
        return refused(question, "there is no such interface",
                       "name one of these, an address, a network, or \"!name\"");
    }
    return Filter{[rule](const LocalAddress& local) { return local.interface == rule; }, false, {}};
}

/// The local address equal to `address`; any address of a loopback network counts as there (127.0.0.2).
std::optional<LocalAddress> find_local(const BindQuestion& question, const IpAddress& address) {
    for (const auto& local : question.local) {
        if (local.address == address) return local;
    }
    for (const auto& local : question.local) {
        if (is_loopback(local.address) && is_in_network(address, local.address, local.prefix_bits)) {
            return LocalAddress{local.interface, address, local.prefix_bits};
        }
    }
    return std::nullopt;
}

bool is_all_loopback(const BindQuestion& question) {
    return std::all_of(question.routes.begin(), question.routes.end(),
                       [](const PeerRoute& route) { return route.address && is_loopback(*route.address); });
}

/// The one local address that the kernel would use towards every peer, within the filter.
Result<std::optional<BindChoice>> choose_by_route(const BindQuestion& question, const Filter& filter, bool may_loop) {
    std::optional<BindChoice> choice;
    for (const auto& route : question.routes) {
        if (!route.source || (is_loopback(*route.source) && !may_loop)) continue;
        const auto local = find_local(question, *route.source);
        if (!local || !filter.allows(*local)) continue;
        if (choice && choice->address != local->address) {
            return refused(
                question, "peers are reached from " + ip_text(choice->address) + " and from " + ip_text(local->address),
                "give this node one of these addresses in the node list, or name the interface");
        }
        if (!choice) choice = BindChoice{local->address, local->interface + " routes to " + route.peer};
    }
    return choice;
}

/// The rule alone decides: the first address that it allows, in the peers' address family if there is one.
std::optional<BindChoice> choose_by_rule(const BindQuestion& question, const Filter& filter, bool may_loop) {
    const bool wants_ipv6 = std::any_of(question.routes.begin(), question.routes.end(),
                                        [](const PeerRoute& route) { return route.address && route.address->is_ipv6; });
    const std::string why = " is allowed by interface \"" + question.rule + "\"";
    if (const auto literal = parse_ip(question.rule)) {
        const auto local = find_local(question, *literal);  // also one of a loopback network that no interface lists
        if (!local || (is_loopback(*literal) && !may_loop)) return std::nullopt;
        return BindChoice{*literal, local->interface + why};
    }
    std::optional<BindChoice> choice;
    for (const auto& local : question.local) {
        if (!filter.allows(local) || (is_loopback(local.address) && !may_loop)) continue;
        if (choice && local.address.is_ipv6 != wants_ipv6) continue;
        if (choice && choice->address.is_ipv6 == wants_ipv6) continue;
        choice = BindChoice{local.address, local.interface + why};
    }
    return choice;
}

}  // namespace

std::optional<IpAddress> parse_ip(const std::string& text) {
    IpAddress address;
    if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1) return address;
    address.is_ipv6 = true;
    if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) return address;
    return std::nullopt;
}

std::string ip_text(const IpAddress& address) {
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(address.is_ipv6 ? AF_INET6 : AF_INET, address.bytes.data(), text, sizeof text);
    return text;
}

std::string endpoint_text(const IpAddress& address, std::uint16_t port) {
    return (address.is_ipv6 ? "[" + ip_text(address) + "]" : ip_text(address)) + ":" + std::to_string(port);
}

bool is_loopback(const IpAddress& address) noexcept {
    if (!address.is_ipv6) return address.bytes[0] == 127;
    IpAddress loopback{true, {}};
    loopback.bytes[15] = 1;
    return address == loopback;
}

bool is_wildcard(const IpAddress& address) noexcept { return address == IpAddress{address.is_ipv6, {}}; }

bool is_in_network(const IpAddress& address, const IpAddress& network, unsigned prefix_bits) noexcept {
    if (address.is_ipv6 != network.is_ipv6) return false;
    for (unsigned bit = 0; bit < prefix_bits; ++bit) {
        const unsigned mask = 0x80U >> (bit % 8);
        if (((address.bytes[bit / 8] ^ network.bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
}

Result<BindChoice> choose_bind_address(const BindQuestion& question) {
    GRADSIEVE_ASSIGN(const Filter filter, parse_rule(question));
    if (filter.is_wildcard)
        return BindChoice{filter.wildcard, "all interfaces, as interface \"" + question.rule + "\" says"};
    const bool may_loop = is_all_loopback(question);
    const auto own_literal = parse_ip(question.own_host);
    if (own_literal && is_loopback(*own_literal) && !may_loop) {
        return refused(question,
                       "this node's own address is " + question.own_host + ", where remote peers cannot reach it",
                       "give it an address in the node list that they can reach");
    }
    for (const auto& own : question.own_addresses) {
        const auto local = find_local(question, own);
        if (!local || (is_loopback(own) && !may_loop)) continue;
        if (filter.allows(*local)) return BindChoice{own, local->interface + " has this node's address"};
    }
    GRADSIEVE_ASSIGN(auto routed, choose_by_route(question, filter, may_loop));
    if (routed) return *routed;
    if (!question.rule.empty()) {
        if (auto ruled = choose_by_rule(question, filter, may_loop)) return *ruled;
        return refused(question,
                       may_loop ? "allows no address of this host" : "allows no address that remote peers can reach",
                       "name another interface, an address, a network, or \"!name\"");
    }
    return refused(question, "no peer of " + std::to_string(question.routes.size()) + " can be reached from here now",
                   "check the network and the addresses in the node list, or name the interface");
}

}  // namespace gradsieve::transport
