#include "daemon/network_thread.hpp"

#include "tests/daemon/daemon_testing.hpp"
#include "tests/daemon/pipe_network.hpp"
#include "transport/zmq_transport.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gradsieve::daemon::test {
namespace {

using transport::Lane;

transport::OutFrame make_frame(Step step, const std::string& text) {
    Bytes body(text.size());
    std::memcpy(body.data(), text.data(), text.size());
    return {{.type = 20, .epoch = 9, .step = step}, {SharedView::take(std::move(body))}};
}
std::string text_of(const SharedView& body) {
    const auto bytes = body.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One daemon's end: what the conductor would hold.
struct End {
    explicit End(std::unique_ptr<transport::Transport> transport)
        : doorbell(shm::Doorbell::make().value()),
          wake(doorbell.fd()),
          thread(std::make_unique<NetworkThread>(std::move(transport), wake, log.log())) {}
    /// Takes in what has arrived; true once there are so many frames in all.
    [[nodiscard]] bool has_frames(std::size_t count) {
        thread->take_inbox(inbox);
        return inbox.frames.size() >= count;
    }
    [[nodiscard]] bool has_event(transport::PeerState state) {
        thread->take_inbox(inbox);
        return std::any_of(inbox.events.begin(), inbox.events.end(),
                           [&](const auto& event) { return event.state == state; });
    }

    LogLines log;
    shm::Doorbell doorbell;
    WakeFlag wake;
    std::unique_ptr<NetworkThread> thread;
    transport::Inbox inbox;
};

TEST(NetworkThread, Frames_and_events_go_both_ways_in_order) {
    PipeNetwork network(2);
    End a(network.make_endpoint(0));
    End b(network.make_endpoint(1));
    for (Step step = 1; step <= 100; ++step) {
        a.thread->send(1, Lane::kData, make_frame(step, "to b " + std::to_string(step)));
        b.thread->send(0, Lane::kControl, make_frame(step, "to a " + std::to_string(step)));
    }
    ASSERT_TRUE(wait_until([&] { return a.has_frames(100) && b.has_frames(100); }));
    for (Step step = 1; step <= 100; ++step) {
        EXPECT_EQ(a.inbox.frames[step - 1].from, 1U);
        EXPECT_EQ(a.inbox.frames[step - 1].header.step, step);
        EXPECT_EQ(text_of(a.inbox.frames[step - 1].body), "to a " + std::to_string(step));
        EXPECT_EQ(text_of(b.inbox.frames[step - 1].body), "to b " + std::to_string(step));
    }
    EXPECT_TRUE(a.has_event(transport::PeerState::kUp));
    EXPECT_EQ(a.thread->bound_address(), "pipe 0");
    EXPECT_EQ(a.thread->queue_depth(), 0U);
}
TEST(NetworkThread, Sleeping_conductor_is_woken_by_what_arrives) {
    PipeNetwork network(2);
    End a(network.make_endpoint(0));
    ASSERT_TRUE(wait_until([&] { return a.has_event(transport::PeerState::kUp); }));
    a.doorbell.drain();
    a.wake.announce_sleep();
    ASSERT_FALSE(a.thread->has_inbox());
    network.deliver(0, {1, {.type = 20, .epoch = 1, .step = 1}, SharedView::take(Bytes(8))});
    EXPECT_TRUE(shm::becomes_readable(a.doorbell.fd()));
    EXPECT_TRUE(a.thread->has_inbox());
}
TEST(NetworkThread, What_does_not_fit_into_the_queue_goes_later_and_in_order) {
    PipeNetwork network(2);
    End a(network.make_endpoint(0));
    End b(network.make_endpoint(1));
    network.stall(0, true);
    ASSERT_TRUE(wait_until([&] { return network.is_stuck(0); }));
    constexpr std::size_t kFrames = 10'000;  // the queue has 4,096 places
    for (Step step = 1; step <= kFrames; ++step) a.thread->send(1, Lane::kData, make_frame(step, "x"));
    EXPECT_EQ(a.thread->queue_depth(), kFrames);
    network.stall(0, false);
    std::uint64_t tick = 0;
    ASSERT_TRUE(wait_until([&] {
        a.thread->on_tick(++tick);
        return b.has_frames(kFrames);
    }));
    for (std::size_t place = 0; place < kFrames; ++place) ASSERT_EQ(b.inbox.frames[place].header.step, place + 1);
    EXPECT_EQ(a.thread->queue_depth(), 0U);
}
TEST(NetworkThread, Counters_are_said_to_hold_a_frame_only_once_they_do) {
    PipeNetwork network(2);
    End a(network.make_endpoint(0));
    const SteadyClock clock;
    ASSERT_TRUE(wait_until([&] { return a.has_event(transport::PeerState::kUp); }));
    for (int round = 0; round < 3; ++round) {
        a.thread->send(1, Lane::kData, make_frame(1, "seven b"));
        const auto handed_over = clock.now();
        EXPECT_FALSE(a.thread->has_counted(clock.now() + std::chrono::hours(1)));
        ASSERT_TRUE(wait_until([&] { return a.thread->has_counted(handed_over); }));
        EXPECT_EQ(a.thread->counters()[1].frames_sent, static_cast<std::uint64_t>(round) + 1);
        EXPECT_EQ(a.thread->counters()[1].bytes_sent, 7U * (static_cast<std::uint64_t>(round) + 1));
    }
}
TEST(NetworkThread, Conductors_tick_reaches_the_transport) {
    PipeNetwork network(2);
    End a(network.make_endpoint(0));
    a.thread->on_tick(77);
    EXPECT_TRUE(wait_until([&] { return network.tick_of(0) == 77; }));
}
TEST(NetworkThread, Frame_that_the_transport_refuses_is_said_and_the_next_one_sent) {
    PipeNetwork network(2);
    End a(network.make_endpoint(0));
    End b(network.make_endpoint(1));
    a.thread->send(5, Lane::kData, make_frame(1, "to nobody"));
    a.thread->send(1, Lane::kData, make_frame(2, "to b"));
    ASSERT_TRUE(wait_until([&] { return b.has_frames(1); }));
    EXPECT_EQ(b.inbox.frames[0].header.step, 2U);
    EXPECT_TRUE(a.log.has("warning frame not sent: unavailable: no peer 5"));
}
TEST(NetworkThread, End_sends_what_is_queued) {
    PipeNetwork network(2);
    auto a = std::make_unique<End>(network.make_endpoint(0));
    for (Step step = 1; step <= 1000; ++step) a->thread->send(1, Lane::kData, make_frame(step, "last words"));
    a.reset();
    EXPECT_EQ(network.waiting_for(1), 1000U);
}

/// A TCP port of the loopback that nothing listens on now.
std::uint16_t free_port() {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    return ntohs(address.sin_port);
}

TEST(NetworkThread, Two_of_them_talk_over_tcp) {
    const SteadyClock clock;
    transport::ZmqOptions options;
    options.nodes = {{"a", "127.0.0.1", free_port()}, {"b", "127.0.0.1", free_port()}};
    options.heartbeat_every = std::chrono::milliseconds(50);
    const auto make_end = [&](PeerIndex self) {
        options.self = self;
        return std::make_unique<End>(transport::make_zmq_transport(options, clock).value());
    };
    auto a = make_end(0);
    auto b = make_end(1);
    ASSERT_TRUE(
        wait_until([&] { return a->has_event(transport::PeerState::kUp) && b->has_event(transport::PeerState::kUp); }));
    std::string big(300'000, '\0');
    for (std::size_t place = 0; place < big.size(); ++place) big[place] = static_cast<char>(place * 31 % 251);
    a->thread->send(1, Lane::kData, make_frame(7, big));
    b->thread->send(0, Lane::kControl, make_frame(8, "short"));
    ASSERT_TRUE(wait_until([&] { return a->has_frames(1) && b->has_frames(1); }));
    EXPECT_EQ(b->inbox.frames[0].header.step, 7U);
    EXPECT_EQ(b->inbox.frames[0].header.epoch, 9U);
    EXPECT_EQ(text_of(b->inbox.frames[0].body), big);
    EXPECT_EQ(text_of(a->inbox.frames[0].body), "short");
    const auto after = clock.now();
    ASSERT_TRUE(wait_until([&] { return a->thread->has_counted(after); }));
    EXPECT_GT(a->thread->counters()[1].bytes_sent, big.size()) << "header and heartbeats count too";
    a->thread->on_tick(4242);
    EXPECT_TRUE(wait_until([&] { return b->thread->counters()[0].peer_tick == 4242; }));
    b.reset();
    EXPECT_TRUE(wait_until([&] { return a->has_event(transport::PeerState::kClosed); }));
}

}  // namespace
}  // namespace gradsieve::daemon::test
