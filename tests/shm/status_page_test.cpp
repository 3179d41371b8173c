#include "shm/status_page.hpp"

#include "shm/status_page_layout.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <thread>

namespace gradsieve::shm {
namespace {

TimePoint now() { return std::chrono::steady_clock::now(); }

/// Writes bytes into the page from outside, as a crash or a stopped writer would leave them.
void patch(const std::string& path, std::uint64_t offset, ByteView bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
template <typename T>
void patch_value(const std::string& path, std::uint64_t offset, T value) {
    Bytes bytes;
    ByteWriter(bytes).write(value);
    patch(path, offset, bytes);
}

TEST(StatusPage, Published_document_is_read_back_with_pid_and_health) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    ASSERT_TRUE(writer.publish(R"({"format": 1})", now()).is_ok());
    const auto snapshot = read_status_page(folder / "status").value();
    EXPECT_EQ(snapshot.document, R"({"format": 1})");
    EXPECT_EQ(snapshot.pid, ::getpid());
    EXPECT_EQ(snapshot.health, DaemonHealth::kLive);
    EXPECT_GE(snapshot.heartbeat_age_seconds, 0);
}

TEST(StatusPage, Page_is_complete_from_its_first_moment) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    EXPECT_EQ(read_status_page(folder / "status")->document, "{}");
    struct stat seen {};
    ASSERT_EQ(::stat((folder / "status").c_str(), &seen), 0);
    EXPECT_EQ(seen.st_mode & 0777U, 0640U);
    EXPECT_EQ(static_cast<std::uint64_t>(seen.st_size), status_file_bytes(kStatusCapacityBytes));
    EXPECT_GE(seen.st_blocks * 512, seen.st_size) << "committed: a full file system cannot break it later";
    EXPECT_FALSE(std::filesystem::exists(folder / "status.new"));
}

TEST(StatusPage, Document_of_the_full_capacity_fits_and_one_byte_more_keeps_the_old_one) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    const std::string full(writer.capacity_bytes(), 'x');
    ASSERT_TRUE(writer.publish(full, now()).is_ok());
    const auto status = writer.publish(full + "y", now());
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.text().find("2097153 bytes; allowed is up to 2097152"), std::string::npos) << status.text();
    EXPECT_EQ(read_status_page(folder / "status")->document, full);
}

TEST(StatusPage, Writer_stopped_in_the_middle_leaves_the_previous_document_readable) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();  // publication 1, copy 1
    ASSERT_TRUE(writer.publish("older", now()).is_ok());                  // 2, copy 0
    ASSERT_TRUE(writer.publish("newer", now()).is_ok());                  // 3, copy 1
    const auto newer = status_copy_offset(1, kStatusCapacityBytes);
    patch_value(folder / "status", newer, std::uint64_t{7});  // odd: being written
    EXPECT_EQ(read_status_page(folder / "status")->document, "older");
}

TEST(StatusPage, Copy_whose_bytes_do_not_match_its_checksum_is_passed_over) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    ASSERT_TRUE(writer.publish("older", now()).is_ok());
    ASSERT_TRUE(writer.publish("newer", now()).is_ok());
    const auto newer = status_copy_offset(1, kStatusCapacityBytes);
    patch(folder / "status", newer + kStatusCopyHeadBytes, as_bytes("N"));
    EXPECT_EQ(read_status_page(folder / "status")->document, "older");
    patch_value(folder / "status", status_copy_offset(0, kStatusCapacityBytes) + 8, UINT64_MAX);  // its length
    const auto status = read_status_page(folder / "status").status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_NE(status.text().find("neither copy"), std::string::npos) << status.text();
}

TEST(StatusPage, Reader_beside_a_writer_that_never_rests_sees_only_whole_documents_in_order) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    const auto document_of = [](unsigned number) {
        return std::to_string(number) + ":" + std::string(number % 7000, static_cast<char>('a' + number % 26));
    };
    ASSERT_TRUE(writer.publish(document_of(0), now()).is_ok());
    std::atomic<bool> is_done{false};
    std::thread publisher([&] {
        for (unsigned number = 1; !is_done.load(std::memory_order_relaxed); ++number) {
            if (!writer.publish(document_of(number), now()).is_ok()) return;
        }
    });
    unsigned last = 0;
    int whole = 0;
    for (int read = 0; read < 2000; ++read) {
        const auto snapshot = read_status_page(folder / "status");
        if (!snapshot.is_ok()) continue;  // overtaken thrice in a row: said, not garbled
        const auto number = static_cast<unsigned>(std::stoul(snapshot->document));
        ASSERT_EQ(snapshot->document, document_of(number));
        ASSERT_GE(number, last);
        last = number;
        ++whole;
    }
    is_done.store(true, std::memory_order_relaxed);
    publisher.join();
    EXPECT_GT(whole, 0);
}

TEST(StatusPage, Clean_stop_is_told_from_death) {
    TempFolder folder;
    {
        auto writer = StatusPageWriter::make(folder / "status", "").value();
        ASSERT_TRUE(writer.publish("last words", now()).is_ok());
        writer.set_stopped();
    }
    const auto snapshot = read_status_page(folder / "status").value();
    EXPECT_EQ(snapshot.health, DaemonHealth::kStopped);
    EXPECT_EQ(snapshot.document, "last words");
}

/// A child that publishes, says so through `event`, and then only waits.
int publish_and_wait(const std::string& path, int event) {
    auto writer = StatusPageWriter::make(path, "");
    if (!writer.is_ok() || !writer->publish("from the child", now()).is_ok()) return 1;
    const std::uint64_t one = 1;
    if (::write(event, &one, sizeof(one)) != sizeof(one)) return 2;
    for (;;) ::pause();
}

TEST(StatusPage, Stopped_process_is_hung_and_a_killed_one_dead_even_before_it_is_reaped) {
    TempFolder folder;
    const auto path = folder / "status";
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const UniqueFd heard(ends[0]);
    const UniqueFd said(ends[1]);
    Child child([&] { return publish_and_wait(path, said.get()); });
    ASSERT_TRUE(becomes_readable(heard.get()));
    EXPECT_EQ(read_status_page(path)->health, DaemonHealth::kLive);
    ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child.pid(), &status, WUNTRACED), child.pid());
    const auto hung = read_status_page(path, Duration::zero()).value();
    EXPECT_EQ(hung.health, DaemonHealth::kHung);
    EXPECT_EQ(hung.pid, child.pid());
    EXPECT_EQ(hung.document, "from the child") << "a stopped daemon still answers";
    child.kill_now();
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(read_status_page(path)->health, DaemonHealth::kDead) << "a zombie";
    EXPECT_EQ(child.wait_exit(), 128 + SIGKILL);
    const auto dead = read_status_page(path).value();
    EXPECT_EQ(dead.health, DaemonHealth::kDead);
    EXPECT_EQ(dead.document, "from the child");
}

TEST(StatusPage, Silent_process_is_hung_after_the_threshold) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    writer.beat(now() - std::chrono::seconds(4));
    const auto snapshot = read_status_page(folder / "status").value();
    EXPECT_EQ(snapshot.health, DaemonHealth::kHung);
    EXPECT_GE(snapshot.heartbeat_age_seconds, 4.0);
    writer.beat(now());
    EXPECT_EQ(read_status_page(folder / "status")->health, DaemonHealth::kLive);
}

TEST(StatusPage, Other_process_with_the_same_pid_does_not_count_as_the_daemon) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    patch_value(folder / "status", 16, std::uint64_t{1});  // start time
    EXPECT_EQ(read_status_page(folder / "status")->health, DaemonHealth::kDead);
}

TEST(StatusPage, Page_from_before_a_reboot_is_dead) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    patch_value(folder / "status", 24, std::uint64_t{1});  // boot hash
    EXPECT_EQ(read_status_page(folder / "status")->health, DaemonHealth::kLive)
        << "this very process, with a fresh heartbeat: a hardened service in a container reads another boot id";
    patch_value(folder / "status", 16, std::uint64_t{1});  // start time
    EXPECT_EQ(read_status_page(folder / "status")->health, DaemonHealth::kDead);
}

TEST(StatusPage, From_another_pid_namespace_the_heartbeat_alone_decides) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    patch_value(folder / "status", 12, std::uint32_t{0x7FFFFFFF});  // a pid that is nobody's
    EXPECT_EQ(read_status_page(folder / "status")->health, DaemonHealth::kDead);
    patch_value(folder / "status", 32, std::uint64_t{1});  // PID namespace
    EXPECT_EQ(read_status_page(folder / "status")->health, DaemonHealth::kLive);
    EXPECT_EQ(read_status_page(folder / "status", Duration::zero())->health, DaemonHealth::kHung);
}

TEST(StatusPage, Restarted_daemon_replaces_the_page_while_an_old_reader_keeps_its_file) {
    TempFolder folder;
    auto first = StatusPageWriter::make(folder / "status", "").value();
    ASSERT_TRUE(first.publish("first", now()).is_ok());
    std::ofstream(folder / "status.new") << "left by a crash";
    auto second = StatusPageWriter::make(folder / "status", "");
    ASSERT_TRUE(second.is_ok()) << second.status().to_string();
    ASSERT_TRUE(second->publish("second", now()).is_ok());
    ASSERT_TRUE(first.publish("too late", now()).is_ok());
    EXPECT_EQ(read_status_page(folder / "status")->document, "second");
}

TEST(StatusPage, Missing_page_is_not_found_and_says_how_to_start) {
    TempFolder folder;
    const auto status = read_status_page(folder / "status").status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(status.text().find("systemctl start gradsieved"), std::string::npos) << status.text();
}

TEST(StatusPage, Other_version_is_named_with_both_numbers) {
    TempFolder folder;
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    patch_value(folder / "status", 8, std::uint32_t{9});
    const auto status = read_status_page(folder / "status").status();
    EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
    EXPECT_NE(status.text().find("version 9; this program reads version 1"), std::string::npos) << status.text();
}

TEST(StatusPage, Garbage_truncated_and_special_files_are_corrupt_and_never_block) {
    TempFolder folder;
    std::ofstream(folder / "garbage") << "not a page at all";
    EXPECT_EQ(read_status_page(folder / "garbage").status().code(), StatusCode::kCorrupt);
    std::ofstream(folder / "empty").flush();
    EXPECT_EQ(read_status_page(folder / "empty").status().code(), StatusCode::kCorrupt);
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(read_status_page(folder / "pipe").status().code(), StatusCode::kCorrupt);
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    ASSERT_EQ(::truncate((folder / "status").c_str(), 5000), 0);
    EXPECT_EQ(read_status_page(folder / "status").status().code(), StatusCode::kCorrupt);
    EXPECT_TRUE(writer.publish("the writer lives on", now()).is_ok()) << "no SIGBUS";
    EXPECT_EQ(read_status_page(folder / "status")->document, "the writer lives on");
    patch_value(folder / "status", 40, UINT64_MAX);  // capacity
    EXPECT_EQ(read_status_page(folder / "status").status().code(), StatusCode::kCorrupt);
}

TEST(StatusPage, Unreadable_page_is_permission_denied_and_names_the_group) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    TempFolder folder;
    ASSERT_EQ(::chmod((folder / "").c_str(), 0755), 0);
    auto writer = StatusPageWriter::make(folder / "status", "").value();
    Child child([&] {
        if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 2;
        const auto status = read_status_page(folder / "status").status();
        const bool names_group = status.text().find("join the group 'root'") != std::string::npos;
        return status.code() == StatusCode::kPermissionDenied && names_group ? 0 : 1;
    });
    EXPECT_EQ(child.wait_exit(), 0);
}

TEST(StatusPage, Folder_that_does_not_exist_or_unknown_group_is_refused_in_words) {
    TempFolder folder;
    const auto no_folder = StatusPageWriter::make(folder / "none/status", "").status();
    EXPECT_EQ(no_folder.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(no_folder.text().find("existing folder"), std::string::npos) << no_folder.text();
    EXPECT_EQ(StatusPageWriter::make(folder / "status", "no-such-group-here").status().code(), StatusCode::kNotFound);
    EXPECT_TRUE(std::filesystem::is_empty(folder / "")) << "nothing half-made stays";
}

}  // namespace
}  // namespace gradsieve::shm
