// What every transport has to do, whichever it is: one table of transports, one set of tests.
#include "transport/fault_transport.hpp"
#include "transport/frame.hpp"
#include "transport/loopback_transport.hpp"
#include "transport_testing.hpp"

#include <algorithm>
#include <thread>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers
using std::chrono::milliseconds;

constexpr PeerIndex kNodes = 3;

/// A network of one kind.
class World {
public:
    virtual ~World() = default;
    [[nodiscard]] virtual std::unique_ptr<Transport> make(PeerIndex self) = 0;
};

class ZmqWorld final : public World {
public:
    std::unique_ptr<Transport> make(PeerIndex self) override {
        auto made = make_zmq_transport(make_options(nodes_, self), clock_);
        if (!made.is_ok()) ADD_FAILURE() << made.status().to_string();
        return made.is_ok() ? std::move(*made) : nullptr;
    }

private:
    const SteadyClock clock_;
    const std::vector<PeerAddress> nodes_ = make_node_list(kNodes);
};

class CurveWorld final : public World {
public:
    std::unique_ptr<Transport> make(PeerIndex self) override {
        auto options = make_options(nodes_, self);
        options.secret_key = pairs_[self].secret_key;
        auto made = make_zmq_transport(options, clock_);
        if (!made.is_ok()) ADD_FAILURE() << made.status().to_string();
        return made.is_ok() ? std::move(*made) : nullptr;
    }

private:
    const SteadyClock clock_;
    std::vector<PeerAddress> nodes_ = make_node_list(kNodes);
    const std::vector<KeyPair> pairs_ = give_keys(nodes_);
};

class LoopbackWorld final : public World {
public:
    std::unique_ptr<Transport> make(PeerIndex self) override { return network_.make_endpoint(self); }

private:
    const SteadyClock clock_;
    LoopbackNetwork network_{kNodes, clock_};
};

/// With a plan that harms nothing, the wrapper must not show.
class FaultWorld final : public World {
public:
    explicit FaultWorld(std::unique_ptr<World> inner) : inner_(std::move(inner)) {}
    std::unique_ptr<Transport> make(PeerIndex self) override {
        return make_fault_transport(inner_->make(self), FaultPlan{}, clock_);
    }

private:
    const SteadyClock clock_;
    const std::unique_ptr<World> inner_;
};

struct Kind {
    std::string name;
    std::function<std::unique_ptr<World>()> make;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class TransportConformance : public ::testing::TestWithParam<Kind> {
protected:
    void start(PeerIndex node) {
        nodes_[node].transport = world_->make(node);
        ASSERT_TRUE(nodes_[node].transport);
    }
    void start_all() {
        for (PeerIndex node = 0; node < kNodes; ++node) start(node);
        ASSERT_TRUE(wait([&] { return is_everyone_up(); }));
    }
    [[nodiscard]] bool wait(const std::function<bool()>& is_done) { return poll_until({&a_, &b_, &c_}, is_done); }
    [[nodiscard]] PeerCounters counters(PeerIndex node, PeerIndex peer) const {
        return nodes_[node].transport->counters().at(peer);
    }
    [[nodiscard]] bool is_everyone_up() const {
        for (PeerIndex node = 0; node < kNodes; ++node) {
            for (PeerIndex peer = 0; peer < kNodes; ++peer) {
                if (peer != node && counters(node, peer).state != PeerState::kUp) return false;
            }
        }
        return true;
    }
    [[nodiscard]] Status send(PeerIndex from, PeerIndex to, Lane lane, OutFrame frame) {
        return nodes_[from].transport->send(to, lane, std::move(frame));
    }

    std::unique_ptr<World> world_ = GetParam().make();
    std::array<Node, kNodes> nodes_;
    Node& a_ = nodes_[0];
    Node& b_ = nodes_[1];
    Node& c_ = nodes_[2];
};

TEST_P(TransportConformance, Every_pair_of_peers_comes_up_once_with_an_instance) {
    start_all();
    for (PeerIndex node = 0; node < kNodes; ++node) {
        EXPECT_EQ(nodes_[node].inbox.events.size(), kNodes - 1);
        for (const auto& event : nodes_[node].inbox.events) {
            EXPECT_EQ(event.state, PeerState::kUp);
            EXPECT_NE(event.peer, node);
            EXPECT_NE(event.instance, 0U);
            EXPECT_NE(event.text, "");
        }
    }
    EXPECT_EQ(a_.last_event(1).instance, c_.last_event(1).instance) << "everybody sees the same life of b";
    EXPECT_NE(a_.last_event(1).instance, a_.last_event(2).instance);
}

TEST_P(TransportConformance, Each_lane_keeps_the_order_of_sending_in_both_directions) {
    constexpr std::uint64_t kFrames = 300;
    start_all();
    for (std::uint64_t number = 0; number < kFrames; ++number) {
        for (const auto lane : {Lane::kControl, Lane::kData}) {
            const auto type = static_cast<std::uint16_t>(lane == Lane::kControl ? 20 : 21);
            const ByteCount bytes = number % 7 == 0 ? 5000 : number % 50;
            ASSERT_TRUE(send(0, 1, lane, make_frame(type, number, {make_body(bytes, number)})).is_ok());
            ASSERT_TRUE(send(1, 0, lane, make_frame(type, number, {make_body(bytes, number + 1)})).is_ok());
        }
    }
    ASSERT_TRUE(wait([&] { return a_.inbox.frames.size() == 2 * kFrames && b_.inbox.frames.size() == 2 * kFrames; }));
    for (const PeerIndex node : {0U, 1U}) {
        std::uint64_t next[2] = {0, 0};
        for (const auto& frame : nodes_[node].inbox.frames) {
            EXPECT_EQ(frame.from, 1 - node);
            EXPECT_EQ(frame.header.step, next[frame.header.type - 20]++);
        }
    }
}

TEST_P(TransportConformance, Header_values_arrive_as_sent) {
    start_all();
    const FrameHeader headers[] = {{16, 0, 0}, {65535, UINT64_MAX, UINT64_MAX}, {300, 0x0123456789ABCDEFULL, 1}};
    for (const auto& header : headers) ASSERT_TRUE(send(0, 2, Lane::kControl, {header, {}}).is_ok());
    ASSERT_TRUE(wait([&] { return c_.inbox.frames.size() == std::size(headers); }));
    for (std::size_t index = 0; index < std::size(headers); ++index) {
        EXPECT_EQ(c_.inbox.frames[index].header.type, headers[index].type);
        EXPECT_EQ(c_.inbox.frames[index].header.epoch, headers[index].epoch);
        EXPECT_EQ(c_.inbox.frames[index].header.step, headers[index].step);
        EXPECT_EQ(c_.inbox.frames[index].body.bytes().size(), 0U);
    }
}

TEST_P(TransportConformance, Parts_are_concatenated_whatever_their_sizes) {
    start_all();
    const std::vector<std::vector<ByteCount>> shapes = {{},
                                                        {0},
                                                        {1},
                                                        {1023},
                                                        {1024},
                                                        {1025},
                                                        {1, 0, 1},
                                                        {600, 600},
                                                        {16, 100000},
                                                        {100000, 16},
                                                        {16, 5000, 16, 5000, 16},
                                                        {0, 70000, 0},
                                                        {1024, 1024},
                                                        std::vector<ByteCount>(3000, 7),
                                                        std::vector<ByteCount>(1500, 1100)};
    std::vector<Bytes> expected;
    for (const auto& shape : shapes) {
        OutFrame frame = make_frame(30, expected.size());
        Bytes whole;
        for (const auto bytes : shape) {
            frame.parts.push_back(make_body(bytes, whole.size()));
            const auto view = frame.parts.back().bytes();
            whole.insert(whole.end(), view.begin(), view.end());
        }
        expected.push_back(std::move(whole));
        ASSERT_TRUE(send(0, 1, Lane::kData, std::move(frame)).is_ok());
    }
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == shapes.size(); }));
    for (std::size_t index = 0; index < shapes.size(); ++index) {
        EXPECT_TRUE(std::ranges::equal(b_.inbox.frames[index].body.bytes(), expected[index])) << "shape " << index;
    }
}

TEST_P(TransportConformance, A_large_frame_and_many_small_ones_all_arrive) {
    constexpr std::size_t kSmall = 2000;
    constexpr ByteCount kLargeBytes = 20'000'000;
    start_all();
    const auto large = make_body(kLargeBytes, 1);
    ASSERT_TRUE(send(0, 1, Lane::kData, make_frame(40, 0, {large})).is_ok());
    for (std::size_t number = 0; number < kSmall; ++number) {
        ASSERT_TRUE(send(0, 1, Lane::kControl, make_frame(41, number, {make_body(number % 200, number)})).is_ok());
    }
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == kSmall + 1; }));
    for (const auto& frame : b_.inbox.frames) {
        const auto expected = frame.header.type == 40 ? large : make_body(frame.header.step % 200, frame.header.step);
        EXPECT_TRUE(std::ranges::equal(frame.body.bytes(), expected.bytes())) << frame.header.step;
    }
}

TEST_P(TransportConformance, Wrong_sends_say_why_and_the_next_right_one_works) {
    start_all();
    const auto unknown = send(0, 3, Lane::kControl, make_frame(20, 1));
    EXPECT_EQ(unknown.code(), StatusCode::kUnavailable);
    EXPECT_EQ(unknown.text(), "frame to peer 3: there are 3 nodes; name one of the node list");
    const auto self = send(0, 0, Lane::kControl, make_frame(20, 1));
    EXPECT_EQ(self.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(self.text(), "frame to peer 0: that is this node itself; a transport reaches the others only");
    const auto type = send(0, 1, Lane::kControl, make_frame(15, 1));
    EXPECT_EQ(type.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(type.text(), "frame type 15: types below 16 belong to the transport; use a higher one");
    const auto million = make_body(1U << 20U, 1);
    auto large = make_frame(20, 1, std::vector<SharedView>(64, million));
    large.parts.push_back(make_body("x"));
    const auto limit = send(0, 1, Lane::kData, std::move(large));
    EXPECT_EQ(limit.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(limit.text(), "frame body of 67108865 bytes: the limit is 67108864; send smaller frames");
    ASSERT_TRUE(send(0, 1, Lane::kControl, make_frame(20, 2)).is_ok());
    ASSERT_TRUE(wait([&] { return !b_.inbox.frames.empty(); }));
    EXPECT_EQ(b_.inbox.frames.front().header.step, 2U);
}

TEST_P(TransportConformance, Wake_from_another_thread_ends_a_poll) {
    start_all();
    std::thread waker([&] { a_.transport->wake(); });
    // The watchdog is the poll's own timeout: without the wake it would outlast the test's.
    const auto before = SteadyClock().now();
    while (SteadyClock().now() - before < kWatchdog) {
        Inbox inbox;
        ASSERT_TRUE(a_.transport->poll(kWatchdog * 2, inbox).is_ok());
        if (inbox.events.empty() && inbox.frames.empty()) break;
    }
    waker.join();
    EXPECT_LT(SteadyClock().now() - before, kWatchdog);
}

TEST_P(TransportConformance, Poll_without_news_returns_after_its_timeout_with_nothing) {
    start_all();
    Inbox inbox;
    ASSERT_TRUE(a_.transport->poll(Duration::zero(), inbox).is_ok());
    ASSERT_TRUE(a_.transport->poll(milliseconds(5), inbox).is_ok());
    EXPECT_EQ(inbox.frames.size(), 0U);
    EXPECT_EQ(inbox.events.size(), 0U);
}

TEST_P(TransportConformance, Counters_of_both_ends_add_up) {
    constexpr std::uint64_t kFrames = 50;
    constexpr ByteCount kBodyBytes = 3000;
    start_all();
    const auto before = counters(0, 1);
    for (std::uint64_t number = 0; number < kFrames; ++number) {
        ASSERT_TRUE(send(0, 1, Lane::kData, make_frame(20, number, {make_body(kBodyBytes, number)})).is_ok());
    }
    ASSERT_TRUE(wait([&] {
        const auto sent = counters(0, 1);
        const auto received = counters(1, 0);
        return b_.inbox.frames.size() == kFrames && sent.bytes_sent == received.bytes_received &&
               sent.frames_sent == received.frames_received && sent.queued_bytes == 0;
    }));
    EXPECT_GE(counters(0, 1).frames_sent - before.frames_sent, kFrames);
    EXPECT_GE(counters(0, 1).bytes_sent - before.bytes_sent, kFrames * (kBodyBytes + kFrameHeaderBytes));
    for (PeerIndex peer = 0; peer < kNodes; ++peer)
        EXPECT_EQ(counters(1, peer).frames_refused, 0U) << counters(1, peer).last_refusal;
    EXPECT_EQ(counters(0, 0).bytes_sent, 0U) << "nothing is sent to oneself";
    EXPECT_NE(counters(0, 1).address, "");
    EXPECT_NE(a_.transport->bound_address(), "");
}

TEST_P(TransportConformance, The_conductors_tick_reaches_the_peers) {
    start_all();
    a_.transport->set_tick(42);
    EXPECT_TRUE(wait([&] { return counters(1, 0).peer_tick == 42 && counters(2, 0).peer_tick == 42; }));
    EXPECT_EQ(counters(0, 1).peer_tick, 0U);
}

TEST_P(TransportConformance, Frames_for_a_peer_that_is_not_there_yet_wait_for_it) {
    start(0);
    start(2);
    const auto large = make_body(9000, 1);
    ASSERT_TRUE(send(0, 1, Lane::kData, make_frame(20, 1, {large})).is_ok());
    ASSERT_TRUE(send(0, 1, Lane::kData, make_frame(20, 2)).is_ok());
    EXPECT_EQ(counters(0, 1).state, PeerState::kConnecting);
    EXPECT_GE(counters(0, 1).queued_bytes, 9000U);
    start(1);
    ASSERT_TRUE(wait([&] { return b_.inbox.frames.size() == 2; }));
    EXPECT_EQ(b_.inbox.frames[0].header.step, 1U);
    EXPECT_TRUE(std::ranges::equal(b_.inbox.frames[0].body.bytes(), large.bytes()));
    EXPECT_EQ(b_.inbox.frames[1].header.step, 2U);
}

TEST_P(TransportConformance, The_end_of_a_peer_is_named_and_the_others_go_on) {
    start_all();
    const auto instance = a_.last_event(1).instance;
    b_.transport.reset();
    ASSERT_TRUE(wait([&] { return a_.has_event(1, PeerState::kClosed) && c_.has_event(1, PeerState::kClosed); }));
    EXPECT_EQ(a_.last_event(1).instance, instance);
    EXPECT_NE(a_.last_event(1).text.find("connection closed by"), std::string::npos) << a_.last_event(1).text;
    EXPECT_EQ(counters(0, 1).state, PeerState::kClosed);
    EXPECT_EQ(counters(0, 2).state, PeerState::kUp);
    ASSERT_TRUE(send(0, 2, Lane::kData, make_frame(20, 5)).is_ok());
    EXPECT_TRUE(wait([&] { return !c_.inbox.frames.empty(); }));
}

TEST_P(TransportConformance, A_restarted_peer_has_a_new_instance_and_is_reached_again) {
    start_all();
    const auto first = a_.last_event(1).instance;
    b_.transport.reset();
    ASSERT_TRUE(wait([&] { return a_.has_event(1, PeerState::kClosed); }));
    b_.inbox.clear();
    start(1);
    ASSERT_TRUE(wait([&] { return a_.last_event(1).state == PeerState::kUp && b_.has_event(0, PeerState::kUp); }));
    EXPECT_NE(a_.last_event(1).instance, first);
    ASSERT_TRUE(send(0, 1, Lane::kControl, make_frame(20, 6)).is_ok());
    ASSERT_TRUE(send(1, 0, Lane::kControl, make_frame(20, 7)).is_ok());
    ASSERT_TRUE(wait([&] { return !b_.inbox.frames.empty() && !a_.inbox.frames.empty(); }));
    EXPECT_EQ(counters(1, 1).frames_refused, 0U) << counters(1, 1).last_refusal;
}

std::unique_ptr<World> make_zmq_world() { return std::make_unique<ZmqWorld>(); }
std::unique_ptr<World> make_curve_world() { return std::make_unique<CurveWorld>(); }
std::unique_ptr<World> make_loopback_world() { return std::make_unique<LoopbackWorld>(); }

INSTANTIATE_TEST_SUITE_P(
    All, TransportConformance,
    ::testing::Values(Kind{"zmq", make_zmq_world}, Kind{"zmq_curve", make_curve_world},
                      Kind{"loopback", make_loopback_world},
                      Kind{"fault_over_loopback", [] { return std::make_unique<FaultWorld>(make_loopback_world()); }},
                      Kind{"fault_over_zmq", [] { return std::make_unique<FaultWorld>(make_zmq_world()); }}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace gradsieve::transport
