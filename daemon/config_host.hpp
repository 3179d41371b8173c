// What the configuration needs to know of this host, as a value, so that tests can describe any host. Reading the facts
// touches the system; the rest is pure. Any thread.
#pragma once

#include "daemon/config.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gradsieve::daemon {

struct HostFacts {
    unsigned user_id = 0;
    std::string host_name;               ///< as the kernel says it, short or fully qualified
    std::vector<std::string> addresses;  ///< numeric, of all local interfaces, as `numeric_address` spells them
    std::map<std::string, std::string> environment;  ///< the variables below, where set and not empty
    std::string default_file = "/etc/gradsieve/gradsieved.toml";
    std::function<bool(const std::string&)> file_exists;
    std::function<bool(const std::string&)> folder_exists;
    /// Fully qualified name of `host_name`, "" if none. May ask a name server.
    std::function<std::string()> qualified_name;
    /// Numeric addresses of a name, empty if there are none. May ask a name server.
    std::function<std::vector<std::string>(const std::string&)> resolve;
};
/// This process on this host. Variables: RUNTIME_DIRECTORY, STATE_DIRECTORY, CREDENTIALS_DIRECTORY, XDG_RUNTIME_DIR,
/// XDG_STATE_HOME, HOME, SLURM_JOB_NODELIST, GRADSIEVE_NODES.
[[nodiscard]] HostFacts read_host_facts();

/// One spelling per IPv4 or IPv6 address (mapped ones as IPv4, zones cut); "" if `text` is none.
[[nodiscard]] std::string numeric_address(const std::string& text);

/// Which of `nodes` this host is. `name` is --node; else the node that has this host's name as its name or address,
/// else the one whose address is local. Only nodes that those do not settle are looked up by name. Errors: kNotFound
/// (none; all are listed), kInvalidArgument (several, or name and address disagree: `--node`).
[[nodiscard]] Result<PeerIndex> find_self(const std::vector<NodeConfig>& nodes, const std::string& name,
                                          const HostFacts& host);

/// A path and where it came from ("environment" or "default").
struct DefaultPath {
    std::string path;
    std::string origin;
};
/// Where the socket lies if nobody says so: systemd's $RUNTIME_DIRECTORY, /run/gradsieve for root, $XDG_RUNTIME_DIR,
/// else /run/user/<uid>. Errors: kFailedPrecondition (no such folder: --socket).
[[nodiscard]] Result<DefaultPath> default_socket(const HostFacts& host);
/// Where state lies if nobody says so: systemd's $STATE_DIRECTORY, /var/lib/gradsieve for root, $XDG_STATE_HOME, else
/// ~/.local/state. Errors: kFailedPrecondition (no home: --state).
[[nodiscard]] Result<DefaultPath> default_state_directory(const HostFacts& host);
/// Where this node's secret key lies if nobody says so: systemd's $CREDENTIALS_DIRECTORY if it is among them, else in
/// the state directory.
[[nodiscard]] DefaultPath default_key_file(const HostFacts& host, const std::string& state_directory);

/// `load_config` on a described host.
[[nodiscard]] Result<Config> load_config_on(const ConfigQuery& query, const HostFacts& host);

}  // namespace gradsieve::daemon
