// Which node of the file this host is. Cheap evidence first: only if the host's name and the numeric addresses settle
// nothing is a name server asked.
#include "daemon/config_host.hpp"
#include "daemon/nearest_name.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace gradsieve::daemon {

namespace {

using Matches = std::set<PeerIndex>;

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char character) { return static_cast<char>(std::tolower(character)); });
    return text;
}

std::string list_of(const std::vector<NodeConfig>& nodes) {
    std::vector<std::string> parts;
    for (const auto& node : nodes) parts.push_back(fmt::format("'{}' ({})", node.name, node.address));
    return fmt::format("{}", fmt::join(parts, ", "));
}

/// Nodes that have one of `names`, or its part before the first dot, as their name or address.
Matches match_names(const std::vector<NodeConfig>& nodes, const std::vector<std::string>& names) {
    std::set<std::string> spellings;
    for (const auto& name : names) {
        if (name.empty()) continue;
        spellings.insert(lower(name));
        spellings.insert(lower(name.substr(0, name.find('.'))));
    }
    Matches matches;
    for (PeerIndex index = 0; index < nodes.size(); ++index)
        if (spellings.count(lower(nodes[index].name)) + spellings.count(lower(nodes[index].address)) > 0)
            matches.insert(index);
    return matches;
}

bool is_local(const std::string& numeric, const HostFacts& host) {
    if (numeric.rfind("127.", 0) == 0 || numeric == "::1") return true;
    return std::find(host.addresses.begin(), host.addresses.end(), numeric) != host.addresses.end();
}

Matches match_numeric_addresses(const std::vector<NodeConfig>& nodes, const HostFacts& host) {
    Matches matches;
    for (PeerIndex index = 0; index < nodes.size(); ++index) {
        const auto numeric = numeric_address(nodes[index].address);
        if (!numeric.empty() && is_local(numeric, host)) matches.insert(index);
    }
    return matches;
}

Matches match_resolved_addresses(const std::vector<NodeConfig>& nodes, const HostFacts& host) {
    Matches matches;
    for (PeerIndex index = 0; index < nodes.size(); ++index) {
        if (!numeric_address(nodes[index].address).empty()) continue;
        for (const auto& numeric : host.resolve(nodes[index].address))
            if (is_local(numeric_address(numeric), host)) matches.insert(index);
    }
    return matches;
}

Result<PeerIndex> only_one(const std::vector<NodeConfig>& nodes, const Matches& matches, const std::string& evidence) {
    if (matches.size() == 1) return *matches.begin();
    std::vector<NodeConfig> several;
    for (const auto index : matches) several.push_back(nodes[index]);
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("this host {} is nodes {}: a daemon is one node; say which with --node NAME", evidence,
                              list_of(several)));
}

Result<PeerIndex> find_named(const std::vector<NodeConfig>& nodes, const std::string& name) {
    std::vector<std::string> names;
    for (PeerIndex index = 0; index < nodes.size(); ++index) {
        if (nodes[index].name == name) return index;
        names.push_back(nodes[index].name);
    }
    const auto nearest = nearest_name(name, names);
    return Status(StatusCode::kNotFound,
                  fmt::format("--node {}: no [[node]] has that name: allowed are {}; {}", name, list_of(nodes),
                              nearest.empty() ? "choose one of them" : fmt::format("did you mean '{}'?", nearest)));
}

}  // namespace

Result<PeerIndex> find_self(const std::vector<NodeConfig>& nodes, const std::string& name, const HostFacts& host) {
    if (!name.empty() && nodes.empty())
        return Status(StatusCode::kNotFound,
                      fmt::format("--node {}: the configuration has no [[node]], so this is a single node: "
                                  "leave --node out, or name a file with nodes by --config",
                                  name));
    if (!name.empty()) return find_named(nodes, name);
    if (nodes.empty()) return PeerIndex{0};

    const auto by_name = match_names(nodes, {host.host_name});
    const auto by_address = match_numeric_addresses(nodes, host);
    if (by_name.size() == 1 && !by_address.empty() && by_address.count(*by_name.begin()) == 0)
        return Status(
            StatusCode::kInvalidArgument,
            fmt::format(
                "this host's name '{}' is node '{}', but address {} of node '{}' is local: they must agree; correct "
                "the addresses, or say which node with --node NAME",
                host.host_name, nodes[*by_name.begin()].name, nodes[*by_address.begin()].address,
                nodes[*by_address.begin()].name));
    if (!by_name.empty()) return only_one(nodes, by_name, fmt::format("named '{}'", host.host_name));
    if (!by_address.empty()) return only_one(nodes, by_address, "has the addresses and");

    const auto by_qualified_name = match_names(nodes, {host.qualified_name()});
    if (!by_qualified_name.empty()) return only_one(nodes, by_qualified_name, "by its qualified name");
    const auto by_resolved_address = match_resolved_addresses(nodes, host);
    if (!by_resolved_address.empty()) return only_one(nodes, by_resolved_address, "by its addresses");
    return Status(StatusCode::kNotFound,
                  fmt::format("this host '{}' with addresses {} is none of the nodes {}: one of them must have its "
                              "name or an address of it; correct the file, or say which with --node NAME",
                              host.host_name, fmt::join(host.addresses, ", "), list_of(nodes)));
}

}  // namespace gradsieve::daemon
