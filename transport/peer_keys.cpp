#include "transport/peer_keys.hpp"

#include <utility>

namespace gradsieve::transport {

PeerKeys::PeerKeys(std::span<const PeerAddress> nodes, PeerIndex self) : self_(self) {
    for (PeerIndex node = 0; node < nodes.size(); ++node) owners_.emplace(nodes[node].public_key, node);
}

PeerKeys::Verdict PeerKeys::judge(const std::string& key, const std::string& address) {
    const auto owner = owners_.find(key);
    if (owner != owners_.end() && owner->second != self_) return {owner->second, ""};
    ++refused_;
    last_refusal_ = "key " + key + " from " + address + " refused: ";
    last_refusal_ += owner == owners_.end()
                         ? "allowed are the public_key of each [[node]]; if it is a node's, enter it there"
                         : "it is this node's own; give each node a key of its own with 'gradsieve keygen'";
    if (strangers_.contains(key)) return {std::nullopt, ""};
    if (strangers_.size() < kStrangersNamed) {
        strangers_.insert(key);
        return {std::nullopt, last_refusal_};
    }
    if (std::exchange(has_said_more_, true)) return {std::nullopt, ""};
    return {std::nullopt, "more than " + std::to_string(kStrangersNamed) +
                              " unknown keys: further ones are refused and only counted"};
}

}  // namespace gradsieve::transport
