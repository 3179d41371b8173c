#include "daemon/config.hpp"

#include "daemon/config_host.hpp"
#include "daemon/config_nodes.hpp"
#include "daemon/config_parse.hpp"
#include "daemon/config_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace gradsieve::daemon {

namespace {

/// An option's path is relative to where the user stands; the daemon may stand elsewhere later.
Result<std::string> option_path(const std::string& option, const std::string& path) {
    std::error_code error;
    auto absolute = std::filesystem::absolute(path, error).lexically_normal().string();
    if (error)
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("{} {}: {}: give an absolute path", option, path, error.message()));
    return absolute;
}

/// Options go through the same checks as the file's values.
Status set_option(Config& config, const std::string& dotted, const std::string& option, const std::string& path) {
    GRADSIEVE_ASSIGN(auto absolute, option_path(option, path));
    const auto& keys = config_keys();
    const auto row =
        std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) { return key.dotted() == dotted; });
    GRADSIEVE_CHECK(row != keys.end());
    if (row->set(config, ConfigValue(absolute)))
        return {StatusCode::kInvalidArgument,
                fmt::format("{} {}: allowed is {}; choose another path", option, absolute, row->allowed)};
    config.origins[dotted] = "option";
    return {};
}

Status set_paths(Config& config, const ConfigQuery& query, const HostFacts& host) {
    if (!query.socket_path.empty()) GRADSIEVE_TRY(set_option(config, "socket.path", "--socket", query.socket_path));
    if (!query.state_directory.empty())
        GRADSIEVE_TRY(set_option(config, "daemon.state_directory", "--state", query.state_directory));
    if (config.socket_path.empty()) {
        GRADSIEVE_ASSIGN(auto found, default_socket(host));
        config.socket_path = std::move(found.path);
        config.origins["socket.path"] = std::move(found.origin);
    }
    if (config.state_directory.empty()) {
        GRADSIEVE_ASSIGN(auto found, default_state_directory(host));
        config.state_directory = std::move(found.path);
        config.origins["daemon.state_directory"] = std::move(found.origin);
    }
    if (config.key_file.empty()) {
        auto found = default_key_file(host, config.state_directory);
        config.key_file = std::move(found.path);
        config.origins["network.key_file"] = std::move(found.origin);
    }
    return {};
}

/// Where this node itself stands in the file, which cannot change under a running daemon.
bool is_same_self(const Config& running, const Config& fresh) {
    if (running.nodes.empty() || fresh.nodes.empty()) return running.nodes.empty() == fresh.nodes.empty();
    const auto& before = running.nodes[running.self];
    const auto& after = fresh.nodes[fresh.self];
    return running.self == fresh.self && before.name == after.name && before.address == after.address &&
           before.port == after.port;
}

}  // namespace

Result<Config> load_config(const ConfigQuery& query) { return load_config_on(query, read_host_facts()); }

Result<Config> load_config_on(const ConfigQuery& query, const HostFacts& host) {
    Config config;
    for (const auto& key : config_keys()) config.origins[key.dotted()] = "default";
    if (!query.file.empty()) {
        GRADSIEVE_ASSIGN(config.file, option_path("--config", query.file));
    } else if (host.file_exists(host.default_file)) {
        config.file = host.default_file;
    }
    if (!config.file.empty()) {
        GRADSIEVE_ASSIGN(const auto text, read_config_file(config.file));
        GRADSIEVE_TRY(parse_config_text(text, config.file, config));
    }
    if (const auto status = add_listed_nodes(config, host); !status.is_ok()) return status.with_context(config.file);
    GRADSIEVE_TRY(set_paths(config, query, host));
    GRADSIEVE_ASSIGN(config.self, find_self(config.nodes, query.node, host));
    return config;
}

std::string config_text(const Config& config) {
    std::string text = config.file.empty() ? "# no configuration file: built-in values\n"
                                           : fmt::format("# effective values with {}\n", config.file);
    std::string section;
    for (const auto& key : config_keys()) {
        if (key.section != section) text += fmt::format("\n[{}]\n", key.section);
        section = key.section;
        const auto found = config.origins.find(key.dotted());
        const auto origin = found == config.origins.end() ? "default" : found->second;
        const auto value = key.text(config);
        text += value.empty() ? fmt::format("{:<40} # {}, absent\n", "# " + key.name, origin)
                              : fmt::format("{:<40} # {}\n", key.name + " = " + value, origin);
    }
    // What [nodes] came to is no part of the file.
    const std::string mark = config.nodes_dns.empty() && config.nodes_hosts.empty() ? "" : "# ";
    for (std::size_t index = 0; index < config.nodes.size(); ++index) {
        text += fmt::format("\n{}[[node]]{}\n", mark, index == config.self ? " # this node" : "");
        for (const auto& key : node_keys())
            if (const auto value = key.text(config.nodes[index]); !value.empty())
                text += fmt::format("{}{} = {}\n", mark, key.name, value);
    }
    return text;
}

std::vector<std::string> changed_keys_needing_restart(const Config& running, const Config& fresh) {
    std::vector<std::string> changed;
    for (const auto& key : config_keys())
        if (!key.is_reloadable && key.text(running) != key.text(fresh)) changed.push_back(key.dotted());
    if (!is_same_self(running, fresh)) changed.emplace_back("node");
    return changed;
}

void take_reloadable_keys(Config& running, const Config& fresh) {
    running.log_level = fresh.log_level;
    running.memory_limit_bytes = fresh.memory_limit_bytes;
    running.peer_timeout = fresh.peer_timeout;
    running.round_deadline = fresh.round_deadline;
    running.max_late = fresh.max_late;
    running.credit_bytes = fresh.credit_bytes;
    running.gpu_memory_limit_bytes = fresh.gpu_memory_limit_bytes;
    running.gpu_state = fresh.gpu_state;
    running.keep_state_for = fresh.keep_state_for;
    running.snapshot_steps = fresh.snapshot_steps;
    running.pinned_snapshots = fresh.pinned_snapshots;
    running.pinned_limit_bytes = fresh.pinned_limit_bytes;
    running.pinned_days = fresh.pinned_days;
    running.budget_bytes_per_step = fresh.budget_bytes_per_step;
    running.budget_ms_per_step = fresh.budget_ms_per_step;
    running.step_aside = fresh.step_aside;
    running.nodes_dns = fresh.nodes_dns;
    running.nodes_hosts = fresh.nodes_hosts;
    running.nodes_count = fresh.nodes_count;
    running.nodes_port = fresh.nodes_port;
    running.nodes_keys = fresh.nodes_keys;
    if (is_same_self(running, fresh) && running.security == fresh.security) running.nodes = fresh.nodes;
    for (const auto& key : config_keys())
        if (const auto origin = fresh.origins.find(key.dotted()); key.is_reloadable && origin != fresh.origins.end())
            running.origins[key.dotted()] = origin->second;
}

}  // namespace gradsieve::daemon
