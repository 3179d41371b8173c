#include "shm/session_memory.hpp"

#include "shm/layout.hpp"
#include "shm/shared_word.hpp"
#include "tests/shm/attached_session.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

namespace gradsieve::shm {
namespace {

TEST(Session, Submission_arrives_with_every_field_and_the_slab_behind_it) {
    AttachedSession session;
    std::ranges::fill(session.client.slice(0, 1), 2.5F);
    std::ranges::fill(session.client.second_moment(0), 0.25F);
    const std::array<std::uint32_t, 2> counts{16, 8};
    session.client.set_slice_samples(0, counts);
    ASSERT_TRUE(session.client
                    .push({.kind = SubmissionKind::kAverage,
                           .tensor_index = 0,
                           .step = 42,
                           .sample_count = 2,
                           .batch_samples = 24,
                           .scale = 1024.0})
                    .is_ok());
    Submission seen;
    ASSERT_TRUE(session.daemon.try_pop(seen).value());
    EXPECT_EQ(seen.kind, SubmissionKind::kAverage);
    EXPECT_EQ(seen.tensor_index, 0U);
    EXPECT_EQ(seen.step, 42U);
    EXPECT_EQ(seen.sample_count, 2U);
    EXPECT_EQ(seen.batch_samples, 24U);
    EXPECT_EQ(seen.scale, 1024.0);
    EXPECT_EQ(session.daemon.slice(0, 1)[14], 2.5F);
    EXPECT_EQ(session.daemon.second_moment(0)[14], 0.25F);
    std::array<std::uint32_t, 2> seen_counts{99, 99};
    session.daemon.slice_samples(0, seen_counts);
    EXPECT_EQ(seen_counts, counts);
    EXPECT_FALSE(session.daemon.try_pop(seen).value());
}

TEST(Session, Second_moment_that_was_not_registered_is_empty_on_both_ends) {
    AttachedSession session;
    EXPECT_EQ(session.daemon.second_moment(1), nullptr);
    EXPECT_TRUE(session.client.second_moment(1).empty());
}

TEST(Session, Unknown_slice_samples_read_as_zero_also_after_known_ones) {
    AttachedSession session;
    session.client.set_slice_samples(0, std::array<std::uint32_t, 2>{5, 6});
    session.client.set_slice_samples(0, {});
    std::array<std::uint32_t, 2> seen{99, 99};
    session.daemon.slice_samples(0, seen);
    EXPECT_EQ(seen, (std::array<std::uint32_t, 2>{0, 0}));
}

TEST(Session, Results_are_seen_by_the_client_at_the_offsets_of_the_reply) {
    AttachedSession session;
    for (std::size_t element = 0; element < 7; ++element) session.results.tensor(1)[element] = float(element);
    const auto seen = session.client.result(1);
    ASSERT_EQ(seen.size(), 7U);
    EXPECT_EQ(seen[6], 6.0F);
    EXPECT_EQ(session.client.result(0).size(), 15U);
}

TEST(Session, Completion_arrives_with_text) {
    AttachedSession session;
    Completion completion{.kind = CompletionKind::kTensor, .code = StatusCode::kPeerFailed, .index = 1, .step = 7};
    completion.set_text("rank 3 on node b is gone");
    ASSERT_TRUE(session.daemon.push(completion).is_ok());
    Completion seen;
    ASSERT_TRUE(session.client.try_pop(seen));
    EXPECT_EQ(seen.kind, CompletionKind::kTensor);
    EXPECT_EQ(seen.code, StatusCode::kPeerFailed);
    EXPECT_EQ(seen.index, 1U);
    EXPECT_EQ(seen.step, 7U);
    EXPECT_EQ(std::string_view(seen.text.data()), "rank 3 on node b is gone");
    EXPECT_FALSE(session.client.try_pop(seen));
}

TEST(Session, Tensor_without_elements_has_an_empty_slice_and_still_steps) {
    AttachedSession session({{.name = "nothing", .group = "", .shape = {0, 4}}});
    EXPECT_TRUE(session.client.slice(0, 0).empty());
    EXPECT_TRUE(session.client.result(0).empty());
    EXPECT_NE(session.daemon.slice(0, 0), nullptr);
    ASSERT_TRUE(session.client.push({.step = 1}).is_ok());
    Submission seen;
    EXPECT_TRUE(session.daemon.try_pop(seen).value());
}

TEST(Session, Tensor_on_a_device_has_counts_and_steps_and_no_memory_here) {
    AttachedSession session({{.name = "host", .shape = {4}},
                             {.name = "device",
                              .shape = {std::uint64_t{1} << 40U},
                              .samples_max = 2,
                              .has_second_moment = true,
                              .on_device = true}});
    EXPECT_TRUE(session.client.slice(1, 1).empty());
    EXPECT_TRUE(session.client.second_moment(1).empty());
    EXPECT_TRUE(session.client.result(1).empty());
    EXPECT_EQ(session.daemon.slice(1, 1), nullptr);
    EXPECT_EQ(session.daemon.second_moment(1), nullptr);
    EXPECT_EQ(session.client.slice(0, 0).size(), 4U);
    const std::array<std::uint32_t, 2> counts{3, 5};
    session.client.set_slice_samples(1, counts);
    std::array<std::uint32_t, 2> seen_counts{};
    session.daemon.slice_samples(1, seen_counts);
    EXPECT_EQ(seen_counts, counts);
    ASSERT_TRUE(session.client.push({.tensor_index = 1, .step = 1, .sample_count = 2}).is_ok());
    Submission seen;
    EXPECT_TRUE(session.daemon.try_pop(seen).value());
}

TEST(Session, Ready_words_are_seen_by_the_daemon_one_per_tensor_in_its_order) {
    AttachedSession session({{.name = "host", .shape = {4}},
                             {.name = "device", .shape = {4}, .on_device = true},
                             {.name = "other", .shape = {4}, .on_device = true}});
    const auto words = session.client.ready_words();
    ASSERT_EQ(words.size(), 3U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(words.data()) % kAlignmentBytes, 0U);
    for (std::uint32_t tensor = 0; tensor < 3; ++tensor) EXPECT_EQ(session.daemon.ready_word(tensor), 0U) << "at first";
    for (std::uint32_t tensor = 0; tensor < 3; ++tensor)
        SharedWord32(words[tensor]).store(UINT32_MAX - tensor, std::memory_order_release);
    for (std::uint32_t tensor = 0; tensor < 3; ++tensor)
        EXPECT_EQ(session.daemon.ready_word(tensor), UINT32_MAX - tensor);
    Completion completion;
    Submission submission;
    EXPECT_FALSE(session.daemon.try_pop(submission).value()) << "the words are no part of the rings";
    EXPECT_FALSE(session.client.try_pop(completion));
}

TEST(Session, Last_ready_word_of_very_many_lies_in_the_segment) {
    std::vector<TensorEntry> tensors;
    for (int number = 0; number < 3000; ++number)
        tensors.push_back({.name = std::to_string(number), .shape = {1}, .on_device = true});
    AttachedSession session(std::move(tensors));
    SharedWord32(session.client.ready_words()[2999]).store(7, std::memory_order_release);
    EXPECT_EQ(session.daemon.ready_word(2999), 7U);
    EXPECT_EQ(session.daemon.ready_word(2998), 0U);
}

TEST(Session, Client_that_pushes_into_a_full_ring_is_told_busy_and_loses_nothing) {
    AttachedSession session;
    const auto capacity = control_layout(session.tensors).submission_capacity;
    for (Step step = 1; step <= capacity; ++step) ASSERT_TRUE(session.client.push({.step = step}).is_ok());
    const auto status = session.client.push({.step = 999});
    EXPECT_EQ(status.code(), StatusCode::kBusy);
    EXPECT_NE(status.text().find("wait for results"), std::string::npos) << status.text();
    Submission seen;
    for (Step step = 1; step <= capacity; ++step) {
        ASSERT_TRUE(session.daemon.try_pop(seen).value());
        ASSERT_EQ(seen.step, step);
    }
    EXPECT_FALSE(session.daemon.try_pop(seen).value());
}

TEST(Session, Daemon_whose_completions_are_not_read_is_told_resource_exhausted) {
    AttachedSession session;
    const auto capacity = control_layout(session.tensors).completion_capacity;
    for (std::uint32_t pushed = 0; pushed < capacity; ++pushed) ASSERT_TRUE(session.daemon.push({}).is_ok());
    const auto status = session.daemon.push({});
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.text().find("end this session"), std::string::npos) << status.text();
}

TEST(Session, Daemon_is_rung_only_if_it_announced_sleep_and_once_per_announcement) {
    AttachedSession session;
    ASSERT_TRUE(session.client.push({.step = 1}).is_ok());
    EXPECT_FALSE(becomes_readable(session.doorbell.fd(), 0)) << "awake: no system call is wanted";
    Submission seen;
    ASSERT_TRUE(session.daemon.try_pop(seen).value());
    session.daemon.announce_sleep(true);
    EXPECT_FALSE(session.daemon.has_submission());
    ASSERT_TRUE(session.client.push({.step = 2}).is_ok());
    EXPECT_TRUE(becomes_readable(session.doorbell.fd()));
    session.doorbell.drain();
    ASSERT_TRUE(session.client.push({.step = 3}).is_ok());
    EXPECT_FALSE(becomes_readable(session.doorbell.fd(), 0)) << "one ring per announcement";
    EXPECT_TRUE(session.daemon.has_submission());
}

TEST(Session, Client_wait_sees_a_completion_that_is_already_there) {
    AttachedSession session;
    EXPECT_FALSE(session.client.wait_for_completion(past()));
    ASSERT_TRUE(session.daemon.push({}).is_ok());
    EXPECT_TRUE(session.client.wait_for_completion(past()));
}

TEST(Session, Client_wait_ends_at_its_deadline) {
    AttachedSession session;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    EXPECT_FALSE(session.client.wait_for_completion(deadline));
    EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(Session, All_waiting_threads_of_a_client_are_woken_by_one_ring) {
    AttachedSession session;
    const auto ticket = session.client.ticket();
    std::vector<std::thread> waiters;
    std::atomic<int> woken{0};
    for (int waiter = 0; waiter < 3; ++waiter) {
        waiters.emplace_back([&] { woken += session.client.wait_for_completion(soon(), ticket) ? 1 : 0; });
    }
    ASSERT_TRUE(session.daemon.push({}).is_ok());
    session.daemon.ring_client();
    for (auto& waiter : waiters) waiter.join();
    EXPECT_EQ(woken, 3);
}

TEST(Session, Ticket_ends_a_wait_whose_completion_another_thread_took) {
    AttachedSession session;
    const auto ticket = session.client.ticket();
    ASSERT_TRUE(session.daemon.push({}).is_ok());
    session.daemon.ring_client();
    Completion seen;
    ASSERT_TRUE(session.client.try_pop(seen));
    EXPECT_FALSE(session.client.wait_for_completion(TimePoint::max(), ticket)) << "it returned: that is the point";
}

TEST(Session, Two_threads_ping_pong_through_both_doorbells_without_losing_a_wake_up) {
    constexpr Step kRounds = 2000;
    AttachedSession session;
    std::thread daemon([&] {
        Submission submission;
        for (Step step = 1; step <= kRounds;) {
            session.daemon.announce_sleep(true);
            if (!session.daemon.has_submission() && !becomes_readable(session.doorbell.fd())) return;
            session.daemon.announce_sleep(false);
            session.doorbell.drain();
            while (session.daemon.try_pop(submission).value()) {
                const auto value = session.daemon.slice(1, 0)[0];
                session.results.tensor(1)[0] = value + 1;
                static_cast<void>(session.daemon.push({.index = 1, .step = submission.step}));
                ++step;
            }
            session.daemon.ring_client();
        }
    });
    Completion completion;
    Step done = 0;
    for (Step step = 1; step <= kRounds; ++step) {
        session.client.slice(1, 0)[0] = float(step);
        ASSERT_TRUE(session.client.push({.tensor_index = 1, .step = step}).is_ok());
        if (!session.client.wait_for_completion(soon()) || !session.client.try_pop(completion)) break;
        if (completion.step != step || session.client.result(1)[0] != float(step) + 1) break;
        done = step;
    }
    daemon.join();
    EXPECT_EQ(done, kRounds);
}

}  // namespace
}  // namespace gradsieve::shm
