#include "shm/control_header.hpp"
#include "shm/layout.hpp"
#include "tests/shm/attached_session.hpp"

#include <sys/eventfd.h>

#include <cstring>
#include <functional>
#include <string_view>

namespace gradsieve::shm {
namespace {

/// The daemon's half, before any client adopted it.
class Adoption : public testing::Test {
protected:
    Adoption()
        : tensors_(two_tensors()),
          daemon_(DaemonSession::make("test", tensors_).value()),
          results_(ResultArea::make("test", elements_of(tensors_)).value()),
          doorbell_(::eventfd(0, EFD_CLOEXEC)),
          reply_(reply_for(daemon_, results_, tensors_.size())) {}
    [[nodiscard]] Status adopt() {
        return ClientSession::adopt(tensors_, reply_, descriptors_for(daemon_, results_, doorbell_.get())).status();
    }
    /// Overwrites part of the control segment.
    template <typename T>
    void spoil(std::uint64_t offset, T value) {
        auto control =
            Segment::adopt(duplicate(daemon_.control_fd()), daemon_.control_bytes(), Access::kReadWrite, true).value();
        std::memcpy(control.bytes().data() + offset, &value, sizeof(value));
    }

    std::vector<TensorEntry> tensors_;
    DaemonSession daemon_;
    ResultArea results_;
    UniqueFd doorbell_;
    AttachReply reply_;
};

TEST_F(Adoption, Of_what_the_daemon_made_succeeds) { EXPECT_TRUE(adopt().is_ok()) << adopt().to_string(); }

TEST_F(Adoption, Of_a_refusal_gives_the_daemons_words) {
    reply_.status = Status(StatusCode::kMismatch, "tensor 'weight': shape differs");
    EXPECT_EQ(adopt().to_string(), "mismatch: tensor 'weight': shape differs");
}

TEST_F(Adoption, Of_another_version_names_both_wherever_it_shows_first) {
    spoil(ControlWord::kAbiVersion, std::uint32_t{1});
    EXPECT_EQ(adopt().code(), StatusCode::kVersionMismatch);
    spoil(ControlWord::kAbiVersion, kAbiVersion);
    reply_.abi_version = 9;
    const auto status = adopt();
    EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
    EXPECT_NE(status.text().find("version 9; this side speaks version 4"), std::string::npos) << status.text();
}

TEST_F(Adoption, Of_a_segment_that_is_not_ready_is_unavailable) {
    spoil(ControlWord::kHeaderMark, std::uint32_t{0});
    EXPECT_EQ(adopt().code(), StatusCode::kUnavailable);
}

TEST_F(Adoption, Of_sizes_or_offsets_that_do_not_fit_the_tensors_is_corrupt) {
    const auto good = reply_;
    const std::vector<std::function<void(AttachReply&)>> spoils{
        [](auto& reply) { reply.control_bytes += 4096; },
        [](auto& reply) { reply.control_bytes = 0; },
        [](auto& reply) { reply.gradient_bytes += 4096; },
        [](auto& reply) { reply.result_bytes += 4096; },
        [](auto& reply) { reply.result_bytes = 0; },
        [](auto& reply) { reply.result_offsets.pop_back(); },
        [](auto& reply) { reply.result_offsets.push_back(0); },
        [](auto& reply) { reply.result_offsets[1] = 68; },               // not aligned
        [](auto& reply) { reply.result_offsets[1] = 4096; },             // beyond the end
        [](auto& reply) { reply.result_offsets[1] = UINT64_MAX - 63; },  // overflows
    };
    for (std::size_t index = 0; index < spoils.size(); ++index) {
        reply_ = good;
        spoils[index](reply_);
        const auto status = adopt();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << index << ": " << status.to_string();
        EXPECT_NE(status.text().find("allowed is"), std::string::npos) << status.text();
    }
}

TEST_F(Adoption, Of_too_few_or_swapped_descriptors_is_corrupt_and_closes_them) {
    const auto before = open_descriptors();
    auto descriptors = descriptors_for(daemon_, results_, doorbell_.get());
    descriptors.pop_back();
    EXPECT_EQ(ClientSession::adopt(tensors_, reply_, std::move(descriptors)).status().code(), StatusCode::kCorrupt);
    descriptors = descriptors_for(daemon_, results_, doorbell_.get());
    std::swap(descriptors[0], descriptors[3]);
    EXPECT_EQ(ClientSession::adopt(tensors_, reply_, std::move(descriptors)).status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(open_descriptors(), before);
}

TEST(ClientSession, Corrupt_completion_ring_ends_the_job_once_with_a_reason) {
    AttachedSession session;
    auto control =
        Segment::adopt(duplicate(session.daemon.control_fd()), session.daemon.control_bytes(), Access::kReadWrite, true)
            .value();
    shared_word64(control.bytes(), ControlWord::kCompletionHead).store(1U << 20U, std::memory_order_release);
    EXPECT_TRUE(session.client.wait_for_completion(past()));
    Completion completion;
    ASSERT_TRUE(session.client.try_pop(completion));
    EXPECT_EQ(completion.kind, CompletionKind::kJobEnded);
    EXPECT_EQ(completion.code, StatusCode::kCorrupt);
    EXPECT_NE(std::string_view(completion.text.data()).find("completion ring"), std::string_view::npos);
    EXPECT_FALSE(session.client.try_pop(completion));
    EXPECT_FALSE(session.client.wait_for_completion(past()));
}

TEST(ClientSession, Nonsense_in_a_completion_ends_the_job_naming_the_field) {
    AttachedSession session;
    ASSERT_TRUE(session.daemon.push({.index = 77}).is_ok());
    Completion completion;
    ASSERT_TRUE(session.client.try_pop(completion));
    EXPECT_EQ(completion.kind, CompletionKind::kJobEnded);
    EXPECT_NE(std::string_view(completion.text.data()).find("tensor index 77"), std::string_view::npos);
}

TEST(ClientSession, Other_ranks_order_of_results_is_followed) {
    const auto tensors = two_tensors();
    auto daemon = DaemonSession::make("test", tensors).value();
    // The area was laid out for a rank that registered bias first.
    auto results = ResultArea::make("test", std::vector<ElementCount>{7, 15}).value();
    results.tensor(0)[0] = 1.0F;
    results.tensor(1)[0] = 2.0F;
    auto reply = reply_for(daemon, results, 2);
    std::swap(reply.result_offsets[0], reply.result_offsets[1]);
    auto client = ClientSession::adopt(tensors, reply, descriptors_for(daemon, results, STDIN_FILENO)).value();
    EXPECT_EQ(client.result(0)[0], 2.0F);
    EXPECT_EQ(client.result(1)[0], 1.0F);
}

}  // namespace
}  // namespace gradsieve::shm
