#include "transport/transport.hpp"

#include <gtest/gtest.h>

namespace gradsieve::transport {
namespace {

TEST(Transport, States_have_the_names_that_status_shows) {
    EXPECT_EQ(peer_state_name(PeerState::kConnecting), "connecting");
    EXPECT_EQ(peer_state_name(PeerState::kUp), "up");
    EXPECT_EQ(peer_state_name(PeerState::kSilent), "silent");
    EXPECT_EQ(peer_state_name(PeerState::kClosed), "closed");
    EXPECT_EQ(peer_state_name(static_cast<PeerState>(9)), "unknown");
}

}  // namespace
}  // namespace gradsieve::transport
