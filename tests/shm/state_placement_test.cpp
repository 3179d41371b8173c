// Where arrays on GPUs lie: what is written is read back, and nothing else is believed.
#include "shm/state_placement.hpp"

#include "tests/shm/state_testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace gradsieve::shm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(StatePlacement, Everything_that_is_written_is_read_back) {
    const auto placement = small_placement();
    const auto text = build_placement(placement);
    const auto parsed = parse_placement(text, gpu_table());
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().to_string();
    EXPECT_EQ(parsed->parts, placement.parts);
    EXPECT_EQ(parsed->tensors, placement.tensors);
    EXPECT_LE(kPlacementHeadBytes + text.size(), placement_room_bytes(gpu_table(), 2));
}
TEST(StatePlacement, Layouts_compare_gpus_and_places_but_not_keys) {
    const auto placement = small_placement();
    auto other = small_placement();
    other.parts[0].key = 99;
    EXPECT_TRUE(placement.is_laid_out_like(other));
    other.tensors[1][1].offset_bytes[0][1] += 256;
    EXPECT_FALSE(placement.is_laid_out_like(other));
    other = small_placement();
    std::swap(other.parts[0], other.parts[1]);
    EXPECT_FALSE(placement.is_laid_out_like(other));
}
TEST(StatePlacement, The_room_holds_the_widest_numbers) {
    auto table = gpu_table();
    StatePlacement placement;
    for (int gpu = 0; gpu < 8; ++gpu)
        placement.parts.push_back({std::string(63, static_cast<char>('a' + gpu)), kDevicePageBytes, ~std::uint64_t{0}});
    placement.tensors.resize(table.tensors.size());
    for (std::size_t number = 0; number < 2; ++number)
        for (std::uint32_t gpu = 0; gpu < 8; ++gpu) {
            StatePiece piece{gpu, ~std::uint64_t{0}, ~std::uint64_t{0}, {}};
            piece.offset_bytes.resize(table.tensors[number].arrays.size());
            placement.tensors[number].push_back(piece);
        }
    EXPECT_LE(kPlacementHeadBytes + build_placement(placement).size(), placement_room_bytes(table, 8));
}
TEST(StatePlacement, Every_truncation_is_refused) {
    const auto text = build_placement(small_placement());
    for (std::size_t count = 0; count < text.size(); ++count)
        EXPECT_EQ(parse_placement(ByteView(text).first(count), gpu_table()).status().code(), StatusCode::kCorrupt)
            << count;
}
TEST(StatePlacement, One_that_lies_is_refused_by_name) {
    const auto refused = [](const std::function<void(StatePlacement&)>& change, const std::string& part) {
        auto placement = small_placement();
        change(placement);
        const auto status = parse_placement(build_placement(placement), gpu_table()).status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << part;
        EXPECT_THAT(status.text(), AllOf(HasSubstr(part), HasSubstr(": allowed is "), HasSubstr("it is dropped")));
    };
    refused([](auto& one) { one.parts[1].gpu = "GPU-aa"; }, "part 1 on GPU 'GPU-aa'");
    refused([](auto& one) { one.parts[0].gpu = "a:b"; }, "part 1 on GPU 'a:b'");
    refused([](auto& one) { one.parts[0].gpu.clear(); }, "part 1 on GPU ''");
    refused([](auto& one) { one.parts[0].bytes += 1; }, "bytes on GPU GPU-aa: allowed is whole pages of 2097152");
    refused([](auto& one) { one.parts[0].bytes = 0; }, "0 bytes on GPU GPU-aa");
    refused([](auto& one) { one.tensors[1][1].part = 2; },
            "tensor 'b' from element 1000 in part 2: allowed is below 2");
    refused([](auto& one) { one.tensors[1][1].first = 999; }, "tensor 'b' with elements from 999 after 1000");
    refused([](auto& one) { one.tensors[1][1].elements = 1001; }, "tensor 'b' with elements from 1000");
    refused([](auto& one) { one.tensors[1].pop_back(); },
            "tensor 'b' with 1000 elements on GPUs: allowed is all of its 2000");
    refused([](auto& one) { one.tensors[0][0].offset_bytes[0][0] = 0; }, "tensor 'a' from element 0 at byte 0");
    refused([](auto& one) { one.tensors[0][0].offset_bytes[0][0] = 300; }, "multiples of 256");
    refused([](auto& one) { one.tensors[0][0].offset_bytes[0][0] = kDevicePageBytes; }, "multiples of 256 within");
    refused([](auto& one) { one.tensors[0][0].offset_bytes[0][0] = ~std::uint64_t{255}; }, "multiples of 256 within");
    refused([](auto& one) { one.tensors[0][0].offset_bytes[1][0] = 1024; }, "that reach into one another");
    refused([](auto& one) { one.parts.clear(); }, "a placement");
}
TEST(StatePlacement, Of_an_array_on_the_host_it_says_nothing) {
    auto table = gpu_table();
    table.tensors[1].arrays.push_back({.name = "factor", .part = kHostPart, .bytes = 40});
    auto placement = small_placement();
    for (auto& piece : placement.tensors[1]) piece.offset_bytes.push_back({0, 0});
    const auto parsed = parse_placement(build_placement(placement), table);
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().to_string();
    EXPECT_EQ(parsed->tensors, placement.tensors);
    placement.tensors[1][1].offset_bytes[1][0] = 256;
    EXPECT_THAT(parse_placement(build_placement(placement), table).status().text(),
                HasSubstr("array 'factor' of tensor 'b' from element 1000 at byte 256 on GPU GPU-bb: allowed is 0"));
}
TEST(StatePlacement, Random_bytes_never_crash_and_never_lie_outside) {
    const auto seed = std::random_device()();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto table = gpu_table();
    const auto good = build_placement(small_placement());
    for (int round = 0; round < 5000; ++round) {
        auto text = good;
        for (int flips = 0; flips < 3; ++flips) text[random() % text.size()] = static_cast<std::byte>(random());
        const auto parsed = parse_placement(text, table);
        if (!parsed.is_ok()) continue;
        for (const auto& pieces : parsed->tensors)
            for (const auto& piece : pieces)
                for (const auto& offsets : piece.offset_bytes)
                    for (const auto offset : offsets)
                        ASSERT_LE(offset + piece.elements * sizeof(float), parsed->parts[piece.part].bytes);
    }
}
TEST(StatePlacement, A_part_is_known_by_what_it_begins_with) {
    const auto placement = small_placement();
    const auto mark = device_part_mark(placement, 1);
    EXPECT_TRUE(check_device_part(placement, 1, mark).is_ok());
    EXPECT_THAT(check_device_part(placement, 0, mark).text(), HasSubstr("memory on GPU GPU-aa"));
    for (std::size_t word = 0; word < mark.size(); ++word) {
        auto other = mark;
        other[word] ^= 1;
        EXPECT_EQ(check_device_part(placement, 1, other).code(), StatusCode::kCorrupt) << word;
    }
}

}  // namespace
}  // namespace gradsieve::shm
