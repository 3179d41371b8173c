#include "transport/peer_keys.hpp"

#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

class PeerKeysTest : public ::testing::Test {
protected:
    std::vector<PeerAddress> nodes_ = make_node_list(3);
    const std::vector<KeyPair> pairs_ = give_keys(nodes_);
    PeerKeys keys_{nodes_, 1};
};

TEST_F(PeerKeysTest, Each_peers_key_names_its_node_and_is_no_news) {
    for (const PeerIndex node : {0U, 2U}) {
        const auto verdict = keys_.judge(nodes_[node].public_key, "10.0.0.9");
        EXPECT_EQ(verdict.node, node);
        EXPECT_EQ(verdict.notice, "");
    }
    EXPECT_EQ(keys_.refused(), 0U);
    EXPECT_EQ(keys_.last_refusal(), "");
}
TEST_F(PeerKeysTest, An_unknown_key_is_refused_counted_and_news_once) {
    const auto key = make_key_pair().value().public_key;
    const auto first = keys_.judge(key, "10.0.0.9");
    EXPECT_FALSE(first.node.has_value());
    EXPECT_EQ(first.notice, "key " + key +
                                " from 10.0.0.9 refused: allowed are the public_key of each [[node]]; if it is a "
                                "node's, enter it there");
    for (int again = 0; again < 3; ++again) EXPECT_EQ(keys_.judge(key, "10.0.0.9").notice, "");
    EXPECT_EQ(keys_.judge(key, "10.0.0.8").notice, "") << "from elsewhere it is the same key";
    EXPECT_EQ(keys_.refused(), 5U);
    EXPECT_NE(keys_.last_refusal().find("from 10.0.0.8"), std::string::npos);
}
TEST_F(PeerKeysTest, Our_own_key_is_nobody_elses) {
    const auto verdict = keys_.judge(nodes_[1].public_key, "10.0.0.9");
    EXPECT_FALSE(verdict.node.has_value());
    EXPECT_NE(verdict.notice.find("it is this node's own"), std::string::npos) << verdict.notice;
    EXPECT_EQ(keys_.refused(), 1U);
}
TEST_F(PeerKeysTest, Many_strangers_are_all_counted_but_named_only_so_far) {
    std::size_t notices = 0;
    std::string last;
    const auto judge = [&](std::size_t stranger) {
        auto text = std::to_string(stranger);
        const auto verdict = keys_.judge(std::string(kKeyTextBytes - text.size(), '0') + text, "10.0.0.9");
        EXPECT_FALSE(verdict.node.has_value());
        if (!verdict.notice.empty()) last = verdict.notice;
        return !verdict.notice.empty();
    };
    constexpr std::size_t kStrangers = 1000;
    for (std::size_t stranger = 0; stranger < kStrangers; ++stranger) notices += judge(stranger) ? 1 : 0;
    EXPECT_EQ(notices, kStrangersNamed + 1);
    EXPECT_EQ(last, "more than 64 unknown keys: further ones are refused and only counted");
    EXPECT_EQ(keys_.refused(), kStrangers);
    EXPECT_FALSE(judge(kStrangers - 1));
    EXPECT_EQ(keys_.judge(nodes_[0].public_key, "10.0.0.9").node, 0U) << "a peer still comes in";
}

}  // namespace
}  // namespace gradsieve::transport
