// The daemon's configuration: one TOML file that serves all nodes. Units are in the keys. An unknown key is an error
// that names the nearest one; without a file the defaults make a working single node. Plain values; any thread.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/status.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon {

inline constexpr std::uint16_t kDefaultPort = 7077;
inline constexpr const char* kSecurityCurve = "curve";  ///< encrypted, and only the nodes' keys are let in
inline constexpr const char* kSecurityPlain = "plain";
/// What plain text costs, for the log and the status.
inline constexpr const char* kPlainTextWarning =
    "traffic between nodes is plain text, as security = \"plain\" in [network] says: whoever reaches its network can "
    "read and change it; make keys with 'gradsieve keygen' and set security = \"curve\"";
/// Usual name of the file with the secret key, in the state directory or among the service manager's credentials.
inline constexpr const char* kKeyFileName = "node.key";

struct NodeConfig {                     // [[node]], in file order: the position is the PeerIndex on every node
    std::string name;                   // name = "a"
    std::string address;                // address = "10.0.0.1" (IP or resolvable name)
    std::uint16_t port = kDefaultPort;  // port = 7077
    std::string public_key{};           // public_key = "...": Z85; "" = none, which plain text alone allows
    /// "10.0.0.1:7077", "[2001:db8::1]:7077".
    [[nodiscard]] std::string endpoint() const {
        const bool is_ipv6 = address.find(':') != std::string::npos;
        return (is_ipv6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
    }
};

struct Config {
    // [daemon]
    std::uint32_t threads = 0;         // threads = 0: codec workers; 0 = a quarter of the cores, at least 1
    std::string cpus;                  // cpus = "0-3,8": CPU list for all threads; "" = all allowed
    ByteCount memory_limit_bytes = 0;  // memory_limit_mib = 0: slabs + results + state of all jobs; 0 = half of the RAM
    std::string log_level = "info";    // log_level: error, warning, info, debug
    std::string state_directory;       // state_directory
    // [socket]
    std::string socket_path;      // path
    unsigned socket_mode = 0660;  // mode = "0660"
    std::string socket_group;     // group; "" = the daemon's own
    // [network]
    std::string security = kSecurityCurve;  // security = "curve" or "plain": of the traffic between nodes
    std::string key_file;                   // key_file: this node's secret key
    std::string interface;                  // interface = "" (what routes to the peers), name, address, CIDR, "!name"
    std::uint32_t lanes = 1;                // lanes: data connections per peer, 1..16
    Duration heartbeat{std::chrono::seconds(1)};        // heartbeat_ms
    Duration silent_after{std::chrono::seconds(3)};     // silent_ms
    Duration peer_timeout{std::chrono::seconds(60)};    // peer_timeout_s
    Duration round_deadline{std::chrono::seconds(60)};  // round_deadline_s
    std::optional<Duration> max_late;                   // max_late_s; absent = without limit
    ByteCount credit_bytes = ByteCount{64} << 20U;      // credit_mib
    // [gpu]
    ByteCount gpu_memory_limit_bytes = 0;  // memory_limit_mib = 0: state and workspace on each GPU; 0 = all of the card
    std::string gpu_state = "device";      // state = "device" or "host": where state of device tensors lies
    std::uint64_t gpu_batch_elements = std::uint64_t{1} << 25U;  // that are encoded together
    std::uint32_t gpu_multiprocessors = 0;  // max_multiprocessors that a pass fills at a time; 0 = all
    // [state]
    Duration keep_state_for{std::chrono::hours(1)};  // keep_minutes
    std::uint64_t snapshot_steps = 0;                // snapshot_steps: a snapshot after every so many; 0 = none
    std::uint64_t pinned_snapshots = 2;              // pinned_snapshots: of each group, those that were asked for
    ByteCount pinned_limit_bytes = 0;                // pinned_limit_mib: on disk; 0 = without limit
    std::uint64_t pinned_days = 0;                   // pinned_days: older ones go; 0 = never
    // [codec]
    std::string codec;  // default = "topk(...) | ..."; "" = the built-in default, which steps aside on a single node
    std::string small_codec = "all | bf16";  // small = codec of tensors of one dimension or fewer than small_elements
    ElementCount small_elements = 1024;      // small_elements
    double small_share = 0.1;                // small_share: while they take at most this share of the step's bytes
    std::string plan = "gather";             // plan = "gather" or "sharded": who gets whose payloads
    std::string down_codec = "topk(0.01) | pow2(bits=4) | auto";  // down = codec of the sharded plan's averages
    std::uint64_t budget_bytes_per_step =
        0;                          // budget_bytes_per_step: that this node's payloads of a step may take; 0 = none
    double budget_ms_per_step = 0;  // budget_ms_per_step: that coding and sending them may take; 0 = none
    bool step_aside = false;        // step_aside: tensors go plain where the link is faster than their codec
    // [nodes]
    std::string nodes_dns;                    // dns = "gradsieve.example": each of its addresses is a node
    std::string nodes_hosts;                  // hosts = "node[01-04]" or "$SLURM_JOB_NODELIST"
    std::uint32_t nodes_count = 0;            // count = 4: so many there have to be; 0 = as many as there are
    std::uint16_t nodes_port = kDefaultPort;  // port = 7077: of all of them
    std::string nodes_keys;                   // keys: file with their names and public keys
    // [[node]]
    std::vector<NodeConfig> nodes;  // empty = single node; those of [nodes] too
    // found, not configured
    PeerIndex self = 0;
    std::string file;  // "" = no file
    /// Where each effective value came from, by dotted key: "default", "file", "environment", "option".
    std::map<std::string, std::string> origins;
};

struct ConfigQuery {
    std::string file;             ///< "" = /etc/gradsieve/gradsieved.toml if it exists, else none
    std::string node;             ///< --node NAME; "" = found by address or host name
    std::string socket_path;      ///< --socket; "" = from file, else by user (architecture: /run/gradsieve or
                                  ///< $XDG_RUNTIME_DIR/gradsieve)
    std::string state_directory;  ///< --state
};

/// Errors: kInvalidArgument with file, line, key, value seen, what is allowed and the nearest key; kNotFound (no such
/// file; this host is none of the nodes: their names and addresses, and `--node`).
[[nodiscard]] Result<Config> load_config(const ConfigQuery& query);
/// The effective values as TOML with each value's origin as a comment.
[[nodiscard]] std::string config_text(const Config& config);
/// Keys that differ and need a restart (everything but nodes' peers, limits, log level).
[[nodiscard]] std::vector<std::string> changed_keys_needing_restart(const Config& running, const Config& fresh);
/// Takes over exactly the others, and their origins. The nodes stay if this node's own entry (but for its public key)
/// or `security` has changed.
void take_reloadable_keys(Config& running, const Config& fresh);

}  // namespace gradsieve::daemon
