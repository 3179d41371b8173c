#include "client/options.hpp"

#include "environment.hpp"
#include "shm/message.hpp"

#include <gmock/gmock.h>

namespace gradsieve::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Options : public ::testing::Test {
protected:
    Options() {
        environment_.clear_all();
        options_.name = "resnet";
        options_.rank = 1;
        options_.world_size = 4;
    }
    Status refusal() {
        const auto resolved = resolve_options(options_);
        EXPECT_FALSE(resolved.is_ok());
        return resolved.status();
    }
    test::Environment environment_;
    JobOptions options_;
};

TEST_F(Options, Given_values_are_taken_over) {
    options_.run_id = "seven";
    options_.codec = "all | f32";
    options_.socket_path = "/tmp/x.sock";
    options_.non_finite = NonFinite::kZero;
    const auto resolved = resolve_options(options_);
    ASSERT_TRUE(resolved.is_ok()) << resolved.status().to_string();
    EXPECT_EQ(resolved->label(), "job 'resnet' (run 'seven', rank 1 of 4)");
    EXPECT_EQ(resolved->codec, "all | f32");
    EXPECT_EQ(resolved->socket_path, "/tmp/x.sock");
    EXPECT_EQ(resolved->non_finite, NonFinite::kZero);
}
TEST_F(Options, Empty_run_id_falls_back_to_default) { EXPECT_EQ(resolve_options(options_)->run_id, "default"); }
TEST_F(Options, Run_id_comes_from_the_launchers_in_their_order) {
    environment_.set("SLURM_JOB_ID", "slurm");
    EXPECT_EQ(resolve_options(options_)->run_id, "slurm");
    environment_.set("TORCHELASTIC_RUN_ID", "elastic");
    EXPECT_EQ(resolve_options(options_)->run_id, "elastic");
    environment_.set("GRADSIEVE_RUN_ID", "own");
    EXPECT_EQ(resolve_options(options_)->run_id, "own");
    environment_.set("GRADSIEVE_RUN_ID", "");  // set but empty = not set
    EXPECT_EQ(resolve_options(options_)->run_id, "elastic");
}
TEST_F(Options, Ranks_come_from_the_launchers_in_their_order) {
    options_.rank = options_.world_size = -1;
    environment_.set("OMPI_COMM_WORLD_RANK", "5");
    environment_.set("OMPI_COMM_WORLD_SIZE", "8");
    EXPECT_EQ(resolve_options(options_)->label(), "job 'resnet' (run 'default', rank 5 of 8)");
    environment_.set("SLURM_PROCID", "6");
    environment_.set("SLURM_NTASKS", "16");
    EXPECT_EQ(resolve_options(options_)->label(), "job 'resnet' (run 'default', rank 6 of 16)");
    environment_.set("RANK", "7");
    environment_.set("WORLD_SIZE", "32");
    EXPECT_EQ(resolve_options(options_)->label(), "job 'resnet' (run 'default', rank 7 of 32)");
}
TEST_F(Options, Codec_and_socket_come_from_the_environment) {
    environment_.set("GRADSIEVE_CODEC", "all | f32");
    environment_.set("GRADSIEVE_SOCKET", "/tmp/y.sock");
    EXPECT_EQ(resolve_options(options_)->codec, "all | f32");
    EXPECT_EQ(resolve_options(options_)->socket_path, "/tmp/y.sock");
    options_.codec = "all | sign";
    EXPECT_EQ(resolve_options(options_)->codec, "all | sign");
}
TEST_F(Options, Cuda_driver_is_the_systems_unless_the_environment_names_another) {
    EXPECT_EQ(resolve_options(options_)->cuda_driver, "libcuda.so.1");
    environment_.set("GRADSIEVE_CUDA_DRIVER", "/opt/libcuda.so.1");
    EXPECT_EQ(resolve_options(options_)->cuda_driver, "/opt/libcuda.so.1");
}
TEST_F(Options, Requirement_comes_from_the_option_or_the_environment_and_is_one_of_one) {
    EXPECT_FALSE(resolve_options(options_)->requires_cuda_ipc);
    environment_.set("GRADSIEVE_REQUIRE", "cuda-ipc");
    EXPECT_TRUE(resolve_options(options_)->requires_cuda_ipc);
    environment_.set("GRADSIEVE_REQUIRE", "speed");
    EXPECT_THAT(refusal().text(), HasSubstr("$GRADSIEVE_REQUIRE is 'speed': allowed is 'cuda-ipc'"));
    options_.require = "cuda-ipc";
    EXPECT_TRUE(resolve_options(options_)->requires_cuda_ipc) << "the option comes first";
    options_.require = "cuda";
    EXPECT_EQ(refusal().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("JobOptions.require is 'cuda'"), HasSubstr("correct it")));
}
TEST_F(Options, Missing_rank_names_option_and_variables) {
    options_.rank = -1;
    const auto status = refusal();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(),
                AllOf(HasSubstr("JobOptions.rank is not set"), HasSubstr("$RANK, $SLURM_PROCID, $OMPI_COMM_WORLD_RANK"),
                      HasSubstr("set the option or start")));
}
TEST_F(Options, Nonsense_in_a_variable_is_named_with_its_value) {
    options_.world_size = -1;
    for (const char* value : {"four", "4x", "-4", "4294967296", " 4"}) {
        environment_.set("WORLD_SIZE", value);
        const auto status = refusal();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(status.text(), AllOf(HasSubstr("$WORLD_SIZE is '" + std::string(value) + "'"),
                                         HasSubstr("allowed is"), HasSubstr("JobOptions.world_size")));
    }
}
TEST_F(Options, Rank_outside_the_world_is_refused_naming_both) {
    options_.rank = 4;
    EXPECT_THAT(refusal().text(),
                AllOf(HasSubstr("JobOptions.rank is 4"), HasSubstr("0 .. 3"), HasSubstr("JobOptions.world_size is 4")));
    options_.rank = 3;
    EXPECT_TRUE(resolve_options(options_).is_ok());
}
TEST_F(Options, World_size_zero_and_beyond_the_limit_are_refused) {
    options_.rank = 0;
    options_.world_size = 0;
    EXPECT_THAT(refusal().text(), HasSubstr("JobOptions.world_size is 0"));
    options_.world_size = shm::kWorldSizeLimit;
    EXPECT_TRUE(resolve_options(options_).is_ok());
    options_.world_size = std::int64_t{shm::kWorldSizeLimit} + 1;
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("65536"), HasSubstr("65535")));
}
TEST_F(Options, Negative_rank_other_than_minus_one_is_refused) {
    options_.rank = -2;
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("JobOptions.rank is -2"), HasSubstr("-1 to read $RANK")));
}
TEST_F(Options, Empty_too_long_and_unprintable_names_are_refused) {
    options_.name.clear();
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("JobOptions.name is empty"), HasSubstr("1 .. 512 bytes")));
    options_.name = std::string(513, 'n');
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("513 bytes"), HasSubstr("shorten")));
    options_.name = std::string(512, 'n');
    EXPECT_TRUE(resolve_options(options_).is_ok());
    options_.name = "line\nbreak";
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("JobOptions.name"), HasSubstr("printable UTF-8")));
    options_.name = "caf\xc3\xa9";
    EXPECT_TRUE(resolve_options(options_).is_ok());
    options_.name = "caf\xe9";
    EXPECT_THAT(refusal().text(), HasSubstr("printable UTF-8"));
}
TEST_F(Options, Too_long_codec_is_refused) {
    options_.codec = std::string(shm::kCodecLimitBytes + 1, 'c');
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("codec"), HasSubstr("4096")));
}
TEST_F(Options, Unknown_non_finite_policy_is_refused) {
    options_.non_finite = static_cast<NonFinite>(3);
    EXPECT_THAT(refusal().text(), AllOf(HasSubstr("non_finite is 3"), HasSubstr("2 (zero)")));
}

}  // namespace
}  // namespace gradsieve::client
