#include "exchange/job_spec.hpp"

#include <gtest/gtest.h>

#include <random>

namespace gradsieve::exchange {
namespace {

JobSpec example() {
    return {.world_size = 4,
            .non_finite_policy = 1,
            .codec = "topk | pow2",
            .tensors = {{.name = "a", .group = "", .shape = {10}, .rule = "all | bf16"},
                        {.name = "fc.weight", .group = "g", .shape = {10, 128}, .rule = "topk | pow2"}}};
}

TEST(JobSpec, Built_bytes_parse_to_the_same) {
    const auto parsed = parse_job_spec(build_job_spec(example()));
    ASSERT_TRUE(parsed.is_ok()) << parsed.error().text();
    EXPECT_EQ(*parsed, example());
    EXPECT_EQ(parsed->tensors[1].elements(), 1280U);
}
TEST(JobSpec, Every_truncation_and_one_byte_more_is_refused) {
    auto bytes = build_job_spec(example());
    for (std::size_t count = 0; count < bytes.size(); ++count)
        EXPECT_EQ(parse_job_spec(ByteView(bytes).first(count)).status().code(), StatusCode::kCorrupt) << count;
    bytes.push_back(std::byte{0});
    EXPECT_EQ(parse_job_spec(bytes).status().code(), StatusCode::kCorrupt);
}
TEST(JobSpec, Mutated_bytes_never_crash_and_stay_within_the_limits) {
    const auto good = build_job_spec(example());
    std::mt19937_64 random(7);
    for (int round = 0; round < 20000; ++round) {
        auto bytes = good;
        for (int flips = 0; flips < 3; ++flips) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        if (const auto parsed = parse_job_spec(bytes); parsed.is_ok()) {
            EXPECT_LE(parsed->tensors.size(), bytes.size());
            EXPECT_GE(parsed->world_size, 1U);
            EXPECT_LE(parsed->world_size, kWorldSizeLimit);
        }
    }
}
TEST(JobSpec, Refusals_name_what_is_wrong) {
    auto spec = example();
    spec.world_size = 0;
    EXPECT_NE(parse_job_spec(build_job_spec(spec)).status().text().find("world size 0: allowed is 1 to 65536"),
              std::string::npos);
    spec = example();
    std::swap(spec.tensors[0], spec.tensors[1]);
    EXPECT_NE(parse_job_spec(build_job_spec(spec)).status().text().find("'a' stands after 'fc.weight'"),
              std::string::npos);
    spec = example();
    spec.tensors[0].shape = {1ULL << 40U, 1ULL << 40U};
    EXPECT_NE(parse_job_spec(build_job_spec(spec)).status().text().find("overflows"), std::string::npos);
    spec = example();
    spec.non_finite_policy = 3;
    EXPECT_NE(parse_job_spec(build_job_spec(spec)).status().text().find("non-finite policy 3"), std::string::npos);
    auto bytes = build_job_spec(example());
    bytes[0] = std::byte{2};
    EXPECT_NE(parse_job_spec(bytes).status().text().find("format 2: allowed is 1"), std::string::npos);
}
TEST(FirstDifference, Equal_specs_have_none) {
    EXPECT_EQ(first_difference(example(), "node a", example(), "node b"), "");
}
TEST(FirstDifference, Names_the_first_difference_on_both_sides) {
    auto other = example();
    other.tensors[1].shape = {10, 256};
    EXPECT_EQ(first_difference(example(), "node a", other, "node b"),
              "tensor 'fc.weight': shape [10, 128] on node a, [10, 256] on node b");
    other = example();
    other.tensors[0].group = "h";
    EXPECT_EQ(first_difference(example(), "node a", other, "node b"), "tensor 'a': group '' on node a, 'h' on node b");
    other = example();
    other.tensors[0].rule = "all | f32";
    EXPECT_EQ(first_difference(example(), "node a", other, "node b"),
              "tensor 'a': codec 'all | bf16' on node a, 'all | f32' on node b");
    other = example();
    other.world_size = 8;
    EXPECT_EQ(first_difference(example(), "rank 0", other, "rank 1"), "world size: 4 on rank 0, 8 on rank 1");
    other = example();
    other.codec = "all";
    EXPECT_EQ(first_difference(example(), "node a", other, "node b"),
              "codec: 'topk | pow2' on node a, 'all' on node b");
    other = example();
    other.tensors.erase(other.tensors.begin());
    EXPECT_EQ(first_difference(example(), "node a", other, "node b"),
              "tensor 'a': registered on node a, missing on node b");
    EXPECT_EQ(first_difference(other, "node a", example(), "node b"),
              "tensor 'a': registered on node b, missing on node a");
}

}  // namespace
}  // namespace gradsieve::exchange
