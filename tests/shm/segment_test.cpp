#include "shm/segment.hpp"

#include "tests/shm/shm_test_support.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

namespace gradsieve::shm {
namespace {

constexpr ByteCount kBytes = 3 * 4096;

int seals_of(const Segment& segment) { return ::fcntl(segment.fd(), F_GET_SEALS); }

/// The errno of a mapping that must fail; 0 if it succeeds.
int map_error(int fd, int protection, int flags) {
    void* const address = ::mmap(nullptr, kBytes, protection, flags, fd, 0);
    if (address == MAP_FAILED) return errno;
    ::munmap(address, kBytes);
    return 0;
}

TEST(Segment, Pages_are_committed_zero_and_written_through_to_a_second_mapping) {
    auto segment = Segment::make("test", kBytes, Sharing::kPeerWrites).value();
    struct stat seen {};
    ASSERT_EQ(::fstat(segment.fd(), &seen), 0);
    EXPECT_EQ(seen.st_size, static_cast<off_t>(kBytes));
    EXPECT_GE(seen.st_blocks * 512, static_cast<off_t>(kBytes));
    for (const auto byte : segment.bytes()) ASSERT_EQ(byte, std::byte{0});
    auto other = Segment::adopt(duplicate(segment.fd()), kBytes, Access::kReadWrite, true).value();
    segment.bytes()[kBytes - 1] = std::byte{42};
    EXPECT_EQ(other.bytes()[kBytes - 1], std::byte{42});
    EXPECT_EQ(segment.size_bytes(), kBytes);
    EXPECT_EQ(::fcntl(segment.fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Segment, Peer_that_may_only_read_can_neither_map_nor_write_nor_punch_it) {
    auto segment = Segment::make("test", kBytes, Sharing::kPeerReads).value();
    EXPECT_EQ(map_error(segment.fd(), PROT_READ | PROT_WRITE, MAP_SHARED), EPERM);
    EXPECT_EQ(map_error(segment.fd(), PROT_READ, MAP_SHARED), 0);
    EXPECT_EQ(::pwrite(segment.fd(), "x", 1, 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::fallocate(segment.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    EXPECT_EQ(::fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "sealed against more seals";
    auto reader = Segment::adopt(duplicate(segment.fd()), kBytes, Access::kReadOnly, true).value();
    segment.bytes()[7] = std::byte{9};
    EXPECT_EQ(std::as_const(reader).bytes()[7], std::byte{9}) << "the maker's own mapping still writes";
    EXPECT_EQ(::mprotect(reader.bytes().data(), kBytes, PROT_READ | PROT_WRITE), -1);
}

TEST(Segment, Adopting_a_read_only_segment_for_writing_is_refused) {
    auto segment = Segment::make("test", kBytes, Sharing::kPeerReads).value();
    EXPECT_FALSE(Segment::adopt(duplicate(segment.fd()), kBytes, Access::kReadWrite, true).is_ok());
}

TEST(Segment, Nobody_can_truncate_or_grow_what_a_peer_maps) {
    for (const auto sharing : {Sharing::kPeerWrites, Sharing::kPeerReads}) {
        auto segment = Segment::make("test", kBytes, sharing).value();
        EXPECT_EQ(::ftruncate(segment.fd(), 0), -1);
        EXPECT_EQ(errno, EPERM);
        EXPECT_EQ(::ftruncate(segment.fd(), 1 << 20), -1);
        EXPECT_NE(seals_of(segment) & F_SEAL_SEAL, 0);
    }
}

TEST(Segment, Private_segment_may_grow_and_be_adopted_again_but_not_shrink) {
    auto segment = Segment::make("state", kBytes, Sharing::kPrivate).value();
    EXPECT_EQ(::ftruncate(segment.fd(), 2 * kBytes), 0);
    EXPECT_EQ(::ftruncate(segment.fd(), 0), -1);
    auto again = Segment::adopt(duplicate(segment.fd()), 2 * kBytes, Access::kReadWrite, true);
    EXPECT_TRUE(again.is_ok()) << again.status().to_string();
}

TEST(Segment, Zero_bytes_are_refused_by_make_and_adopt) {
    const auto status = Segment::make("test", 0, Sharing::kPrivate).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    auto segment = Segment::make("test", kBytes, Sharing::kPrivate).value();
    EXPECT_EQ(Segment::adopt(duplicate(segment.fd()), 0, Access::kReadOnly, true).status().code(),
              StatusCode::kCorrupt);
}

TEST(Segment, More_than_there_is_is_refused_with_bytes_reason_and_advice) {
    const auto status = Segment::make("job-gradient", ByteCount{1} << 44U, Sharing::kPeerWrites).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    for (const auto* part : {"job-gradient", "17592186044416 bytes asked", "bytes can be had", "register fewer"}) {
        EXPECT_NE(status.text().find(part), std::string::npos) << part << " in " << status.text();
    }
}

TEST(Segment, Resource_limit_is_an_error_in_words_and_no_signal) {
    Child child([] {
        const rlimit limit{1 << 20, 1 << 20};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
        const auto status = Segment::make("test", 2 << 20, Sharing::kPeerWrites).status();
        const bool names_limit = status.text().find("RLIMIT_FSIZE") != std::string::npos;
        return status.code() == StatusCode::kResourceExhausted && names_limit ? 0 : 1;
    });
    EXPECT_EQ(child.wait_exit(), 0) << "SIGXFSZ would be 128 + 25";
}

TEST(Segment, Without_descriptors_make_says_which_limit_to_raise) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the sanitizer's own look at a vptr opens a pipe, which this test forbids";
#endif
    Child child([] {
        const rlimit limit{3, 3};
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
        const auto status = Segment::make("test", kBytes, Sharing::kPeerWrites).status();
        const bool names_limit = status.text().find("LimitNOFILE=") != std::string::npos;
        return status.code() == StatusCode::kResourceExhausted && names_limit ? 0 : 1;
    });
    EXPECT_EQ(child.wait_exit(), 0);
}

TEST(Segment, Adopting_the_wrong_size_is_corrupt_and_names_both) {
    auto segment = Segment::make("test", kBytes, Sharing::kPeerWrites).value();
    for (const ByteCount announced : {kBytes - 1, kBytes + 1, ByteCount{1} << 60U}) {
        const auto status = Segment::adopt(duplicate(segment.fd()), announced, Access::kReadWrite, true).status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt);
        EXPECT_NE(status.text().find("12288 bytes; allowed is " + std::to_string(announced)), std::string::npos)
            << status.text();
    }
}

TEST(Segment, Adopting_what_could_be_truncated_is_corrupt) {
    const UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
    TempFolder folder;
    std::ofstream(folder / "file") << std::string(kBytes, 'x');
    const UniqueFd file(::open((folder / "file").c_str(), O_RDWR | O_CLOEXEC));
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const UniqueFd pipe(ends[0]);
    const UniqueFd other_end(ends[1]);
    for (const int fd : {unsealed.get(), file.get(), pipe.get()}) {
        EXPECT_EQ(Segment::adopt(duplicate(fd), kBytes, Access::kReadWrite, true).status().code(),
                  StatusCode::kCorrupt);
    }
    EXPECT_EQ(Segment::adopt(UniqueFd(), kBytes, Access::kReadWrite, true).status().code(), StatusCode::kCorrupt);
}

/// True if this process can read the page at `address`: asks the kernel, so that nothing faults.
bool is_mapped(const void* address) {
    unsigned char page = 0;
    return ::mincore(const_cast<void*>(address), 1, &page) == 0;
}

TEST(Segment, Forked_child_does_not_see_an_adopted_segment_that_hides_from_forks) {
    auto segment = Segment::make("test", kBytes, Sharing::kPeerWrites).value();
    auto hidden = Segment::adopt(duplicate(segment.fd()), kBytes, Access::kReadWrite, false).value();
    auto visible = Segment::adopt(duplicate(segment.fd()), kBytes, Access::kReadWrite, true).value();
    ASSERT_TRUE(is_mapped(hidden.bytes().data()));
    Child child([&] {
        if (!is_mapped(visible.bytes().data())) return 2;
        return is_mapped(hidden.bytes().data()) ? 1 : 0;
    });
    EXPECT_EQ(child.wait_exit(), 0);
}

TEST(Segment, Mapping_and_descriptor_go_with_the_object) {
    const auto before = open_descriptors();
    const void* address = nullptr;
    {
        auto segment = Segment::make("test", kBytes, Sharing::kPeerWrites).value();
        auto moved = std::move(segment);
        address = moved.bytes().data();
        EXPECT_TRUE(is_mapped(address));
        EXPECT_EQ(open_descriptors(), before + 1);
    }
    EXPECT_FALSE(is_mapped(address));
    EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace gradsieve::shm
