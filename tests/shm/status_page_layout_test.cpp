#include "shm/status_page_layout.hpp"

#include "tests/shm/golden_bytes.hpp"

#include <gtest/gtest.h>

namespace gradsieve::shm {
namespace {

TEST(StatusPageLayout, Header_has_its_golden_bytes) {
    StatusPageHeader header;
    header.pid = 4711;
    header.start_ticks = 0x0102030405060708;
    header.boot_hash = 0x1112131415161718;
    header.pid_namespace = 0x2122232425262728;
    header.heartbeat_ns = 0x3132333435363738;
    header.state = StatusPageState::kStopped;
    const auto bytes = build_status_header(header);
    EXPECT_EQ(bytes.size(), 4096U);
    EXPECT_EQ(hex_of(ByteView(bytes).first(80)),
              "4753565354415400"
              "01000000"
              "67120000"  // "GSVSTAT", version, pid
              "0807060504030201"
              "1817161514131211"
              "2827262524232221"
              "0000200000000000"
              "00000000000000000000000000000000"
              "3837363534333231"
              "02000000"
              "00000000");
    const auto seen = parse_status_header(bytes);
    EXPECT_EQ(seen.pid, 4711U);
    EXPECT_EQ(seen.start_ticks, header.start_ticks);
    EXPECT_EQ(seen.boot_hash, header.boot_hash);
    EXPECT_EQ(seen.pid_namespace, header.pid_namespace);
    EXPECT_EQ(seen.capacity_bytes, kStatusCapacityBytes);
    EXPECT_EQ(seen.heartbeat_ns, header.heartbeat_ns);
    EXPECT_EQ(seen.state, StatusPageState::kStopped);
}

TEST(StatusPageLayout, Copy_head_has_its_golden_bytes) {
    const auto bytes = build_status_copy_head({0x0102030405060708, 5, 0x1112131415161718});
    EXPECT_EQ(bytes.size(), 64U);
    EXPECT_EQ(hex_of(ByteView(bytes).first(32)),
              "0807060504030201"
              "0500000000000000"
              "1817161514131211"
              "0000000000000000");
    EXPECT_EQ(parse_status_copy_head(bytes).length_bytes, 5U);
}

TEST(StatusPageLayout, Checksum_is_xxh3_of_the_document_seeded_with_the_sequence) {
    // XXH3_64bits of nothing with seed 0, as published with the algorithm.
    EXPECT_EQ(status_checksum(0, {}), 0x2D06800538D394C2ULL);
    EXPECT_NE(status_checksum(2, as_bytes("a")), status_checksum(4, as_bytes("a")));
    EXPECT_NE(status_checksum(2, as_bytes("a")), status_checksum(2, as_bytes("b")));
}

TEST(StatusPageLayout, Copies_stand_behind_the_header_one_after_the_other) {
    EXPECT_EQ(status_copy_offset(0, 1000), 4096U);
    EXPECT_EQ(status_copy_offset(1, 1000), 5160U);
    EXPECT_EQ(status_file_bytes(1000), 6224U);
}

}  // namespace
}  // namespace gradsieve::shm
