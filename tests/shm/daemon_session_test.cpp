#include "shm/cell.hpp"
#include "shm/layout.hpp"
#include "shm/shared_word.hpp"
#include "tests/shm/attached_session.hpp"

#include <cstring>
#include <random>

namespace gradsieve::shm {
namespace {

/// A second mapping of the control segment: what a hostile client can do to it.
class HostileControl {
public:
    explicit HostileControl(const DaemonSession& session)
        : segment_(Segment::adopt(duplicate(session.control_fd()), session.control_bytes(), Access::kReadWrite, true)
                       .value()) {}
    SharedWord64 word64(std::uint64_t offset) { return shared_word64(segment_.bytes(), offset); }
    SharedWord32 word32(std::uint64_t offset) { return shared_word32(segment_.bytes(), offset); }
    std::span<std::byte> bytes() { return segment_.bytes(); }

private:
    Segment segment_;
};

TEST(DaemonSession, Bytes_bound_is_what_a_session_then_takes) {
    const auto tensors = two_tensors();
    const auto session = DaemonSession::make("test", tensors).value();
    EXPECT_EQ(session_bytes_bound(tensors).value(), session.control_bytes() + session.gradient_bytes());
    const std::vector<TensorEntry> monster{{.name = "m", .shape = {UINT64_MAX, 2}}};
    EXPECT_EQ(session_bytes_bound(monster).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(DaemonSession::make("test", monster).status().code(), StatusCode::kInvalidArgument);
}

TEST(DaemonSession, Client_head_out_of_range_ends_the_session_for_good) {
    AttachedSession session;
    HostileControl hostile(session.daemon);
    hostile.word64(ControlWord::kSubmissionHead).store(UINT64_MAX, std::memory_order_release);
    Submission submission;
    const auto status = session.daemon.try_pop(submission).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.text().find("end this session"), std::string::npos) << status.text();
    hostile.word64(ControlWord::kSubmissionHead).store(0, std::memory_order_release);
    EXPECT_EQ(session.daemon.try_pop(submission).status().code(), StatusCode::kCorrupt) << "no second chance";
    EXPECT_EQ(session.daemon.push({}).code(), StatusCode::kCorrupt);
}

TEST(DaemonSession, Nonsense_in_a_cell_ends_the_session_naming_the_field) {
    AttachedSession session;
    ASSERT_TRUE(session.client.push({.tensor_index = 99, .step = 1}).is_ok()) << "a client's push checks nothing";
    Submission submission;
    const auto status = session.daemon.try_pop(submission).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.text().find("tensor index 99 in a ring cell; allowed is below 2"), std::string::npos)
        << status.text();
    EXPECT_EQ(session.daemon.try_pop(submission).status().code(), StatusCode::kCorrupt);
}

TEST(DaemonSession, Client_tail_out_of_range_is_corrupt_once_the_ring_looks_full) {
    AttachedSession session;
    HostileControl hostile(session.daemon);
    hostile.word64(ControlWord::kCompletionTail).store(12345, std::memory_order_release);
    Status status;
    const auto capacity = control_layout(session.tensors).completion_capacity;
    for (std::uint32_t pushed = 0; pushed <= capacity && status.is_ok(); ++pushed) status = session.daemon.push({});
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
}

TEST(DaemonSession, Sizes_and_places_are_never_read_back_from_shared_memory) {
    AttachedSession session;
    HostileControl hostile(session.daemon);
    std::memset(hostile.bytes().data(), 0xFF, ControlWord::kSubmissionHead);  // the whole description
    ASSERT_TRUE(session.client.push({.tensor_index = 1, .step = 5}).is_ok());
    Submission submission;
    ASSERT_TRUE(session.daemon.try_pop(submission).value());
    EXPECT_EQ(submission.step, 5U);
    EXPECT_TRUE(session.daemon.push({}).is_ok());
}

TEST(DaemonSession, Random_bytes_all_over_the_control_segment_never_bring_it_down) {
    const auto seed = std::random_device{}();
    std::mt19937 random(seed);
    for (int round = 0; round < 200; ++round) {
        AttachedSession session;
        HostileControl hostile(session.daemon);
        for (int hit = 0; hit < 64; ++hit) {
            hostile.bytes()[random() % (hit % 2 == 0 ? 640 : hostile.bytes().size())] = std::byte(random());
        }
        Submission submission;
        for (int turn = 0; turn < 100; ++turn) {
            const auto popped = session.daemon.try_pop(submission);
            if (!popped.is_ok()) {
                EXPECT_EQ(popped.status().code(), StatusCode::kCorrupt) << "seed " << seed;
                break;
            }
            if (!*popped) break;
            if (submission.kind == SubmissionKind::kAverage) {
                ASSERT_LT(submission.tensor_index, 2U) << "seed " << seed;
                ASSERT_NE(session.daemon.slice(submission.tensor_index, submission.sample_count - 1), nullptr);
            }
        }
        static_cast<void>(session.daemon.push({}));
        session.daemon.ring_client();
    }
}

TEST(DaemonSession, Slices_lie_where_the_layout_says_and_are_aligned) {
    const auto tensors = two_tensors();
    const auto session = DaemonSession::make("test", tensors).value();
    const auto layout = gradient_layout(tensors).value();
    const auto* const base = reinterpret_cast<const std::byte*>(session.slice(0, 0)) - layout.slabs[0].slices;
    for (std::uint32_t tensor = 0; tensor < 2; ++tensor) {
        const auto& slab = layout.slabs[tensor];
        for (std::uint32_t sample = 0; sample < slab.samples_max; ++sample) {
            const auto* const slice = reinterpret_cast<const std::byte*>(session.slice(tensor, sample));
            EXPECT_EQ(static_cast<std::uint64_t>(slice - base), slab.slices + sample * slab.stride_bytes);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(slice) % 64, 0U);
        }
    }
}

TEST(DaemonSession, Ringing_a_client_that_does_not_wait_or_lies_about_waiting_is_harmless) {
    AttachedSession session;
    session.daemon.ring_client();
    HostileControl hostile(session.daemon);
    hostile.word32(ControlWord::kClientWaiters).store(UINT32_MAX, std::memory_order_relaxed);
    session.daemon.ring_client();
    EXPECT_EQ(session.client.ticket(), 2U);
}

}  // namespace
}  // namespace gradsieve::shm
