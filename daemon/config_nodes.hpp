// The node list where the file does not write it out: [nodes] names where it comes from, a DNS name with an address for
// every node, or a list of hosts, also a launcher's. Every daemon has to come to the same list in the same order, so
// nothing of it depends on who asks. Any thread.
#pragma once

#include "daemon/config_host.hpp"

namespace gradsieve::daemon {

/// Fills `inout_config.nodes` by [nodes], if it asks for any. Errors: kInvalidArgument (both kinds of lists, both
/// sources, a list that does not parse, nodes without keys), kNotFound (no addresses, a variable that is not set, no
/// such file of keys), kUnavailable (fewer nodes than nodes.count so far, or more).
[[nodiscard]] Status add_listed_nodes(Config& inout_config, const HostFacts& host);

}  // namespace gradsieve::daemon
