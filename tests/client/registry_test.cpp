#include "client/registry.hpp"

#include <gmock/gmock.h>

#include <array>

namespace gradsieve::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::array<std::uint64_t, 2> kShape{3, 5};

TEST(Registry, Indices_follow_the_order_of_registration) {
    Registry registry;
    EXPECT_EQ(registry.add("b", kShape, {}).value(), 0U);
    EXPECT_EQ(registry.add("a", kShape, {.samples_max = 4, .has_second_moment = true}).value(), 1U);
    ASSERT_EQ(registry.tensors().size(), 2U);
    EXPECT_EQ(registry.tensors()[1].name, "a");
    EXPECT_EQ(registry.tensors()[1].samples_max, 4U);
    EXPECT_TRUE(registry.tensors()[1].has_second_moment);
    EXPECT_EQ(registry.tensors()[1].shape, (std::vector<std::uint64_t>{3, 5}));
}
TEST(Registry, Tensors_are_on_a_device_if_asked_and_if_they_have_elements) {
    Registry registry;
    const std::array<std::uint64_t, 2> empty{0, 4};
    ASSERT_TRUE(registry.add("host", kShape, {}).is_ok());
    ASSERT_TRUE(registry.add("device", kShape, {.on_device = true}).is_ok());
    ASSERT_TRUE(registry.add("empty", empty, {.on_device = true}).is_ok());
    EXPECT_FALSE(registry.tensors()[0].on_device);
    EXPECT_TRUE(registry.tensors()[1].on_device);
    EXPECT_FALSE(registry.tensors()[2].on_device);
}
TEST(Registry, Groups_are_found_by_name_and_led_by_their_first_tensor) {
    Registry registry;
    for (const auto& [name, group] : {std::pair{"d1", "disc"}, {"g1", "gen"}, {"d2", "disc"}, {"g2", "gen"}})
        ASSERT_TRUE(registry.add(name, kShape, {.group = group}).is_ok());
    ASSERT_EQ(registry.groups().size(), 2U);
    EXPECT_EQ(registry.groups()[*registry.find_group("gen")].first_tensor, 1U);
    EXPECT_EQ(registry.group_of(3), *registry.find_group("gen"));
    EXPECT_EQ(registry.group_of(2), *registry.find_group("disc"));
    EXPECT_FALSE(registry.find_group(""));
    EXPECT_EQ(registry.group_list(), "'disc', 'gen'");
}
TEST(Registry, Same_name_twice_is_refused_even_across_groups) {
    Registry registry;
    ASSERT_TRUE(registry.add("w", kShape, {}).is_ok());
    const auto status = registry.add("w", kShape, {.group = "other"}).status();
    EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w' is registered already"), HasSubstr("rename")));
    EXPECT_EQ(registry.groups().size(), 1U) << "a refused tensor leaves nothing behind";
}
TEST(Registry, Bad_names_and_samples_are_refused) {
    Registry registry;
    EXPECT_THAT(registry.add("", kShape, {}).status().text(), HasSubstr("name is empty"));
    EXPECT_THAT(registry.add("w", kShape, {.samples_max = 0}).status().text(),
                AllOf(HasSubstr("samples_max is 0"), HasSubstr("1 .. 256")));
    EXPECT_THAT(registry.add("w", kShape, {.samples_max = 257}).status().text(), HasSubstr("samples_max is 257"));
    EXPECT_THAT(registry.add("w", kShape, {.group = "a\tb"}).status().text(),
                AllOf(HasSubstr("group"), HasSubstr("printable")));
    EXPECT_TRUE(registry.add("w", kShape, {.samples_max = 256}).is_ok());
}
TEST(Registry, Scalar_empty_and_overflowing_shapes) {
    Registry registry;
    EXPECT_TRUE(registry.add("scalar", {}, {}).is_ok());
    EXPECT_EQ(registry.tensors()[0].elements(), 1U);
    const std::array<std::uint64_t, 3> empty{std::uint64_t{1} << 40U, 0, std::uint64_t{1} << 40U};
    EXPECT_TRUE(registry.add("empty", empty, {}).is_ok());
    EXPECT_EQ(registry.tensors()[1].elements(), 0U);
    const std::array<std::uint64_t, 2> huge{std::uint64_t{1} << 40U, std::uint64_t{1} << 40U};
    const auto status = registry.add("huge", huge, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("[1099511627776, 1099511627776]"), HasSubstr("check the shape")));
}
TEST(Registry, Slices_count_towards_the_size) {
    Registry registry;
    const std::array<std::uint64_t, 1> large{std::uint64_t{1} << 60U};
    EXPECT_TRUE(registry.add("one", large, {}).is_ok());
    EXPECT_FALSE(registry.add("two", large, {.samples_max = 2}).is_ok());
    EXPECT_FALSE(registry.add("moment", large, {.samples_max = 1, .has_second_moment = true}).is_ok());
}
TEST(Registry, More_dimensions_than_the_limit_are_refused) {
    Registry registry;
    const std::vector<std::uint64_t> shape(shm::kDimensionLimit + 1, 1);
    EXPECT_THAT(registry.add("w", shape, {}).status().text(), AllOf(HasSubstr("33 dimensions"), HasSubstr("32")));
    EXPECT_TRUE(registry.add("w", std::span(shape).first(shm::kDimensionLimit), {}).is_ok());
}
TEST(Registry, More_tensors_than_the_limit_are_refused) {
    Registry registry;
    for (std::uint32_t number = 0; number < shm::kTensorLimit; ++number)
        ASSERT_TRUE(registry.add("t" + std::to_string(number), {}, {}).is_ok());
    const auto status = registry.add("one too many", {}, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.text(), HasSubstr("65536"));
}

}  // namespace
}  // namespace gradsieve::client
