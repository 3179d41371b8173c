#include "transport/zmq_options.hpp"

#include "transport/frame.hpp"
#include "transport/handshake.hpp"
#include "transport/outgoing.hpp"

#include <set>

namespace gradsieve::transport {
namespace {

Status invalid(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

Status check_nodes(const ZmqOptions& options) {
    if (options.nodes.empty()) return {};
    if (options.self >= options.nodes.size()) {
        return invalid("own position " + std::to_string(options.self) + ": there are " +
                       std::to_string(options.nodes.size()) + " nodes; name one of the node list");
    }
    std::set<std::string> names, addresses;
    for (const auto& node : options.nodes) {
        if (node.name.empty() || node.name.size() > kNameBytesMax || !names.insert(node.name).second) {
            return invalid("node name \"" + node.name + "\": names have 1 to " + std::to_string(kNameBytesMax) +
                           " bytes and are used once; rename the node");
        }
        if (node.host.empty() || node.port == 0) {
            return invalid("node " + node.name + ": host \"" + node.host + "\" and port " + std::to_string(node.port) +
                           ": both are needed, the port from 1 to 65535; complete the node list");
        }
        if (!addresses.insert(address_text(node)).second) {
            return invalid("node " + node.name + ": address " + address_text(node) +
                           " is another node's too: allowed is one node per address and port; give each its own");
        }
    }
    return {};
}

Status check_keys(const ZmqOptions& options) {
    if (!options.secret_key || options.nodes.empty()) return {};
    std::set<std::string> keys;
    for (const auto& node : options.nodes) {
        if (!is_key_text(node.public_key)) {
            return invalid("node " + node.name + ": public key \"" + node.public_key + "\": allowed are " +
                           std::to_string(kKeyTextBytes) + " characters of Z85; enter what 'gradsieve keygen' printed");
        }
        if (!keys.insert(node.public_key).second) {
            return invalid("node " + node.name + ": public key " + node.public_key +
                           " is another node's too: allowed is one node per key; make each its own");
        }
    }
    GRADSIEVE_ASSIGN(const auto own, public_key_of(*options.secret_key));
    if (own != options.nodes[options.self].public_key) {
        return invalid("node " + options.nodes[options.self].name + ": the public half of its secret key is " + own +
                       ": allowed is the node list's, " + options.nodes[options.self].public_key +
                       "; enter the former there, or use the other key file");
    }
    return {};
}

}  // namespace

Status check_options(const ZmqOptions& options) {
    GRADSIEVE_TRY(check_nodes(options));
    GRADSIEVE_TRY(check_keys(options));
    if (options.lanes < 1 || options.lanes > kLanesMax) {
        return invalid("lanes " + std::to_string(options.lanes) + ": allowed are 1 to " + std::to_string(kLanesMax) +
                       "; change lanes");
    }
    if (options.frame_limit_bytes < kSmallPartBytes || options.frame_limit_bytes > kFrameBodyBytesMax) {
        return invalid("frame limit of " + std::to_string(options.frame_limit_bytes) + " bytes: allowed are " +
                       std::to_string(kSmallPartBytes) + " to " + std::to_string(kFrameBodyBytesMax) +
                       "; change the limit");
    }
    if (options.heartbeat_every <= Duration::zero() || options.silent_after <= options.heartbeat_every) {
        return invalid("heartbeat every " + std::to_string(options.heartbeat_every.count()) + " ns, silent after " +
                       std::to_string(options.silent_after.count()) +
                       " ns: the first must be positive and shorter than the second; change one");
    }
    return {};
}

std::string address_text(const PeerAddress& node) {
    const bool is_ipv6_literal = node.host.find(':') != std::string::npos;
    return (is_ipv6_literal ? "[" + node.host + "]" : node.host) + ":" + std::to_string(node.port);
}

}  // namespace gradsieve::transport
