#include "transport/transport.hpp"

namespace gradsieve::transport {

std::string_view peer_state_name(PeerState state) noexcept {
    switch (state) {
        case PeerState::kConnecting: return "connecting";
        case PeerState::kUp: return "up";
        case PeerState::kSilent: return "silent";
        case PeerState::kClosed: return "closed";
    }
    return "unknown";
}

}  // namespace gradsieve::transport
