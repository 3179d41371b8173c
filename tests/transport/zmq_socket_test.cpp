#include "transport/zmq_socket.hpp"

#include "transport_testing.hpp"

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

class ZmqSocketTest : public ::testing::Test {
protected:
    void SetUp() override {
        auto context = ZmqContext::make(20);
        ASSERT_TRUE(context.is_ok()) << context.status().to_string();
        context_ = std::move(*context);
    }
    [[nodiscard]] Result<ZmqSocket> listen() { return context_->make_listener({endpoint_, false, 5000}); }
    [[nodiscard]] Result<ZmqSocket> dial(int queue_limit_messages = 0) {
        return context_->make_dialer({endpoint_, false, bytes_of("4753"), queue_limit_messages, Duration::zero()});
    }
    /// Waits on the socket until `is_done` holds.
    [[nodiscard]] static bool wait(const ZmqSocket& socket, const std::function<bool()>& is_done) {
        ZmqPoller poller;
        poller.add(socket);
        const auto deadline = SteadyClock().now() + kWatchdog;
        while (!is_done()) {
            if (SteadyClock().now() > deadline) return false;
            EXPECT_TRUE(poller.wait(std::chrono::milliseconds(5)).is_ok());
        }
        return true;
    }
    [[nodiscard]] bool send(ZmqSocket& dialer, const std::vector<SharedView>& parts) {
        return wait(dialer, [&] { return dialer.try_send(parts, gauge_).value() == SendOutcome::kSent; });
    }

    const std::string endpoint_ = "tcp://127.0.0.1:" + std::to_string(find_free_port());
    std::unique_ptr<ZmqContext> context_;
    std::shared_ptr<ByteGauge> gauge_ = std::make_shared<ByteGauge>(0);
};

TEST_F(ZmqSocketTest, Messages_arrive_part_by_part_behind_the_senders_id) {
    auto listener = listen();
    auto dialer = dial();
    ASSERT_TRUE(listener.is_ok() && dialer.is_ok());
    ASSERT_TRUE(send(*dialer, {make_body("head"), make_body(""), make_body("tail")}));
    std::vector<SharedView> parts;
    bool is_cut = true;
    ASSERT_TRUE(wait(*listener, [&] { return listener->try_receive(4, 1000, parts, is_cut).value(); }));
    EXPECT_FALSE(is_cut);
    ASSERT_EQ(parts.size(), 4U);
    EXPECT_EQ(hex_of(parts[0].bytes()), "4753");
    EXPECT_EQ(text_of(parts[1]), "head");
    EXPECT_EQ(text_of(parts[2]), "");
    EXPECT_EQ(text_of(parts[3]), "tail");
    EXPECT_FALSE(listener->try_receive(4, 1000, parts, is_cut).value()) << "and nothing more";
    EXPECT_TRUE(wait(*dialer, [&] { return gauge_->load() == 0; })) << "every byte was let go";
}
TEST_F(ZmqSocketTest, A_message_of_too_many_parts_or_bytes_is_cut_and_the_next_one_is_whole) {
    auto listener = listen();
    auto dialer = dial();
    ASSERT_TRUE(listener.is_ok() && dialer.is_ok());
    const auto part = make_body("12345");
    ASSERT_TRUE(send(*dialer, {part, part, part}));
    ASSERT_TRUE(send(*dialer, {part, part}));
    ASSERT_TRUE(send(*dialer, {part}));
    std::vector<SharedView> parts;
    bool is_cut = false;
    ASSERT_TRUE(wait(*listener, [&] { return listener->try_receive(3, 1000, parts, is_cut).value(); }));
    EXPECT_TRUE(is_cut) << "four parts with the id";
    ASSERT_TRUE(wait(*listener, [&] { return listener->try_receive(3, 11, parts, is_cut).value(); }));
    EXPECT_TRUE(is_cut) << "twelve bytes with the id";
    ASSERT_TRUE(wait(*listener, [&] { return listener->try_receive(3, 11, parts, is_cut).value(); }));
    EXPECT_FALSE(is_cut);
    EXPECT_EQ(text_of(parts.at(1)), "12345");
}
TEST_F(ZmqSocketTest, A_dialer_without_a_connection_takes_nothing_and_tells_of_each_change) {
    auto dialer = dial();
    ASSERT_TRUE(dialer.is_ok());
    const auto part = make_body("x");
    EXPECT_EQ(dialer->try_send({&part, 1}, gauge_).value(), SendOutcome::kWouldBlock);
    EXPECT_EQ(gauge_->load(), 0U);
    EXPECT_FALSE(dialer->try_next_change().has_value());
    for (int life = 0; life < 2; ++life) {
        auto listener = std::make_unique<ZmqSocket>(std::move(listen().value()));
        std::optional<LinkChange> change;
        ASSERT_TRUE(wait(*dialer, [&] { return (change = dialer->try_next_change()).has_value(); }));
        EXPECT_EQ(*change, LinkChange::kConnected);
        listener.reset();
        ASSERT_TRUE(wait(*dialer, [&] { return (change = dialer->try_next_change()).has_value(); }));
        EXPECT_EQ(*change, LinkChange::kDisconnected);
    }
}
TEST_F(ZmqSocketTest, What_cannot_be_bound_or_dialled_is_a_status) {
    const auto first = listen();
    ASSERT_TRUE(first.is_ok());
    const auto second = listen();
    EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(second.status().text(), "listening on " + endpoint_ + ": Address already in use");
    EXPECT_EQ(context_->make_listener({"tcp://192.0.2.1:7077", false, 5000}).status().code(),
              StatusCode::kInvalidArgument)
        << "an address of no interface here";
    EXPECT_EQ(context_->make_dialer({"tcp://nonsense", false, bytes_of("4753"), 0, {}}).status().code(),
              StatusCode::kInvalidArgument);
}
TEST_F(ZmqSocketTest, Too_many_sockets_are_a_status) {
    std::vector<ZmqSocket> dialers;
    Status status;
    for (int made = 0; made < 20 && status.is_ok(); ++made) {
        auto dialer = dial();
        status = dialer.status();
        if (dialer.is_ok()) dialers.push_back(std::move(*dialer));
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_GE(dialers.size(), 20 / kSocketsPerDialer) << "as many as were asked for";
}
TEST(ZmqWire, Framing_counts_two_bytes_for_short_parts_and_nine_for_long_ones) {
    EXPECT_EQ(message_wire_bytes({}), 0U);
    EXPECT_EQ(message_wire_bytes(std::vector{make_body(0, 0), make_body(255, 0), make_body(256, 0)}), 2U + 257U + 265U);
}
TEST(ZmqWire, Encryption_counts_33_bytes_more_per_part) {
    EXPECT_EQ(message_wire_bytes({}, true), 0U);
    EXPECT_EQ(message_wire_bytes(std::vector{make_body(0, 0), make_body(222, 0), make_body(223, 0)}, true),
              35U + 257U + 265U);
}

}  // namespace
}  // namespace gradsieve::transport
