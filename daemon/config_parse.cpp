#include "daemon/config_parse.hpp"

#include "base/unique_fd.hpp"
#include "daemon/config_budget.hpp"
#include "daemon/config_schema.hpp"
#include "daemon/config_text.hpp"
#include "daemon/nearest_name.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

namespace gradsieve::daemon {

namespace {

constexpr std::size_t kFileLimitBytes = std::size_t{1} << 20U;
constexpr std::size_t kNodeLimit = 1024;   // far beyond the gather plan's use; bounds every peer table
constexpr std::size_t kProblemLimit = 20;  // the rest is only counted
constexpr std::string_view kAdvice = "correct the line, then run 'gradsieve check-config'";

/// What is wrong in which line; told together at the end.
class Problems {
public:
    explicit Problems(std::string file) : file_(std::move(file)) {}
    void add(const toml::source_region& where, std::string text) {
        found_.push_back({where.begin.line, std::move(text)});
    }
    [[nodiscard]] Status status() const {
        if (found_.empty()) return {};
        auto sorted = found_;
        std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
        std::vector<std::string> lines;
        for (const auto& problem : sorted)
            if (lines.size() < kProblemLimit)
                lines.push_back(fmt::format("{}:{}: {}", file_, problem.line, problem.text));
        if (sorted.size() > kProblemLimit) lines.push_back(fmt::format("and {} more", sorted.size() - kProblemLimit));
        return {StatusCode::kInvalidArgument, fmt::format("{}", fmt::join(lines, "\n"))};
    }

private:
    struct Problem {
        toml::source_index line;
        std::string text;
    };
    std::string file_;
    std::vector<Problem> found_;
};

std::optional<ConfigValue> scalar_of(const toml::node& node) {
    if (const auto* integer = node.as_integer()) return ConfigValue(integer->get());
    if (const auto* real = node.as_floating_point()) return ConfigValue(real->get());
    if (const auto* flag = node.as_boolean()) return ConfigValue(flag->get());
    if (const auto* text = node.as_string()) return ConfigValue(text->get());
    return std::nullopt;
}

/// The value as its writer wrote it, cut if long.
std::string seen_text(const toml::node& node) {
    if (node.is_table()) return "a table";
    if (node.is_array()) return "a list";
    std::string text;
    if (const auto* string = node.as_string()) {
        text = toml_text(string->get());
    } else if (const auto* real = node.as_floating_point()) {
        text = fmt::format("{}", real->get());
    } else {
        std::ostringstream stream;
        node.visit([&](const auto& value) { stream << value; });
        text = stream.str();
    }
    return text.size() > 120 ? text.substr(0, 117) + "..." : text;
}

std::vector<std::string> names_of_section(const std::string& section) {
    std::vector<std::string> names;
    for (const auto& key : config_keys())
        if (key.section == section) names.push_back(key.name);
    return names;
}

std::vector<std::string> section_names() {
    std::vector<std::string> names;
    for (const auto& key : config_keys())
        if (names.empty() || names.back() != key.section) names.push_back(key.section);
    names.emplace_back("node");
    return names;
}

/// "; did you mean 'lanes'?", or where a key of that name belongs.
std::string unknown_key_hint(const std::string& name, const std::vector<std::string>& known) {
    if (const auto nearest = nearest_name(name, known); !nearest.empty())
        return fmt::format("did you mean '{}'?", nearest);
    for (const auto& key : config_keys())
        if (key.name == name) return fmt::format("'{}' belongs in [{}]", name, key.section);
    std::vector<std::string> all;
    for (const auto& key : config_keys()) all.push_back(key.name);
    const auto nearest = nearest_name(name, all);
    for (const auto& key : config_keys())
        if (key.name == nearest) return fmt::format("did you mean '{}' in [{}]?", key.name, key.section);
    return "remove the line";
}

class ConfigReader {
public:
    ConfigReader(const std::string& file, Config& config) : problems_(file), config_(config) {}

    Status read(const toml::table& root) {
        for (const auto& [key, value] : root) read_section(std::string(key.str()), key.source(), value);
        check_nodes();
        check_keys();
        check_times();
        check_budget();
        return problems_.status();
    }

private:
    void read_section(const std::string& section, const toml::source_region& where, const toml::node& value) {
        const auto known = section_names();
        if (std::find(known.begin(), known.end(), section) == known.end()) {
            const bool is_key = !value.is_table() && !value.is_array_of_tables();
            const auto nearest = nearest_name(section, known);
            const auto hint = is_key            ? unknown_key_hint(section, {})
                              : nearest.empty() ? std::string("remove it")
                                                : fmt::format("did you mean '{}'?", nearest);
            return problems_.add(where, fmt::format("unknown {} '{}': allowed are [daemon], [socket], [network], "
                                                    "[gpu], [state], [codec], [nodes] and [[node]]; {}",
                                                    is_key ? "key outside of a section," : "section", section, hint));
        }
        if (section == "node") return read_nodes(where, value);
        const auto* table = value.as_table();
        if (table == nullptr)
            return problems_.add(
                where, fmt::format("'{0}' is {1}: allowed is a section; write [{0}]", section, seen_text(value)));
        for (const auto& [key, entry] : *table) read_key(section, std::string(key.str()), key.source(), entry);
    }

    void read_key(const std::string& section, const std::string& name, const toml::source_region& where,
                  const toml::node& value) {
        const auto& keys = config_keys();
        const auto row = std::find_if(keys.begin(), keys.end(),
                                      [&](const ConfigKey& key) { return key.section == section && key.name == name; });
        if (row == keys.end()) {
            const auto known = names_of_section(section);
            return problems_.add(where, fmt::format("unknown key '{}' in [{}]: allowed are {}; {}", name, section,
                                                    fmt::join(known, ", "), unknown_key_hint(name, known)));
        }
        const auto scalar = scalar_of(value);
        const Refusal refusal = scalar ? row->set(config_, *scalar) : Refusal("");
        if (refusal) return refuse(where, row->dotted(), value, row->allowed, *refusal);
        config_.origins[row->dotted()] = "file";
        lines_[row->dotted()] = where;
    }

    void refuse(const toml::source_region& where, const std::string& key, const toml::node& value,
                const std::string& allowed, const std::string& reason) {
        if (!reason.empty()) return problems_.add(where, fmt::format("{} = {}: {}", key, seen_text(value), reason));
        problems_.add(where, fmt::format("{} = {}: allowed is {}; {}", key, seen_text(value), allowed, kAdvice));
    }

    void read_nodes(const toml::source_region& where, const toml::node& value) {
        const auto* array = value.as_array();
        if (!value.is_array_of_tables() && !(array != nullptr && array->empty()))
            return problems_.add(where,
                                 fmt::format("'node' is {}: allowed is a list of tables; write [[node]] with two "
                                             "pairs of brackets before each node",
                                             seen_text(value)));
        if (array->size() > kNodeLimit)
            return problems_.add(
                where, fmt::format("{} nodes: allowed are at most {}; split the cluster", array->size(), kNodeLimit));
        for (const auto& entry : *array) read_node(*entry.as_table());
        if (!array->empty()) config_.origins["node"] = "file";
    }

    void read_node(const toml::table& table) {
        NodeConfig node;
        std::set<std::string> seen;
        for (const auto& [key, value] : table) {
            seen.emplace(key.str());
            read_node_key(node, std::string(key.str()), key.source(), value);
        }
        for (const auto& row : node_keys())
            if (row.is_required && seen.count(row.name) == 0)
                problems_.add(table.source(), fmt::format("[[node]] number {} has no '{}': allowed is {}; add {} = ...",
                                                          config_.nodes.size() + 1, row.name, row.allowed, row.name));
        if (seen.count("public_key") == 0) keyless_.push_back(config_.nodes.size());
        config_.nodes.push_back(std::move(node));
        node_lines_.push_back(table.source());
    }

    void read_node_key(NodeConfig& node, const std::string& name, const toml::source_region& where,
                       const toml::node& value) {
        const auto& keys = node_keys();
        const auto row = std::find_if(keys.begin(), keys.end(), [&](const NodeKey& key) { return key.name == name; });
        if (row == keys.end()) {
            std::vector<std::string> known;
            for (const auto& key : keys) known.push_back(key.name);
            return problems_.add(where, fmt::format("unknown key '{}' in [[node]]: allowed are {}; {}", name,
                                                    fmt::join(known, ", "), unknown_key_hint(name, known)));
        }
        const auto scalar = scalar_of(value);
        const Refusal refusal = scalar ? row->set(node, *scalar) : Refusal("");
        if (refusal) refuse(where, "node." + name, value, row->allowed, *refusal);
    }

    void check_nodes() {
        std::map<std::string, std::size_t> names;
        std::map<std::string, std::size_t> places;
        for (std::size_t index = 0; index < config_.nodes.size(); ++index) {
            const auto& node = config_.nodes[index];
            if (!node.name.empty() && !names.emplace(node.name, index).second)
                problems_.add(node_lines_[index],
                              fmt::format("node name '{}' is used twice, first in line {}: allowed is one node "
                                          "per name; rename one",
                                          node.name, node_lines_[names[node.name]].begin.line));
            const auto place = fmt::format("{}:{}", node.address, node.port);
            if (!node.address.empty() && !places.emplace(place, index).second)
                problems_.add(node_lines_[index],
                              fmt::format("address {} of node '{}' is used twice, first in line {}: allowed is one "
                                          "node per address and port; give one of them another port",
                                          place, node.name, node_lines_[places[place]].begin.line));
        }
    }

    /// Plain text only if the file says so; a single node has nobody to talk to.
    void check_keys() {
        if (config_.security != kSecurityCurve || config_.nodes.size() < 2) return;
        std::map<std::string, std::size_t> keys;
        for (std::size_t index = 0; index < config_.nodes.size(); ++index) {
            const auto& node = config_.nodes[index];
            if (!node.public_key.empty() && !keys.emplace(node.public_key, index).second)
                problems_.add(node_lines_[index],
                              fmt::format("public_key of node '{}' is that of node '{}' too: allowed is one node per "
                                          "key; run 'gradsieve keygen' on each",
                                          node.name, config_.nodes[keys[node.public_key]].name));
        }
        if (keyless_.empty()) return;
        std::vector<std::string> names;
        for (const auto index : keyless_) names.push_back(fmt::format("'{}'", config_.nodes[index].name));
        problems_.add(node_lines_[keyless_.front()],
                      fmt::format("[[node]] {} without public_key: traffic between nodes is encrypted unless this file "
                                  "says otherwise; run 'gradsieve keygen' on each node and enter what it prints as "
                                  "public_key = \"...\", or set security = \"plain\" in [network] if only the nodes "
                                  "can reach their network",
                                  fmt::join(names, ", ")));
    }

    void check_times() {
        if (config_.silent_after >= 2 * config_.heartbeat) return;
        const auto line =
            lines_.count("network.silent_ms") != 0 ? lines_["network.silent_ms"] : lines_["network.heartbeat_ms"];
        const auto in_ms = [](Duration time) { return static_cast<double>(time.count()) / 1e6; };
        problems_.add(
            line,
            fmt::format("network.silent_ms = {} with heartbeat_ms = {}: allowed is at least twice heartbeat_ms; {}",
                        in_ms(config_.silent_after), in_ms(config_.heartbeat), kAdvice));
    }

    void check_budget() {
        const auto refusal = budget_refusal(config_);
        if (refusal.empty()) return;
        for (const auto* key : {"codec.budget_ms_per_step", "codec.budget_bytes_per_step", "codec.default"})
            if (const auto line = lines_.find(key); line != lines_.end())
                return problems_.add(line->second, fmt::format("{}: {}", key, refusal));
    }

    Problems problems_;
    Config& config_;
    std::map<std::string, toml::source_region> lines_;
    std::vector<toml::source_region> node_lines_;
    std::vector<std::size_t> keyless_;  ///< places in the node list
};

}  // namespace

Status parse_config_text(std::string_view toml, const std::string& file, Config& config) {
    try {
        return ConfigReader(file, config).read(toml::parse(toml, file));
    } catch (const toml::parse_error& error) {
        const auto where = error.source().begin;
        return {StatusCode::kInvalidArgument, fmt::format("{}:{}:{}: not TOML: {}; {}", file, where.line, where.column,
                                                          error.description(), kAdvice)};
    }
}

Result<std::string> read_config_file(const std::string& file) {
    const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.is_open()) {
        const int error = errno;
        const auto code = error == EACCES   ? StatusCode::kPermissionDenied
                          : error == ENOENT ? StatusCode::kNotFound
                                            : StatusCode::kInvalidArgument;
        return Status(
            code,
            fmt::format(
                "configuration file {}: {}: it must be a readable file; check --config and the file's permissions",
                file, std::strerror(error)));
    }
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
        return Status(
            StatusCode::kInvalidArgument,
            fmt::format("configuration file {}: not a regular file: allowed is a TOML file; check --config", file));
    std::string text(kFileLimitBytes + 1, '\0');
    std::size_t length = 0;
    while (length < text.size()) {
        const auto count = ::read(fd.get(), text.data() + length, text.size() - length);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0)
            return Status(StatusCode::kUnavailable, fmt::format("configuration file {}: {}: cannot be read; try again",
                                                                file, std::strerror(errno)));
        if (count == 0) break;
        length += static_cast<std::size_t>(count);
    }
    if (length > kFileLimitBytes)
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("configuration file {}: more than {} bytes: allowed is at most that; check --config",
                                  file, kFileLimitBytes));
    text.resize(length);
    return text;
}

}  // namespace gradsieve::daemon
