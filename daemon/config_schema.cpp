#include "daemon/config_schema.hpp"

#include "codec/shard.hpp"
#include "daemon/config_budget.hpp"
#include "daemon/config_check.hpp"
#include "daemon/config_host_list.hpp"
#include "daemon/config_text.hpp"
#include "transport/curve_key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace gradsieve::daemon {

namespace {

constexpr std::size_t kSocketPathLimitBytes = 107;  // sizeof(sockaddr_un::sun_path) - 1
constexpr std::size_t kPathLimitBytes = 4000;       // below PATH_MAX, with room for the files' names
constexpr std::array<std::string_view, 4> kLogLevels = {"error", "warning", "info", "debug"};

template <typename T>
const T* as(const ConfigValue& value) {
    return std::get_if<T>(&value);
}

/// A number that may be written with or without a decimal point.
std::optional<double> as_real(const ConfigValue& value) {
    if (const auto* real = as<double>(value)) return *real;
    if (const auto* integer = as<std::int64_t>(value)) return static_cast<double>(*integer);
    return std::nullopt;
}

/// Shortest decimal that reads back as the same double.
std::string real_text(double value) { return fmt::format("{}", value); }

template <auto kMember, std::int64_t kLow, std::int64_t kHigh, std::uint64_t kUnit>
Refusal set_integer(Config& config, const ConfigValue& value) {
    const auto* integer = as<std::int64_t>(value);
    if (integer == nullptr || *integer < kLow || *integer > kHigh) return "";
    using Member = std::remove_reference_t<decltype(config.*kMember)>;
    config.*kMember = static_cast<Member>(static_cast<std::uint64_t>(*integer) * kUnit);
    return std::nullopt;
}
template <auto kMember, std::uint64_t kUnit>
std::string integer_text(const Config& config) {
    return fmt::format("{}", config.*kMember / kUnit);
}

/// `kUnitNs` is the key's unit in nanoseconds, and so are the limits.
template <auto kMember, std::int64_t kUnitNs, std::int64_t kLowNs, std::int64_t kHighNs>
Refusal set_duration(Config& config, const ConfigValue& value) {
    const auto units = as_real(value);
    if (!units || !std::isfinite(*units)) return "";
    const auto nanoseconds = std::llround(std::clamp(*units, -1e6, 1e8) * static_cast<double>(kUnitNs));
    if (nanoseconds < kLowNs || nanoseconds > kHighNs) return "";
    config.*kMember = Duration(nanoseconds);
    return std::nullopt;
}
template <auto kMember, std::int64_t kUnitNs>
std::string duration_text(const Config& config) {
    return real_text(static_cast<double>((config.*kMember).count()) / static_cast<double>(kUnitNs));
}

template <auto kMember>
Refusal set_flag(Config& config, const ConfigValue& value) {
    const auto* flag = as<bool>(value);
    if (flag == nullptr) return "";
    config.*kMember = *flag;
    return std::nullopt;
}
template <auto kMember>
std::string flag_text(const Config& config) {
    return config.*kMember ? "true" : "false";
}

template <auto kMember, auto kIsAllowed>
Refusal set_text(Config& config, const ConfigValue& value) {
    const auto* text = as<std::string>(value);
    if (text == nullptr || !kIsAllowed(*text)) return "";
    config.*kMember = *text;
    return std::nullopt;
}
template <auto kMember>
std::string text_text(const Config& config) {
    return toml_text(config.*kMember);
}

/// kIsDefault: may be empty, and may have rules.
template <auto kMember, bool kIsDefault>
Refusal set_codec(Config& config, const ConfigValue& value) {
    const auto* text = as<std::string>(value);
    if (text == nullptr) return "";
    const bool is_built_in = kIsDefault && text->empty();
    if (const auto refusal = is_built_in ? std::nullopt : codec_refusal(*text, kIsDefault)) return refusal;
    config.*kMember = *text;
    return std::nullopt;
}

bool is_plan(std::string_view text) { return text == "gather" || text == "sharded"; }

Refusal set_down_codec(Config& config, const ConfigValue& value) {
    const auto* text = as<std::string>(value);
    if (text == nullptr) return "";
    if (const auto refusal = codec_refusal(*text, false)) return refusal;
    if (const auto status = codec::check_down_pipeline(*codec::parse_pipeline(*text)); !status.is_ok())
        return status.text();
    config.down_codec = *text;
    return std::nullopt;
}

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMinute = 60 * kSecond;

Refusal set_max_late(Config& config, const ConfigValue& value) {
    const auto seconds = as_real(value);
    if (!seconds || !(*seconds >= 0.001 && *seconds <= 604800)) return "";
    config.max_late = Duration(std::llround(*seconds * static_cast<double>(kSecond)));
    return std::nullopt;
}
std::string max_late_text(const Config& config) {
    if (!config.max_late) return "";
    return real_text(static_cast<double>(config.max_late->count()) / static_cast<double>(kSecond));
}

Refusal set_socket_mode(Config& config, const ConfigValue& value) {
    const auto* text = as<std::string>(value);
    if (text == nullptr || text->size() != 4 || text->front() != '0') return "";
    unsigned mode = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), mode, 8);
    if (error != std::errc() || end != text->data() + text->size() || (mode & 0600U) != 0600U) return "";
    config.socket_mode = mode;
    return std::nullopt;
}
std::string socket_mode_text(const Config& config) { return fmt::format("\"{:04o}\"", config.socket_mode); }

Refusal set_small_share(Config& config, const ConfigValue& value) {
    const auto share = as_real(value);
    if (!share || !(*share >= 0 && *share <= 1)) return "";
    config.small_share = *share;
    return std::nullopt;
}
std::string small_share_text(const Config& config) { return real_text(config.small_share); }

Refusal set_budget_ms(Config& config, const ConfigValue& value) {
    const auto ms = as_real(value);
    if (!ms || !(*ms == 0 || (*ms >= kLeastBudgetMs && *ms <= kMostBudgetMs))) return "";
    config.budget_ms_per_step = *ms;
    return std::nullopt;
}
std::string budget_ms_text(const Config& config) { return real_text(config.budget_ms_per_step); }

bool is_log_level(const std::string& text) {
    return std::find(kLogLevels.begin(), kLogLevels.end(), text) != kLogLevels.end();
}
bool is_cpus(const std::string& text) { return is_cpu_list(text); }
bool is_group(const std::string& text) { return text.empty() || is_group_name(text); }
bool is_socket_path(const std::string& text) { return is_absolute_path(text, kSocketPathLimitBytes); }
bool is_gpu_state(const std::string& text) { return text == "device" || text == "host"; }
bool is_security(const std::string& text) { return text == kSecurityCurve || text == kSecurityPlain; }
bool is_key_path(const std::string& text) { return is_absolute_path(text, kPathLimitBytes); }
bool is_hosts(const std::string& text) {
    if (text.empty() || text == "$SLURM_JOB_NODELIST" || text == "$GRADSIEVE_NODES") return true;
    return expand_host_list(text).is_ok();
}
bool is_dns_name(const std::string& text) { return text.empty() || is_host_address(text); }
bool is_keys_path(const std::string& text) { return text.empty() || is_absolute_path(text, kPathLimitBytes); }
bool is_state_directory(const std::string& text) { return is_absolute_path(text, kPathLimitBytes); }

std::vector<ConfigKey> daemon_rows() {
    return {
        {"daemon", "threads", "0 to 1024 threads", "Codec workers; 0 = a quarter of the cores, at least 1.", false,
         set_integer<&Config::threads, 0, 1024, 1>, integer_text<&Config::threads, 1>},
        {"daemon", "cpus", "a CPU list such as \"0-3,8\"",
         "CPUs that the daemon's threads may use; \"\" = all that are allowed.", false,
         set_text<&Config::cpus, is_cpus>, text_text<&Config::cpus>},
        {"daemon", "memory_limit_mib", "0 to 16777216 MiB",
         "Most memory for slabs, results and state of all jobs; 0 = half of the RAM.", true,
         set_integer<&Config::memory_limit_bytes, 0, 16'777'216, 1U << 20U>,
         integer_text<&Config::memory_limit_bytes, 1U << 20U>},
        {"daemon", "log_level", "\"error\", \"warning\", \"info\" or \"debug\"",
         "Least important lines that are logged.", true, set_text<&Config::log_level, is_log_level>,
         text_text<&Config::log_level>},
        {"daemon", "state_directory", "an absolute path", "Folder of the snapshots of residuals and variances.", false,
         set_text<&Config::state_directory, is_state_directory>, text_text<&Config::state_directory>},
        {"socket", "path", "an absolute path of at most 107 bytes",
         "Unix socket for training processes; the status page lies beside it.", false,
         set_text<&Config::socket_path, is_socket_path>, text_text<&Config::socket_path>},
        {"socket", "mode", "four octal digits from \"0600\" to \"0777\"",
         "Permissions of the socket: who may write to it may attach.", false, set_socket_mode, socket_mode_text},
        {"socket", "group", "a group's name", "Group of the socket and the status page; \"\" = the daemon's own.",
         false, set_text<&Config::socket_group, is_group>, text_text<&Config::socket_group>},
    };
}

std::vector<ConfigKey> network_rows() {
    return {
        {"network", "security", "\"curve\" or \"plain\"",
         "Traffic between nodes: encrypted, and only with the nodes' keys, or plain text with whoever comes.", false,
         set_text<&Config::security, is_security>, text_text<&Config::security>},
        {"network", "key_file", "an absolute path",
         "File with this node's secret key, as gradsieve keygen writes it; only the daemon may be able to read it.",
         false, set_text<&Config::key_file, is_key_path>, text_text<&Config::key_file>},
        {"network", "interface",
         "an interface's name, an address, a network such as \"10.0.0.0/8\", or one of them after \"!\"",
         "Where peers reach this node; \"\" = the interface that routes to them.", false,
         set_text<&Config::interface, is_interface_rule>, text_text<&Config::interface>},
        {"network", "lanes", "1 to 16 connections", "Data connections to each peer.", false,
         set_integer<&Config::lanes, 1, 16, 1>, integer_text<&Config::lanes, 1>},
        {"network", "heartbeat_ms", "10 to 60000 ms", "Time between heartbeats to each peer.", false,
         set_duration<&Config::heartbeat, kMillisecond, 10 * kMillisecond, 60 * kSecond>,
         duration_text<&Config::heartbeat, kMillisecond>},
        {"network", "silent_ms", "20 to 600000 ms, at least twice heartbeat_ms",
         "A peer from which nothing came for that long is named as silent.", false,
         set_duration<&Config::silent_after, kMillisecond, 20 * kMillisecond, 600 * kSecond>,
         duration_text<&Config::silent_after, kMillisecond>},
        {"network", "peer_timeout_s", "0.1 to 86400 s", "A peer named as silent or closed for that long has failed.",
         true, set_duration<&Config::peer_timeout, kSecond, 100 * kMillisecond, 86'400 * kSecond>,
         duration_text<&Config::peer_timeout, kSecond>},
        {"network", "round_deadline_s", "0.1 to 86400 s",
         "Longest time from the last rank's hand-in of a step to its result; with topk(scope=model) also between two "
         "hand-ins "
         "of a rank.",
         true, set_duration<&Config::round_deadline, kSecond, 100 * kMillisecond, 86'400 * kSecond>,
         duration_text<&Config::round_deadline, kSecond>},
        {"network", "max_late_s", "0.001 to 604800 s",
         "Longest time that a live rank may be late; absent = without limit.", true, set_max_late, max_late_text},
        {"network", "credit_mib", "1 to 65536 MiB", "Most payload bytes in flight to one peer.", true,
         set_integer<&Config::credit_bytes, 1, 65536, 1U << 20U>, integer_text<&Config::credit_bytes, 1U << 20U>},
    };
}

std::vector<ConfigKey> gpu_rows() {
    return {
        {"gpu", "memory_limit_mib", "0 to 16777216 MiB", "Most state and workspace on each GPU; 0 = all of the card.",
         true, set_integer<&Config::gpu_memory_limit_bytes, 0, 16'777'216, 1U << 20U>,
         integer_text<&Config::gpu_memory_limit_bytes, 1U << 20U>},
        {"gpu", "state", "\"device\" or \"host\"",
         "Where state of tensors on a device lies: there, or in host memory, which it works in over PCIe.", true,
         set_text<&Config::gpu_state, is_gpu_state>, text_text<&Config::gpu_state>},
        {"gpu", "max_multiprocessors", "0 to 1024 multiprocessors",
         "A pass runs no more blocks at a time than so many hold; 0 = all of the card.", false,
         set_integer<&Config::gpu_multiprocessors, 0, 1024, 1>, integer_text<&Config::gpu_multiprocessors, 1>},
        {"gpu", "batch_elements", "1 to 1000000000 elements",
         "Tensors are encoded together up to so many; while a batch is sent, the next one's passes run.", false,
         set_integer<&Config::gpu_batch_elements, 1, 1'000'000'000, 1>, integer_text<&Config::gpu_batch_elements, 1>},
    };
}

std::vector<ConfigKey> state_rows() {
    return {
        {"state", "keep_minutes", "0 to 100000 minutes",
         "How long the state of a job that ended early waits for its next run; 0 = it is not kept.", true,
         set_duration<&Config::keep_state_for, kMinute, 0, 100'000 * kMinute>,
         duration_text<&Config::keep_state_for, kMinute>},
        {"state", "snapshot_steps", "0 to 1000000000 steps",
         "Steps from one snapshot on disk to the next, and one at a clean stop; 0 = none.", true,
         set_integer<&Config::snapshot_steps, 0, 1'000'000'000, 1>, integer_text<&Config::snapshot_steps, 1>},
        {"state", "pinned_snapshots", "1 to 15 snapshots",
         "Pinned snapshots of each group that are kept once the newest of them is complete on every node.", true,
         set_integer<&Config::pinned_snapshots, 1, 15, 1>, integer_text<&Config::pinned_snapshots, 1>},
        {"state", "pinned_limit_mib", "0 to 1073741824 MiB",
         "Most that pinned snapshots take on disk; one more is refused; 0 = what the disk has.", true,
         set_integer<&Config::pinned_limit_bytes, 0, 1'073'741'824, 1U << 20U>,
         integer_text<&Config::pinned_limit_bytes, 1U << 20U>},
        {"state", "pinned_days", "0 to 100000 days", "Pinned snapshots that are older go; 0 = none does.", true,
         set_integer<&Config::pinned_days, 0, 100'000, 1>, integer_text<&Config::pinned_days, 1>},
    };
}

std::vector<ConfigKey> codec_rows() {
    return {
        {"codec", "default",
         "a codec such as \"topk(0.01) | pow2(bits=4) | auto\", with rules such as \"; *.bias: all | f32\" or without, "
         "or \"\"",
         "Codec of jobs that name none; \"\" = the built-in one.", false, set_codec<&Config::codec, true>,
         text_text<&Config::codec>},
        {"codec", "small", "a codec such as \"all | bf16\"",
         "Codec of tensors of one dimension or fewer than small_elements.", false,
         set_codec<&Config::small_codec, false>, text_text<&Config::small_codec>},
        {"codec", "small_elements", "0 to 1000000000 elements", "Tensors with fewer elements are small.", false,
         set_integer<&Config::small_elements, 0, 1'000'000'000, 1>, integer_text<&Config::small_elements, 1>},
        {"codec", "small_share", "0 to 1",
         "Share of a step's bytes that small tensors may take before they join the default codec.", false,
         set_small_share, small_share_text},
        {"codec", "plan", "\"gather\" or \"sharded\"",
         "Who gets payloads: all nodes, or for each part of a tensor one that sends the average on.", false,
         set_text<&Config::plan, is_plan>, text_text<&Config::plan>},
        {"codec", "down", "a codec without a stage in front, such as \"topk(0.01) | pow2(bits=4) | auto\"",
         "Codec of averages under the sharded plan, of tensors whose own one leaves elements out.", false,
         set_down_codec, text_text<&Config::down_codec>},
        {"codec", "budget_bytes_per_step", "0 to 1000000000000000 bytes",
         "Payload bytes that this node may send in a step, in the mean; what codecs send is fitted to it; 0 = no "
         "budget.",
         true, set_integer<&Config::budget_bytes_per_step, 0, 1'000'000'000'000'000, 1>,
         integer_text<&Config::budget_bytes_per_step, 1>},
        {"codec", "budget_ms_per_step", "0, or 0.001 to 3600000 ms",
         "Time that coding and sending a step may take on this node; what codecs send is fitted to it; 0 = no budget.",
         true, set_budget_ms, budget_ms_text},
        {"codec", "step_aside", "true or false",
         "Tensors go plain, as bf16 or f32, while this node's link is measured to be faster than their codec.", true,
         set_flag<&Config::step_aside>, flag_text<&Config::step_aside>},
    };
}

std::vector<ConfigKey> nodes_rows() {
    return {
        {"nodes", "dns", "a host name", "Every address of this name is a node; in place of [[node]] tables.", true,
         set_text<&Config::nodes_dns, is_dns_name>, text_text<&Config::nodes_dns>},
        {"nodes", "hosts", "a list such as \"node[01-04],login\", \"$SLURM_JOB_NODELIST\" or \"$GRADSIEVE_NODES\"",
         "Hosts that are the nodes, in this order; in place of [[node]] tables.", true,
         set_text<&Config::nodes_hosts, is_hosts>, text_text<&Config::nodes_hosts>},
        {"nodes", "count", "0 to 1024 nodes", "So many nodes there have to be; 0 = as many as are found.", true,
         set_integer<&Config::nodes_count, 0, 1024, 1>, integer_text<&Config::nodes_count, 1>},
        {"nodes", "port", "1 to 65535", "TCP port of all of them.", true, set_integer<&Config::nodes_port, 1, 65535, 1>,
         integer_text<&Config::nodes_port, 1>},
        {"nodes", "keys", "an absolute path",
         "File with a line for each node: its name and its public key; \"\" = none.", true,
         set_text<&Config::nodes_keys, is_keys_path>, text_text<&Config::nodes_keys>},
    };
}

std::vector<ConfigKey> build_config_keys() {
    auto rows = daemon_rows();
    for (auto& more : {network_rows(), gpu_rows(), state_rows(), codec_rows(), nodes_rows()})
        rows.insert(rows.end(), more.begin(), more.end());
    return rows;
}

Refusal set_node_name(NodeConfig& node, const ConfigValue& value) {
    const auto* text = as<std::string>(value);
    if (text == nullptr || !is_node_name(*text)) return "";
    node.name = *text;
    return std::nullopt;
}
Refusal set_node_address(NodeConfig& node, const ConfigValue& value) {
    const auto* text = as<std::string>(value);
    if (text == nullptr) return "";
    std::string_view address = *text;
    // "[2001:db8::1]", as in front of a port, is the same without its brackets.
    if (address.starts_with('[') && address.ends_with(']') && address.find(':') != std::string_view::npos)
        address = address.substr(1, address.size() - 2);
    if (!is_host_address(address)) return "";
    node.address = address;
    return std::nullopt;
}
Refusal set_node_port(NodeConfig& node, const ConfigValue& value) {
    const auto* port = as<std::int64_t>(value);
    if (port == nullptr || *port < 1 || *port > 65535) return "";
    node.port = static_cast<std::uint16_t>(*port);
    return std::nullopt;
}
Refusal set_node_public_key(NodeConfig& node, const ConfigValue& value) {
    const auto* text = as<std::string>(value);
    if (text == nullptr || !transport::is_key_text(*text)) return "";
    node.public_key = *text;
    return std::nullopt;
}
std::string node_public_key_text(const NodeConfig& node) {
    return node.public_key.empty() ? "" : toml_text(node.public_key);
}

std::vector<NodeKey> build_node_keys() {
    return {
        {"name", "1 to 64 letters, digits, '.', '_' or '-'", "Unique name of the node; its host name saves --node.",
         true, set_node_name, [](const NodeConfig& node) { return toml_text(node.name); }},
        {"address", "an IP address or a host name, without a port", "Where the other nodes reach it.", true,
         set_node_address, [](const NodeConfig& node) { return toml_text(node.address); }},
        {"port", "1 to 65535", "TCP port of its daemon, for all jobs.", false, set_node_port,
         [](const NodeConfig& node) { return fmt::format("{}", node.port); }},
        {"public_key", "40 characters of Z85, as gradsieve keygen prints them",
         "Public half of its key pair; needed unless security is \"plain\".", false, set_node_public_key,
         node_public_key_text},
    };
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
    static const auto keys = build_config_keys();
    return keys;
}

const std::vector<NodeKey>& node_keys() {
    static const auto keys = build_node_keys();
    return keys;
}

}  // namespace gradsieve::daemon
