#include "daemon/config_nodes.hpp"

#include "daemon/config_check.hpp"
#include "daemon/config_host_list.hpp"
#include "daemon/config_parse.hpp"
#include "transport/curve_key.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

namespace gradsieve::daemon {

namespace {

/// The same order wherever it is asked for: that of the addresses' bytes.
std::array<unsigned char, 16> bytes_of(const std::string& numeric) {
    std::array<unsigned char, 16> bytes{};
    ::inet_pton(numeric.find(':') == std::string::npos ? AF_INET : AF_INET6, numeric.c_str(), bytes.data());
    return bytes;
}

/// Nodes are in one family: a host with an address of each would be two of them.
Result<std::vector<NodeConfig>> nodes_of_name(const std::string& name, const HostFacts& host) {
    std::vector<std::string> addresses;
    for (const auto& found : host.resolve(name)) addresses.push_back(numeric_address(found));
    const auto is_six = [](const std::string& address) { return address.find(':') != std::string::npos; };
    if (!std::ranges::all_of(addresses, is_six)) std::erase_if(addresses, is_six);
    std::ranges::sort(addresses, {}, bytes_of);
    addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    if (addresses.empty())
        return Status(StatusCode::kNotFound,
                      fmt::format("nodes.dns = \"{}\": the name has no address: allowed is a name with one for every "
                                  "node; correct it, or try again when the name server knows them",
                                  name));
    std::vector<NodeConfig> nodes;
    for (const auto& address : addresses) {
        auto node_name = address;
        std::ranges::replace(node_name, ':', '-');
        nodes.push_back({node_name, address});
    }
    return nodes;
}

Result<std::vector<NodeConfig>> nodes_of_list(std::string list, const HostFacts& host) {
    if (list.starts_with('$')) {
        const auto variable = list.substr(1);
        const auto found = host.environment.find(variable);
        if (found == host.environment.end())
            return Status(StatusCode::kNotFound,
                          fmt::format("nodes.hosts = \"{}\": the variable is not set in the daemon's environment: "
                                      "allowed is what a launcher sets there; start it by the launcher, or write the "
                                      "hosts",
                                      list));
        list = found->second;
    }
    auto hosts = expand_host_list(list);
    if (!hosts.is_ok()) return hosts.error().with_context("nodes.hosts");
    std::vector<NodeConfig> nodes;
    for (const auto& name : *hosts) nodes.push_back({name, name});
    return nodes;
}

/// Lines of a node's name and its public key; blank lines and what follows a '#' count for nothing.
Status add_keys(const std::string& file, std::vector<NodeConfig>& inout_nodes) {
    GRADSIEVE_ASSIGN(const auto text, read_config_file(file));
    std::map<std::string, std::string> keys;
    std::istringstream lines(text);
    std::size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        std::istringstream words(line);
        std::string name, key, more;
        words >> name >> key >> more;
        if (name.empty() || name.starts_with('#')) continue;
        if (!transport::is_key_text(key) || !(more.empty() || more.starts_with('#')) || !keys.emplace(name, key).second)
            return Status(StatusCode::kInvalidArgument,
                          fmt::format("{}:{}: '{}': allowed is a node's name, once, and its public key as gradsieve "
                                      "keygen prints it; correct the line",
                                      file, number, line.substr(0, 120)));
    }
    for (auto& node : inout_nodes)
        if (const auto found = keys.find(node.name); found != keys.end()) node.public_key = found->second;
    return {};
}

Status check_keys(const Config& config) {
    if (config.security != kSecurityCurve || config.nodes.size() < 2) return {};
    std::vector<std::string> keyless;
    std::map<std::string, std::string> owners;
    for (const auto& node : config.nodes) {
        if (node.public_key.empty()) keyless.push_back(fmt::format("'{}'", node.name));
        const auto [owner, is_new] = owners.emplace(node.public_key, node.name);
        if (!is_new && !node.public_key.empty())
            return Status(StatusCode::kInvalidArgument,
                          fmt::format("nodes.keys: '{}' and '{}' have one public key: allowed is one node per key; "
                                      "run 'gradsieve keygen' on each",
                                      owner->second, node.name));
    }
    if (keyless.empty()) return {};
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("nodes {} of [nodes] have no public key: traffic between nodes is encrypted unless the "
                              "file says otherwise; write a line with name and key of each into the file that "
                              "nodes.keys names, or set security = \"plain\" in [network] if only the nodes can reach "
                              "their network",
                              fmt::join(keyless, ", ")));
}

Status check_count(const Config& config) {
    if (config.nodes_count == 0 || config.nodes_count == config.nodes.size()) return {};
    std::vector<std::string> names;
    for (const auto& node : config.nodes) names.push_back(node.name);
    return Status(StatusCode::kUnavailable,
                  fmt::format("[nodes] names {} nodes ({}): nodes.count says {}; start again when all are there, or "
                              "correct the number",
                              names.size(), fmt::join(names, ", "), config.nodes_count));
}

}  // namespace

Status add_listed_nodes(Config& inout_config, const HostFacts& host) {
    auto& config = inout_config;
    if (config.nodes_dns.empty() && config.nodes_hosts.empty()) return {};
    if (!config.nodes.empty() || (!config.nodes_dns.empty() && !config.nodes_hosts.empty()))
        return Status(
            StatusCode::kInvalidArgument,
            fmt::format("[nodes] with {}: allowed is one of dns, hosts and [[node]] tables; remove the others",
                        config.nodes.empty() ? "dns and hosts" : "[[node]] tables"));
    GRADSIEVE_ASSIGN(config.nodes, config.nodes_dns.empty() ? nodes_of_list(config.nodes_hosts, host)
                                                            : nodes_of_name(config.nodes_dns, host));
    for (auto& node : config.nodes) node.port = config.nodes_port;
    config.origins["node"] = config.nodes_dns.empty() ? "nodes.hosts" : "nodes.dns";
    if (config.nodes.size() > kHostListLimit)
        return Status(StatusCode::kInvalidArgument, fmt::format("[nodes] names {} nodes: allowed are at most {}; split "
                                                                "the cluster",
                                                                config.nodes.size(), kHostListLimit));
    GRADSIEVE_TRY(check_count(config));
    if (!config.nodes_keys.empty()) GRADSIEVE_TRY(add_keys(config.nodes_keys, config.nodes));
    return check_keys(config);
}

}  // namespace gradsieve::daemon
