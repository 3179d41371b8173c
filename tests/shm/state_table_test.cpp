// The constant part of a state segment: what is written is read back, and nothing else is believed.
#include "shm/state_table.hpp"

#include "shm/state_placement.hpp"
#include "tests/shm/state_testing.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

namespace gradsieve::shm {
namespace {

constexpr std::uint64_t kInode = 4711;

struct Image {
    StateTable table = small_table();
    StateLayout layout;
    Bytes bytes;

    explicit Image(const std::function<void(StateTable&)>& change = nullptr) {
        layout = lay_out_state(table).value();
        if (change) change(table);  // after the layout: a table that lies about itself, with a checksum that fits
        const auto table_bytes = build_state_table(table, layout, kInode).size();
        layout.words_offset = (table_bytes + 63) / 64 * 64;
        bytes = build_state_table(table, layout, kInode);
        bytes.resize(std::max<std::size_t>(bytes.size(), layout.segment_bytes));
        set(56, kStateReady);
    }
    void set(std::size_t offset, std::uint64_t value) { std::memcpy(bytes.data() + offset, &value, sizeof(value)); }
    [[nodiscard]] Status parse() const { return parse_state_table(bytes, kInode).status(); }
};
bool has(const Status& status, const std::string& part) { return status.text().find(part) != std::string::npos; }

TEST(StateTable, Everything_that_is_written_is_read_back) {
    const Image image;
    const auto parsed = parse_state_table(image.bytes, kInode);
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().to_string();
    const auto& table = parsed->table;
    EXPECT_EQ(table.job_name, "resnet");
    EXPECT_EQ(table.run_id, "seven");
    EXPECT_EQ(table.owner, 1000U);
    EXPECT_EQ(table.world_size, 70U);
    EXPECT_EQ(table.spec, image.table.spec);
    EXPECT_EQ(table.groups, image.table.groups);
    ASSERT_EQ(table.tensors.size(), 3U);
    EXPECT_EQ(table.tensors[1].codec, "topk");
    EXPECT_EQ(table.tensors[0].arrays[1].name, "variance");
    EXPECT_EQ(table.tensors[0].arrays[1].offset_bytes, image.table.tensors[0].arrays[1].offset_bytes);
    EXPECT_EQ(table.tensors[2].elements, 5U);
    EXPECT_EQ(parsed->layout.segment_bytes, image.layout.segment_bytes);
    EXPECT_EQ(parsed->layout.words_offset, image.layout.words_offset);
    ASSERT_EQ(table.parts.size(), 1U);
    EXPECT_EQ(table.parts[0].bytes, image.layout.segment_bytes);
}
TEST(StateTable, Only_arrays_behind_the_first_may_be_of_another_size_and_by_whole_numbers) {
    const auto parsed_with = [](std::size_t array, ByteCount bytes) {
        return Image([&](StateTable& table) { table.tensors[0].arrays[array].bytes = bytes; }).parse();
    };
    const ByteCount whole = small_table().tensors[0].elements * sizeof(float);
    EXPECT_TRUE(parsed_with(1, whole - 4).is_ok());
    EXPECT_TRUE(parsed_with(1, 4).is_ok());
    const ByteCount most = 2 * whole + (ByteCount{64} << 10U);
    EXPECT_TRUE(parsed_with(1, whole + 4).is_ok());
    auto tensor = small_table().tensors[0];
    tensor.arrays[1].bytes = most;
    EXPECT_TRUE(has_sound_size(tensor, tensor.arrays[1]));
    for (const auto& [array, bytes] : {std::pair<std::size_t, ByteCount>{0, whole - 4},
                                       {0, whole + 4},
                                       {0, 0},
                                       {1, most + 4},
                                       {1, whole - 2},
                                       {1, 0}})
        EXPECT_TRUE(has(parsed_with(array, bytes), "4 for each of its")) << array << ' ' << bytes;
}
TEST(StateTable, Arrays_take_whole_pages_behind_the_header_in_two_generations) {
    const Image image;
    // header | a: r v r' v' (a page each) | b: r (2 pages) r' (2 pages)
    const auto begin = image.layout.header_bytes;
    EXPECT_EQ(begin % kStateAlignBytes, 0U);
    EXPECT_EQ(image.table.tensors[0].arrays[0].offset_bytes[0], begin);
    EXPECT_EQ(image.table.tensors[0].arrays[1].offset_bytes[0], begin + 4096);
    EXPECT_EQ(image.table.tensors[0].arrays[0].offset_bytes[1], begin + 8192);
    EXPECT_EQ(image.table.tensors[1].arrays[0].offset_bytes[1], begin + 4 * 4096 + 8192);
    EXPECT_EQ(image.layout.segment_bytes, begin + 4 * 4096 + 2 * 8192);
}
TEST(StateTable, The_head_is_the_pages_bytes) {
    const Image image;
    const auto word = [&](std::size_t offset) {
        std::uint64_t value = 0;
        std::memcpy(&value, image.bytes.data() + offset, sizeof(value));
        return value;
    };
    EXPECT_EQ(std::memcmp(image.bytes.data(), "GSVSTAT", 8), 0);
    EXPECT_EQ(word(8), 1U | (1ULL << 32U)) << "version 1, ABI 1";
    EXPECT_EQ(word(16), kInode);
    EXPECT_EQ(word(24), image.layout.constant_bytes);
    EXPECT_EQ(word(32), image.layout.words_offset);
    EXPECT_EQ(word(40), image.layout.segment_bytes);
    EXPECT_EQ(std::memcmp(image.bytes.data() + 64, "\6resnet\5seven", 13), 0);
}
TEST(StateTable, Every_truncation_is_refused) {
    const Image image;
    for (std::size_t count = 0; count < image.bytes.size(); count += count < 600 ? 1 : 511)
        EXPECT_EQ(parse_state_table(ByteView(image.bytes).first(count), kInode).status().code(), StatusCode::kCorrupt)
            << count;
}
TEST(StateTable, Every_flipped_bit_of_head_and_table_is_refused) {
    Image image;
    for (std::size_t byte = 0; byte < kStateHeadBytes + image.layout.constant_bytes; ++byte)
        for (unsigned bit = 0; bit < 8; ++bit) {
            image.bytes[byte] ^= static_cast<std::byte>(1U << bit);
            EXPECT_FALSE(image.parse().is_ok()) << "byte " << byte << " bit " << bit;
            image.bytes[byte] ^= static_cast<std::byte>(1U << bit);
        }
    EXPECT_TRUE(image.parse().is_ok());
}
TEST(StateTable, Another_version_is_named_with_ours) {
    Image image;
    image.set(8, 9 | (1ULL << 32U));
    EXPECT_EQ(image.parse().code(), StatusCode::kVersionMismatch);
    EXPECT_TRUE(has(image.parse(), "format 9.1: this daemon reads 1.1; it is dropped, and the job begins anew"))
        << image.parse().text();
}
TEST(StateTable, An_unfinished_segment_and_a_copy_of_another_are_refused_by_name) {
    Image image;
    image.set(56, 0);
    EXPECT_TRUE(has(image.parse(), "no ready mark: allowed is a segment that was finished"));
    EXPECT_TRUE(has(parse_state_table(Image().bytes, 5).status(), "inode 4711 in the head: allowed is 5"));
}
TEST(StateTable, A_table_that_lies_with_a_good_checksum_is_refused_by_name) {
    const auto said = [](const std::function<void(StateTable&)>& change) { return Image(change).parse(); };
    const auto refused = [&](const std::function<void(StateTable&)>& change, const std::string& part) {
        const auto status = said(change);
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << part;
        EXPECT_TRUE(has(status, part)) << status.text();
        EXPECT_TRUE(has(status, ": allowed is ") && has(status, "it is dropped")) << status.text();
    };
    const auto array = [](StateTable& table) -> StateArray& { return table.tensors[1].arrays[0]; };
    refused([&](auto& table) { array(table).offset_bytes[0] = 0; }, "array 'residual' of tensor 'b' at byte 0");
    refused([&](auto& table) { array(table).offset_bytes[1] += 1; }, "whole pages between");
    refused([&](auto& table) { array(table).offset_bytes[1] = ~std::uint64_t{4095}; }, "whole pages between");
    refused([&](auto& table) { array(table).offset_bytes[1] = table.parts[0].bytes; }, "whole pages between");
    refused([&](auto& table) { array(table).offset_bytes[1] = array(table).offset_bytes[0]; },
            "where another one lies");
    refused([&](auto& table) { array(table).offset_bytes[1] = array(table).offset_bytes[0] + 4096; },
            "that reach into one another");
    refused([&](auto& table) { array(table).bytes = 8004; },
            "of 8004 bytes: allowed is 4 for each of its 2000 elements");
    refused([&](auto& table) { table.tensors[1].elements = ~std::uint64_t{0} / 2; }, "4 for each of its");
    refused([&](auto& table) { array(table).part = 1; }, "in part 1: allowed is one that the table has");
    refused([&](auto& table) { table.tensors[0].group = 2; }, "tensor 'a' in group 2: allowed is below 2");
    refused([&](auto& table) { table.tensors[1].name = "a"; }, "tensor 'a' after 'a'");
    refused([&](auto& table) { table.world_size = 0; }, "world size 0: allowed is 1 to 65535");
    refused([&](auto& table) { table.world_size = 65'536; }, "world size 65536");
    refused([&](auto& table) { table.parts[0].bytes += 4096; }, "by its table");
    refused([&](auto& table) { table.parts.clear(); }, "0 parts");
    refused([&](auto& table) { table.parts.push_back({.place = StatePlace::kDevice, .bytes = 4097, .label = {}}); },
            "2 parts, the second of 4097 bytes");
    refused([&](auto& table) { table.parts.push_back({.place = StatePlace::kHost, .bytes = 4096, .label = {}}); },
            "2 parts");
    refused(
        [&](auto& table) {
            table.parts.push_back({.place = StatePlace::kDevice, .bytes = ~std::uint64_t{63}, .label = {}});
        },
        "2 parts");
    refused([&](auto& table) { table.job_name.clear(); }, "an empty job name");
}
TEST(StateTable, Arrays_on_gpus_take_no_pages_but_room_for_where_they_lie) {
    auto table = small_table();
    for (auto& array : table.tensors[1].arrays) array.part = kDevicesPart;
    const auto layout = lay_out_state(table, 4).value();
    ASSERT_EQ(table.parts.size(), 2U);
    EXPECT_EQ(table.parts[1].place, StatePlace::kDevice);
    EXPECT_EQ(table.parts[1].bytes, placement_room_bytes(table, 4));
    EXPECT_EQ(layout.placement_room_bytes, table.parts[1].bytes);
    EXPECT_EQ(layout.placement_offset % 64, 0U);
    EXPECT_GE(layout.header_bytes, layout.placement_offset + layout.placement_room_bytes);
    EXPECT_EQ(table.tensors[1].arrays[0].offset_bytes[1], 0U);
    EXPECT_EQ(layout.segment_bytes, layout.header_bytes + 4 * 4096) << "tensor a alone";
    auto bytes = build_state_table(table, layout, kInode);
    bytes.resize(layout.segment_bytes);
    std::memcpy(bytes.data() + 56, &kStateReady, sizeof(kStateReady));
    const auto parsed = parse_state_table(bytes, kInode);
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().to_string();
    EXPECT_TRUE(is_on_devices(parsed->table.tensors[1]));
    EXPECT_FALSE(is_on_devices(parsed->table.tensors[0]));
    EXPECT_EQ(parsed->layout.placement_offset, layout.placement_offset);
    EXPECT_EQ(parsed->layout.placement_room_bytes, layout.placement_room_bytes);
}
TEST(StateTable, An_array_that_is_shorter_lies_on_the_host_beside_others_on_gpus) {
    auto table = small_table();
    for (auto& array : table.tensors[1].arrays) array.part = kDevicesPart;
    table.tensors[1].arrays.push_back({.name = "factor", .part = kHostPart, .bytes = 40});
    const auto layout = lay_out_state(table, 4).value();
    const auto& factor = table.tensors[1].arrays.back();
    EXPECT_EQ(factor.offset_bytes[1], factor.offset_bytes[0] + 4096);
    EXPECT_EQ(layout.segment_bytes, layout.header_bytes + (4 + 2) * 4096) << "tensor a and the factor";
    const auto parsed_of = [&](const StateTable& changed) {
        auto bytes = build_state_table(changed, layout, kInode);
        bytes.resize(layout.segment_bytes);
        std::memcpy(bytes.data() + 56, &kStateReady, sizeof(kStateReady));
        return parse_state_table(bytes, kInode);
    };
    const auto parsed = parsed_of(table);
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().to_string();
    EXPECT_TRUE(is_on_devices(parsed->table.tensors[1]));
    EXPECT_FALSE(is_on_devices(parsed->table.tensors[1].arrays.back()));
    auto other = table;
    other.tensors[1].arrays.back().part = kDevicesPart;
    EXPECT_TRUE(has(parsed_of(other).status(), "of 40 bytes: allowed is 4 for each of its"));
    other = table;
    other.tensors[1].arrays.front().part = kHostPart;
    EXPECT_FALSE(parsed_of(other).is_ok()) << "behind a first array on the host none is on GPUs";
}
TEST(StateTable, Random_bytes_with_a_good_checksum_never_crash) {
    const auto seed = std::random_device()();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Image good;
    for (int round = 0; round < 2000; ++round) {
        auto image = good;
        for (int flips = 0; flips < 3; ++flips) {
            const auto at = kStateHeadBytes + random() % image.layout.constant_bytes;
            image.bytes[at] = static_cast<std::byte>(random());
        }
        // The checksum as an attacker would set it: over the first 48 bytes and the table.
        Bytes hashed(image.bytes.begin(), image.bytes.begin() + 48);
        const auto begin = image.bytes.begin() + 64;
        hashed.insert(hashed.end(), begin, begin + static_cast<std::ptrdiff_t>(image.layout.constant_bytes));
        image.set(48, state_checksum(hashed));
        const auto parsed = parse_state_table(image.bytes, kInode);
        if (!parsed.is_ok()) continue;
        for (const auto& tensor : parsed->table.tensors)
            for (const auto& array : tensor.arrays)
                for (const auto offset : array.offset_bytes) ASSERT_LE(offset + array.bytes, image.bytes.size());
    }
}
TEST(StateTable, Sizes_that_overflow_cannot_be_laid_out) {
    auto table = small_table();
    table.tensors[0].arrays[0].bytes = ~std::uint64_t{0} - 100;
    EXPECT_EQ(lay_out_state(table).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gradsieve::shm
