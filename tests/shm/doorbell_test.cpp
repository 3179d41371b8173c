#include "shm/doorbell.hpp"

#include "tests/shm/shm_test_support.hpp"

#include <sys/eventfd.h>

#include <thread>

namespace gradsieve::shm {
namespace {

TEST(Doorbell, Many_rings_are_one_wake_up_and_draining_forgets_them) {
    auto doorbell = Doorbell::make().value();
    EXPECT_FALSE(becomes_readable(doorbell.fd(), 0));
    for (int ring = 0; ring < 3; ++ring) ring_doorbell(doorbell.fd());
    EXPECT_TRUE(becomes_readable(doorbell.fd(), 0));
    doorbell.drain();
    EXPECT_FALSE(becomes_readable(doorbell.fd(), 0));
}

TEST(Doorbell, Sleeping_thread_is_woken) {
    auto doorbell = Doorbell::make().value();
    std::thread ringer([fd = doorbell.fd()] { ring_doorbell(fd); });
    EXPECT_TRUE(becomes_readable(doorbell.fd()));
    ringer.join();
}

TEST(Doorbell, Drain_never_waits_even_if_a_client_made_the_shared_file_blocking) {
    auto doorbell = Doorbell::make().value();
    const auto client = duplicate(doorbell.fd());
    ASSERT_EQ(::fcntl(client.get(), F_SETFL, 0), 0);
    ASSERT_EQ(::fcntl(doorbell.fd(), F_GETFL) & O_NONBLOCK, 0) << "the flag is shared: that is the attack";
    doorbell.drain();  // would sleep for ever
    ring_doorbell(client.get());
    doorbell.drain();
    doorbell.drain();
    EXPECT_FALSE(becomes_readable(doorbell.fd(), 0));
}

TEST(Doorbell, Full_counter_neither_blocks_the_ringer_nor_loses_the_wake_up) {
    auto doorbell = Doorbell::make().value();
    ASSERT_EQ(::eventfd_write(doorbell.fd(), 0xFFFFFFFFFFFFFFFEULL), 0);
    ring_doorbell(doorbell.fd());
    EXPECT_TRUE(becomes_readable(doorbell.fd(), 0));
}

TEST(Doorbell, Ringing_a_bell_whose_daemon_is_gone_is_harmless) {
    UniqueFd client;
    {
        auto doorbell = Doorbell::make().value();
        client = duplicate(doorbell.fd());
    }
    ring_doorbell(client.get());
    ring_doorbell(-1);
}

}  // namespace
}  // namespace gradsieve::shm
