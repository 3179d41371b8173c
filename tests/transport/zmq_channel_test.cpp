#include "transport/zmq_channel.hpp"

#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

class ZmqChannelTest : public ::testing::Test {
protected:
    void SetUp() override {
        auto context = ZmqContext::make(20);
        ASSERT_TRUE(context.is_ok()) << context.status().to_string();
        context_ = std::move(*context);
        DialOptions options;
        options.endpoint = endpoint_;
        options.routing_id = bytes_of("4753");
        auto made = ZmqChannel::make(*context_, options, make_body("hello"));
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        channel_.emplace(std::move(*made));
    }
    void listen() {
        auto made = context_->make_listener({endpoint_, false, 5000});
        ASSERT_TRUE(made.is_ok()) << made.status().to_string();
        listener_.emplace(std::move(*made));
    }
    void send(std::string_view text) { ASSERT_TRUE(channel_->send({make_body(text)}).is_ok()); }
    /// Runs the channel until the listener has got `count` messages in all; their texts.
    [[nodiscard]] std::vector<std::string> receive(std::size_t count) {
        ZmqPoller poller;
        poller.add(channel_->socket());
        poller.add(*listener_);
        const auto deadline = SteadyClock().now() + kWatchdog;
        while (texts_.size() < count && SteadyClock().now() < deadline) {
            EXPECT_TRUE(poller.wait(std::chrono::milliseconds(5)).is_ok());
            EXPECT_TRUE(channel_->take_changes().is_ok());
            EXPECT_TRUE(channel_->flush().is_ok());
            std::vector<SharedView> parts;
            bool is_cut = false;
            while (listener_->try_receive(9, 1000, parts, is_cut).value()) texts_.push_back(text_of(parts.at(1)));
        }
        return std::exchange(texts_, {});
    }
    /// Runs the channel until it has noticed that nobody listens any more.
    [[nodiscard]] bool lose_listener() {
        listener_.reset();
        ZmqPoller poller;
        poller.add(channel_->socket());
        const auto deadline = SteadyClock().now() + kWatchdog;
        while (channel_->is_connected() && SteadyClock().now() < deadline) {
            EXPECT_TRUE(poller.wait(std::chrono::milliseconds(5)).is_ok());
            EXPECT_TRUE(channel_->take_changes().is_ok());
        }
        return !channel_->is_connected();
    }

    const std::string endpoint_ = "tcp://127.0.0.1:" + std::to_string(find_free_port());
    std::unique_ptr<ZmqContext> context_;
    std::optional<ZmqChannel> channel_;
    std::optional<ZmqSocket> listener_;
    std::vector<std::string> texts_;
};

using Texts = std::vector<std::string>;

TEST_F(ZmqChannelTest, The_hello_goes_first_and_kept_messages_follow_in_order) {
    send("one");
    send("two");
    EXPECT_EQ(channel_->queued_bytes(), 6U);
    EXPECT_EQ(channel_->sent_frames(), 0U);
    listen();
    EXPECT_EQ(receive(3), (Texts{"hello", "one", "two"}));
    EXPECT_EQ(channel_->sent_frames(), 3U);
    EXPECT_EQ(channel_->sent_bytes(), 5U + 3U + 3U + 3U * 2U) << "with ZeroMQ's framing";
    send("three");
    EXPECT_EQ(receive(1), Texts{"three"});
}
TEST_F(ZmqChannelTest, After_a_reconnect_the_hello_goes_first_again) {
    listen();
    EXPECT_EQ(receive(1), Texts{"hello"});
    ASSERT_TRUE(lose_listener());
    send("kept");
    listen();
    EXPECT_EQ(receive(2), (Texts{"hello", "kept"}));
}
TEST_F(ZmqChannelTest, What_is_for_now_or_never_is_dropped_without_a_connection) {
    ASSERT_TRUE(channel_->send_now_or_never(make_body("lost")).is_ok());
    EXPECT_EQ(channel_->queued_bytes(), 0U);
    listen();
    EXPECT_EQ(receive(1), Texts{"hello"});
    ASSERT_TRUE(channel_->send_now_or_never(make_body("now")).is_ok());
    EXPECT_EQ(receive(1), Texts{"now"});
}
TEST_F(ZmqChannelTest, A_refused_channel_is_quiet_until_the_next_connection) {
    listen();
    EXPECT_EQ(receive(1), Texts{"hello"});
    channel_->on_refused();
    send("kept");
    ASSERT_TRUE(channel_->send_now_or_never(make_body("lost")).is_ok());
    EXPECT_EQ(channel_->sent_frames(), 1U);
    EXPECT_FALSE(channel_->wants_flush());
    ASSERT_TRUE(lose_listener());
    listen();
    EXPECT_EQ(receive(2), (Texts{"hello", "kept"}));
}

}  // namespace
}  // namespace gradsieve::transport
