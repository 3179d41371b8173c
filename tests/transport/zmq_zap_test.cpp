// What ZeroMQ is answered when it asks whether a key may come in.
#include "transport/zmq_zap.hpp"

#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

class ZapReplyTest : public ::testing::Test {
protected:
    [[nodiscard]] static SharedView key_bytes(std::uint8_t value) {
        return SharedView::take(Bytes(32, std::byte{value}));
    }
    [[nodiscard]] static std::vector<SharedView> request(const SharedView& credentials) {
        return {make_body("1.0"),   make_body("req-7"), make_body("gradsieve"), make_body("10.0.0.9"), make_body(""),
                make_body("CURVE"), credentials};
    }
    /// Code, text and user; the other parts are checked here.
    [[nodiscard]] std::string answer_to(const std::vector<SharedView>& asked) {
        const auto reply = zap_reply(asked, keys_, notices_);
        EXPECT_EQ(reply.size(), 6U);
        EXPECT_EQ(text_of(reply[0]), "1.0");
        EXPECT_EQ(text_of(reply[1]), asked.size() > 1 ? text_of(asked[1]) : "");
        EXPECT_EQ(text_of(reply[5]), "") << "no metadata";
        return text_of(reply[2]) + "," + text_of(reply[3]) + "," + text_of(reply[4]);
    }

    std::vector<PeerAddress> nodes_ = [] {
        auto nodes = make_node_list(3);
        for (std::uint8_t node = 0; node < 3; ++node) nodes[node].public_key = key_text_of(key_bytes(node + 1).bytes());
        return nodes;
    }();
    PeerKeys keys_{nodes_, 0};
    std::vector<Notice> notices_;
};

TEST_F(ZapReplyTest, A_peers_key_is_let_in_as_its_node) {
    EXPECT_EQ(answer_to(request(key_bytes(2))), "200,OK,1");
    EXPECT_EQ(answer_to(request(key_bytes(3))), "200,OK,2");
    EXPECT_TRUE(notices_.empty());
}
TEST_F(ZapReplyTest, Any_other_key_is_turned_away_and_told_once) {
    for (int again = 0; again < 2; ++again) EXPECT_EQ(answer_to(request(key_bytes(9))), "400,unknown key,");
    EXPECT_EQ(answer_to(request(key_bytes(1))), "400,unknown key,") << "our own";
    ASSERT_EQ(notices_.size(), 2U);
    EXPECT_EQ(notices_[0].peer, "");
    EXPECT_NE(notices_[0].text.find(key_text_of(key_bytes(9).bytes())), std::string::npos);
    EXPECT_NE(notices_[0].text.find("10.0.0.9"), std::string::npos);
}
TEST_F(ZapReplyTest, What_is_no_question_about_a_key_is_never_let_in) {
    auto plain = request(key_bytes(2));
    plain[5] = make_body("PLAIN");
    auto version = request(key_bytes(2));
    version[0] = make_body("2.0");
    auto longer = request(key_bytes(2));
    longer.push_back(make_body("x"));
    auto shorter = request(key_bytes(2));
    shorter.pop_back();
    for (const auto& asked :
         {plain, version, longer, shorter, std::vector<SharedView>(), std::vector{make_body("1.0")}})
        EXPECT_EQ(answer_to(asked), "500,not a CURVE request,");
    for (const std::size_t bytes : {0U, 31U, 33U, 40U})
        EXPECT_EQ(answer_to(request(make_body(bytes, 0))), "500,not a CURVE key,");
    EXPECT_TRUE(notices_.empty());
    EXPECT_EQ(keys_.refused(), 0U);
}
TEST(ZapUser, Names_the_node_or_nobody) {
    EXPECT_EQ(node_of_user("0"), 0U);
    EXPECT_EQ(node_of_user("4294967295"), 4294967295U);
    for (const auto* text : {"", "a", "1a", "-1", " 1", "4294967296"}) EXPECT_FALSE(node_of_user(text)) << text;
}

}  // namespace
}  // namespace gradsieve::transport
