#include "client/attachment.hpp"

#include "fake_daemon.hpp"
#include "shm/status_page.hpp"

#include <gmock/gmock.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>

namespace gradsieve::client {
namespace {

using test::FakeDaemon;
using ::testing::AllOf;
using ::testing::HasSubstr;

TimePoint soon() { return std::chrono::steady_clock::now() + test::kWatchdog; }

class AttachmentTest : public ::testing::Test {
protected:
    AttachmentTest() {
        EXPECT_TRUE(
            registry_
                .add("w", std::vector<std::uint64_t>{2, 3}, {.samples_max = 2, .has_second_moment = true, .group = "g"})
                .is_ok());
    }
    ResolvedOptions options(const FakeDaemon& daemon) const {
        return {.name = "job",
                .run_id = "run",
                .rank = 1,
                .world_size = 3,
                .codec = "all | f32",
                .non_finite = NonFinite::kZero,
                .socket_path = daemon.socket_path()};
    }
    Registry registry_;
};

TEST_F(AttachmentTest, Request_says_all_that_was_asked_for) {
    FakeDaemon daemon({.is_replying = false});
    auto attachment = Attachment::open(options(daemon), registry_, soon());
    ASSERT_TRUE(attachment.is_ok()) << attachment.status().to_string();
    const auto request = daemon.await_attach();
    EXPECT_EQ(request.job_name, "job");
    EXPECT_EQ(request.run_id, "run");
    EXPECT_EQ(request.rank, 1U);
    EXPECT_EQ(request.world_size, 3U);
    EXPECT_EQ(request.codec, "all | f32");
    EXPECT_EQ(request.non_finite, shm::NonFinitePolicy::kZero);
    ASSERT_EQ(request.tensors.size(), 1U);
    EXPECT_EQ(request.tensors[0].name, "w");
    EXPECT_EQ(request.tensors[0].group, "g");
    EXPECT_EQ(request.tensors[0].shape, (std::vector<std::uint64_t>{2, 3}));
    EXPECT_EQ(request.tensors[0].samples_max, 2U);
    EXPECT_TRUE(request.tensors[0].has_second_moment);
}
TEST_F(AttachmentTest, Reply_brings_memory_that_both_see) {
    FakeDaemon daemon;
    auto attachment = Attachment::open(options(daemon), registry_, soon());
    ASSERT_TRUE(attachment.is_ok());
    const auto answered = attachment->receive_reply(registry_, soon());
    ASSERT_TRUE(answered.is_ok()) << answered.status().to_string();
    ASSERT_TRUE(*answered);
    attachment->session().slice(0, 1)[5] = 42;
    daemon.run([](FakeDaemon& at) {
        EXPECT_EQ(at.session().slice(0, 1)[5], 42);
        at.result(0)[5] = 43;
    });
    EXPECT_EQ(attachment->session().result(0)[5], 43);
}
TEST_F(AttachmentTest, No_reply_yet_is_no_error_and_may_be_awaited_again) {
    FakeDaemon daemon({.is_replying = false});
    auto attachment = Attachment::open(options(daemon), registry_, soon());
    ASSERT_TRUE(attachment.is_ok());
    EXPECT_FALSE(attachment->receive_reply(registry_, TimePoint{}).value());
    daemon.await_attach();
    daemon.run([](FakeDaemon& at) { at.reply(); });
    EXPECT_TRUE(attachment->receive_reply(registry_, soon()).value());
}
TEST_F(AttachmentTest, Refusal_comes_through_as_it_is) {
    FakeDaemon daemon({.refusal = {StatusCode::kAlreadyExists, "rank 1 is taken by process 7"}});
    auto attachment = Attachment::open(options(daemon), registry_, soon());
    ASSERT_TRUE(attachment.is_ok());
    const auto status = attachment->receive_reply(registry_, soon()).status();
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(status.text(), "rank 1 is taken by process 7");
}
TEST_F(AttachmentTest, Nobody_listening_names_the_socket_and_what_to_do) {
    auto nowhere = ResolvedOptions{};
    nowhere.socket_path = ::testing::TempDir() + "no-such-" + std::to_string(::getpid()) + ".sock";
    const auto status = Attachment::open(nowhere, registry_, soon()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), AllOf(HasSubstr(nowhere.socket_path), HasSubstr("systemctl start gradsieved"),
                                     HasSubstr("GRADSIEVE_SOCKET")));
}
TEST_F(AttachmentTest, Daemon_that_hangs_up_is_gone_with_its_process_named) {
    FakeDaemon daemon;
    auto attachment = Attachment::open(options(daemon), registry_, soon());
    ASSERT_TRUE(attachment.is_ok());
    ASSERT_TRUE(attachment->receive_reply(registry_, soon()).value());
    EXPECT_TRUE(attachment->check_daemon().is_ok());
    const auto name = "gradsieved (process " + std::to_string(::getpid()) + ")";  // the fake lives in this process
    EXPECT_EQ(attachment->describe_daemon(), name + " is alive");
    daemon.run([](FakeDaemon& at) { at.hang_up(); });
    const auto status = attachment->check_daemon();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(),
                AllOf(HasSubstr(name + " is gone"), HasSubstr(daemon.socket_path()), HasSubstr("Start it again")));
    EXPECT_EQ(attachment->describe_daemon(), name + " is gone");
}
TEST_F(AttachmentTest, Hang_up_before_the_reply_is_gone_too) {
    FakeDaemon daemon({.is_replying = false});
    auto attachment = Attachment::open(options(daemon), registry_, soon());
    ASSERT_TRUE(attachment.is_ok());
    daemon.await_attach();
    daemon.run([](FakeDaemon& at) { at.hang_up(); });
    const auto status = attachment->receive_reply(registry_, soon()).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), HasSubstr("is gone"));
}
TEST_F(AttachmentTest, Daemon_without_heartbeat_is_told_from_a_live_one) {
    FakeDaemon daemon;
    auto page = shm::StatusPageWriter::make(shm::status_page_path(daemon.socket_path()), "");
    ASSERT_TRUE(page.is_ok()) << page.status().to_string();
    auto attachment = Attachment::open(options(daemon), registry_, soon());
    ASSERT_TRUE(attachment.is_ok());
    ASSERT_TRUE(attachment->receive_reply(registry_, soon()).value());
    ASSERT_TRUE(page->publish("{}", std::chrono::steady_clock::now()).is_ok());
    EXPECT_THAT(attachment->describe_daemon(), HasSubstr("is alive"));
    ASSERT_TRUE(page->publish("{}", std::chrono::steady_clock::now() - std::chrono::hours(1)).is_ok());
    EXPECT_THAT(attachment->describe_daemon(), HasSubstr("gives no sign of life for 360"));
}

/// A listener whose answers the test writes byte by byte.
class AttachmentReply : public AttachmentTest {
protected:
    Status status_of_reply(ByteView bytes) {
        std::string folder = ::testing::TempDir() + "reply-XXXXXX";  // a folder: process numbers come again
        if (::mkdtemp(folder.data()) == nullptr) return {StatusCode::kInternal, "mkdtemp"};
        const auto status = status_of_reply_at(folder + "/s", bytes);
        std::filesystem::remove_all(folder);
        return status;
    }

private:
    Status status_of_reply_at(const std::string& path, ByteView bytes) {
        auto listener = shm::LocalListener::make({.path = path, .mode = 0600, .group = ""});
        if (!listener.is_ok()) return listener.status().with_context("listener");
        ResolvedOptions to_it;
        to_it.name = "job";
        to_it.run_id = "run";
        to_it.socket_path = path;
        auto attachment = Attachment::open(to_it, registry_, soon());
        if (!attachment.is_ok()) return attachment.status().with_context("open");
        auto connection = listener->accept();
        if (!connection.is_ok()) return connection.status().with_context("accept");
        const auto sent = connection->send(bytes, {});
        if (!sent.is_ok()) return sent.with_context("send");
        return attachment->receive_reply(registry_, soon()).status();
    }
};
TEST_F(AttachmentReply, Garbage_is_corrupt) {
    EXPECT_EQ(status_of_reply(as_bytes("no reply at all")).code(), StatusCode::kVersionMismatch)
        << "its first word is no version";
    const auto whole = shm::build_attach_reply({});
    EXPECT_EQ(status_of_reply(ByteView(whole).first(whole.size() - 1)).code(), StatusCode::kCorrupt);
}
TEST_F(AttachmentReply, Other_version_is_named) {
    shm::AttachReply reply;
    reply.abi_version = shm::kAbiVersion + 1;
    const auto status = status_of_reply(shm::build_attach_reply(reply));
    EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
    EXPECT_THAT(status.text(),
                AllOf(HasSubstr(std::to_string(shm::kAbiVersion)), HasSubstr(std::to_string(shm::kAbiVersion + 1))));
}
TEST_F(AttachmentReply, Missing_descriptors_are_corrupt) {
    const auto status = status_of_reply(shm::build_attach_reply({}));
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("sent 0 descriptors"), HasSubstr("allowed is 4")));
}

}  // namespace
}  // namespace gradsieve::client
