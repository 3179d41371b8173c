#include "daemon/host_only.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradsieve::daemon {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

shm::AttachRequest request_of(const std::string& codec, std::vector<shm::TensorEntry> tensors) {
    shm::AttachRequest request;
    request.job_name = "demo";
    request.codec = codec;
    request.tensors = std::move(tensors);
    return request;
}

TEST(HostOnly, Are_scopes_of_which_some_tensors_lie_on_the_host_by_index_in_the_request) {
    const std::vector<shm::TensorEntry> tensors{
        {.name = "z", .group = "one", .shape = {64, 64}, .on_device = true},
        {.name = "y", .group = "one", .shape = {64, 64}},
        {.name = "x", .group = "two", .shape = {64, 64}, .on_device = true},
        {.name = "w", .group = "one", .shape = {64, 64}, .on_device = true},
        {.name = "alone", .group = "one", .shape = {64, 64}, .on_device = true}};
    const std::string codec = "topk(0.5, scope=model); alone: topk(0.25, scope=model)";
    const auto found = find_host_only({}, request_of(codec, tensors));
    EXPECT_THAT(found.tensors, ElementsAre(0, 3));
    EXPECT_THAT(
        found.refusal.to_string(),
        AllOf(HasSubstr("invalid-argument: tensor 'w': topk(scope=model) with tensors in host memory on a device"),
              HasSubstr("let all tensors that it selects from lie on devices, or use scope=tensor")))
        << "the first by name";
    auto on_devices = tensors;
    on_devices[1].on_device = true;
    EXPECT_TRUE(find_host_only({}, request_of(codec, on_devices)).tensors.empty());
}
TEST(HostOnly, Are_what_averages_of_the_sharded_plan_are_sent_by) {
    Config config;
    config.nodes = {{"a", "192.0.2.1"}, {"b", "192.0.2.2"}};
    config.plan = "sharded";
    const auto found =
        find_host_only(config, request_of("topk(0.01)", {{.name = "w", .shape = {64, 64}, .on_device = true}}));
    EXPECT_THAT(found.tensors, ElementsAre(0));
    EXPECT_THAT(found.refusal.text(), AllOf(HasSubstr("the sharded plan on a device"), HasSubstr("set codec.plan to")));
}
TEST(HostOnly, Are_none_in_host_memory_with_other_codecs_and_in_one_that_is_in_error) {
    const std::vector<shm::TensorEntry> on_host{{.name = "w", .shape = {64, 64}, .staged = true}};
    const std::vector<shm::TensorEntry> on_device{{.name = "w", .shape = {64, 64}, .on_device = true}};
    for (const auto& found : {find_host_only({}, request_of("topk(0.5, scope=model)", on_host)),
                              find_host_only({}, request_of("topk(0.01)", on_device)),
                              find_host_only({}, request_of("topk(0.5, scope=model)", on_device)),
                              find_host_only({}, request_of("similarity | topk(0.01)", on_device)),
                              find_host_only({}, request_of("similarity(skip=0.5) | all | sign", on_device)),
                              find_host_only({}, request_of("rotate | all | sign", on_device)),
                              find_host_only({}, request_of("momentum(clip=2) | all | integer(100)", on_device)),
                              find_host_only({}, request_of("lowrank(2)", on_device)),
                              find_host_only({}, request_of("delta | topk(0.5)", on_device)),
                              find_host_only({}, request_of("sketch(0.02)", on_device)),
                              find_host_only({}, request_of("lowrank(", on_device))}) {
        EXPECT_TRUE(found.tensors.empty());
        EXPECT_TRUE(found.refusal.is_ok());
    }
}

}  // namespace
}  // namespace gradsieve::daemon
