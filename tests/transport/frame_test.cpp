#include "transport/frame.hpp"

#include "transport_testing.hpp"

#include <random>

namespace gradsieve::transport {
namespace {

using namespace testing;  // NOLINT: the folder's own helpers

// Golden bytes, made by a Python script from docs/wire-format.md with xxhsum -H3 0.8.1 as the hash.
constexpr std::string_view kGoldenUser =
    "475301003412000009000000080706050403020118171615141312110ac7717c27abe392677261647369657665";
constexpr std::string_view kGoldenEmpty = "47530100100000000000000000000000000000000000000000000000db66a4962ae7ebe2";
constexpr std::uint64_t kGoldenLongChecksum = 0x0303179453389889ULL;

Bytes built(const FrameHeader& header, const std::vector<SharedView>& parts) {
    const auto head = build_frame_header(header, parts);
    Bytes bytes(head.begin(), head.end());
    for (const auto& part : parts) bytes.insert(bytes.end(), part.bytes().begin(), part.bytes().end());
    return bytes;
}

Result<FrameHeader> parsed(ByteView bytes, ByteCount limit_bytes = 1000) {
    return parse_frame(bytes, bytes.subspan(std::min(bytes.size(), kFrameHeaderBytes)), limit_bytes);
}

const FrameHeader kUserHeader{0x1234, 0x0102030405060708ULL, 0x1112131415161718ULL};

TEST(Frame, Built_bytes_are_the_golden_ones) {
    EXPECT_EQ(hex_of(built(kUserHeader, {make_body("gradsieve")})), kGoldenUser);
    EXPECT_EQ(hex_of(built({16, 0, 0}, {})), kGoldenEmpty);
}
TEST(Frame, How_the_body_is_cut_does_not_show_in_the_bytes) {
    EXPECT_EQ(hex_of(built(kUserHeader, {make_body("gr"), make_body(""), make_body("adsieve")})), kGoldenUser);
}
TEST(Frame, Checksum_of_a_long_body_is_the_golden_one) {
    const auto head = build_frame_header({20, 1, 2}, std::vector{make_body(70000, 9)});
    ByteReader reader(ByteView(head).subspan(28));
    EXPECT_EQ(reader.read<std::uint64_t>(), kGoldenLongChecksum);
}
TEST(Frame, Golden_bytes_parse) {
    const auto header = parsed(bytes_of(kGoldenUser));
    ASSERT_TRUE(header.is_ok()) << header.status().to_string();
    EXPECT_EQ(header->type, kUserHeader.type);
    EXPECT_EQ(header->epoch, kUserHeader.epoch);
    EXPECT_EQ(header->step, kUserHeader.step);
    EXPECT_TRUE(parsed(bytes_of(kGoldenEmpty)).is_ok());
}
TEST(Frame, Every_single_flipped_bit_is_refused) {
    const auto golden = bytes_of(kGoldenUser);
    for (std::size_t bit = 0; bit < golden.size() * 8; ++bit) {
        auto damaged = golden;
        damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        EXPECT_FALSE(parsed(damaged).is_ok()) << "bit " << bit;
    }
}
TEST(Frame, Every_truncation_and_any_longer_body_is_refused) {
    const auto golden = bytes_of(kGoldenUser);
    for (std::size_t bytes = 0; bytes < golden.size(); ++bytes) {
        EXPECT_FALSE(parsed(ByteView(golden).first(bytes)).is_ok()) << bytes;
    }
    auto longer = golden;
    longer.push_back(std::byte{0});
    EXPECT_EQ(parsed(longer).status().text(), "frame body of 10 bytes: its header says 9; nothing was taken from it");
}
TEST(Frame, Refusals_say_what_was_seen_and_what_is_allowed) {
    auto bytes = bytes_of(kGoldenUser);
    EXPECT_EQ(parsed(ByteView(bytes).first(35)).status().to_string(),
              "corrupt: message of 35 bytes: a frame has at least 36; is the sender a gradsieve node?");
    EXPECT_EQ(parsed(bytes, 8).status().to_string(),
              "resource-exhausted: frame body of 9 bytes: the limit is 8; give all nodes the same frame limit");
    bytes[40] ^= std::byte{1};
    EXPECT_EQ(parsed(bytes).status().to_string(),
              "corrupt: frame of type 4660 and 9 bytes: its checksum differs, it was damaged on the way; nothing was "
              "taken from it");
    bytes[0] = std::byte{'H'};
    EXPECT_EQ(parsed(bytes).status().to_string(),
              "corrupt: frame magic 0x5348: expected 0x5347; is the sender a gradsieve node?");
}
TEST(Frame, Another_major_is_refused_with_both_versions_in_words) {
    auto bytes = bytes_of(kGoldenEmpty);
    bytes[2] = std::byte{2};
    bytes[3] = std::byte{7};
    EXPECT_EQ(parsed(bytes).status().to_string(),
              "version-mismatch: frame format 2.7 from the sender: this node reads 1.0; install the same release on "
              "all nodes");
}
TEST(Frame, A_later_minor_and_unknown_flags_are_read) {
    auto bytes = bytes_of(kGoldenEmpty);
    bytes[3] = std::byte{9};
    bytes[6] = std::byte{0x80};
    Bytes hashed(bytes.begin(), bytes.begin() + 28);
    const auto checksum = checksum_of(hashed);
    std::memcpy(bytes.data() + 28, &checksum, sizeof checksum);
    EXPECT_TRUE(parsed(bytes).is_ok()) << parsed(bytes).status().to_string();
}
TEST(Frame, Random_bytes_are_refused_and_nothing_is_read_beyond_them) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int round = 0; round < 2000; ++round) {
        Bytes bytes(random() % 80);
        for (auto& byte : bytes) byte = static_cast<std::byte>(random());
        // Half of the rounds get past magic and version.
        const auto golden = bytes_of(kGoldenEmpty);
        if (round % 2 == 0) std::copy_n(golden.begin(), std::min<std::size_t>(bytes.size(), 4), bytes.begin());
        EXPECT_FALSE(parsed(bytes).is_ok());
    }
}

}  // namespace
}  // namespace gradsieve::transport
