#include "daemon/codec_choice.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

shm::TensorEntry entry(const std::string& name, std::vector<std::uint64_t> shape, std::uint32_t samples_max = 1) {
    shm::TensorEntry made;
    made.name = name;
    made.shape = std::move(shape);
    made.samples_max = samples_max;
    return made;
}
Config two_nodes() {
    Config config;
    config.nodes = {{"a", "10.0.0.1", 7077}, {"b", "10.0.0.2", 7077}};
    return config;
}
std::string text_of(const codec::Pipeline& pipeline) { return codec::canonical_text(pipeline, codec::Knobs::kKeep); }
std::string canonical(std::string_view text) { return text_of(*codec::parse_pipeline(text)); }

const std::vector<shm::TensorEntry> kModel{entry("a.bias", {256}), entry("a.weight", {1000, 784}),
                                           entry("b.bias", {10}), entry("b.weight", {10, 256})};

TEST(CodecChoice, Client_goes_before_configuration_before_default) {
    auto config = two_nodes();
    config.codec = "all | bf16";
    EXPECT_EQ(choose_codecs(config, "all | sign", kModel)->origin, "client");
    EXPECT_EQ(choose_codecs(config, "", kModel)->text, canonical("all | bf16"));
    EXPECT_EQ(choose_codecs(config, "", kModel)->origin, "configuration");
    EXPECT_EQ(choose_codecs(two_nodes(), "", kModel)->origin, "default");
}
TEST(CodecChoice, Default_is_one_codec_however_many_samples_a_step_brings) {
    EXPECT_EQ(choose_codecs(two_nodes(), "", kModel)->text, canonical(kDefaultCodec));
    const std::vector<shm::TensorEntry> sampled{entry("w", {1000, 784}, 2)};
    EXPECT_EQ(choose_codecs(two_nodes(), "", sampled)->text, canonical(kDefaultCodec));
}
TEST(CodecChoice, Single_node_compresses_only_if_asked_by_name) {
    EXPECT_EQ(choose_codecs(Config{}, "", kModel)->text, canonical("all | f32"));
    EXPECT_EQ(choose_codecs(Config{}, "topk(0.1)", kModel)->text, canonical("topk(0.1)"));
}
TEST(CodecChoice, A_budget_behind_the_codec_is_part_of_the_text_and_of_nothing_else) {
    const auto choice = choose_codecs(two_nodes(), "topk(0.01) | pow2(bits=4); budget_bytes_per_step = 5000", kModel);
    ASSERT_TRUE(choice.is_ok()) << choice.error().to_string();
    EXPECT_EQ(choice->budget, (Budget{.bytes_per_step = 5000}));
    EXPECT_EQ(choice->text, canonical("topk(0.01) | pow2(bits=4)") + "; budget_bytes_per_step = 5000");
    EXPECT_EQ(choose_codecs(two_nodes(), choice->text, kModel)->text, choice->text);
    EXPECT_EQ(text_of(choice->main), canonical("topk(0.01) | pow2(bits=4)"));
}
TEST(CodecChoice, A_budget_that_nothing_could_meet_is_refused) {
    const auto refusal = [](const Config& config, const std::string& text) {
        return choose_codecs(config, text, kModel).status().to_string();
    };
    EXPECT_THAT(refusal(two_nodes(), "lowrank(2); budget_ms_per_step = 3"),
                testing::HasSubstr("codec of the client: budget with codec 'lowrank("));
    EXPECT_EQ(refusal(two_nodes(), "all | f32; *.weight: topk(0.1); budget_ms_per_step = 3"), "ok");
    EXPECT_THAT(refusal(two_nodes(), "topk(0.1); budget_ms = 3"),
                testing::HasSubstr("codec of the client: budget 'budget_ms = 3': allowed is"));
    auto sharded = two_nodes();
    sharded.plan = "sharded";
    EXPECT_THAT(refusal(sharded, "topk(0.1); budget_bytes_per_step = 3"),
                testing::HasSubstr("budget_bytes_per_step = 3 under plan = \"sharded\": allowed is plan = \"gather\""));
}
TEST(CodecChoice, Plain_codec_covers_small_tensors_too) {
    const auto choice = choose_codecs(two_nodes(), "all | f32", kModel);
    for (const auto& pipeline : choice->pipelines) EXPECT_EQ(text_of(pipeline), canonical("all | f32"));
}
TEST(CodecChoice, Small_tensors_travel_apart_while_they_take_a_tenth_of_the_bytes) {
    const auto choice = choose_codecs(two_nodes(), "topk(0.01) | pow2(bits=4)", kModel);
    EXPECT_EQ(text_of(choice->pipelines[0]), canonical("all | bf16")) << "256 elements of one dimension";
    EXPECT_EQ(text_of(choice->pipelines[1]), canonical("topk(0.01) | pow2(bits=4)")) << "the large one";
    EXPECT_EQ(text_of(choice->pipelines[2]), canonical("all | bf16"));
    EXPECT_EQ(text_of(choice->pipelines[3]), canonical("topk(0.01) | pow2(bits=4)")) << "2,560 elements are not small";
}
TEST(CodecChoice, Small_tensors_have_the_codec_s_momentum) {
    auto config = two_nodes();
    EXPECT_EQ(text_of(choose_codecs(config, "momentum(0.5) | topk(0.01) | pow2", kModel)->pipelines[0]),
              canonical("momentum(0.5) | all | bf16"));
    config.small_codec = "momentum(0.9) | all | f16";
    EXPECT_EQ(text_of(choose_codecs(config, "momentum(0.5) | topk(0.01) | pow2", kModel)->pipelines[0]),
              canonical("momentum(0.9) | all | f16"));
    config.small_codec = "variance | f32";
    EXPECT_EQ(text_of(choose_codecs(config, "momentum(0.5) | topk(0.01) | pow2", kModel)->pipelines[0]),
              canonical("variance | f32"));
}
TEST(CodecChoice, Small_tensors_are_not_rotated) {
    Config config;
    EXPECT_EQ(text_of(choose_codecs(config, "momentum(0.5) | rotate | all | sign", kModel)->pipelines[0]),
              canonical("momentum(0.5) | all | bf16"));
    config.small_codec = "rotate | all | f16";
    EXPECT_EQ(text_of(choose_codecs(config, "rotate | all | sign", kModel)->pipelines[0]),
              config.small_codec + " | auto");
}
TEST(CodecChoice, Small_tensors_are_sent_themselves_and_not_their_differences) {
    Config config;
    EXPECT_EQ(text_of(choose_codecs(config, "momentum(0.5) | delta | topk(0.01)", kModel)->pipelines[0]),
              canonical("momentum(0.5) | all | bf16"));
    config.small_codec = "all | f32";
    EXPECT_EQ(text_of(choose_codecs(config, "delta | topk(0.01)", kModel)->pipelines[0]), canonical("all | f32"));
    config.small_codec = "delta | all | f16";
    EXPECT_EQ(text_of(choose_codecs(config, "delta | topk(0.01)", kModel)->pipelines[0]),
              canonical("delta | all | f16"));
}
TEST(CodecChoice, Small_tensors_are_compensated_as_the_codec_is) {
    auto config = two_nodes();
    const std::string codec = "compensate(0.5, 0.25) | topk(0.01) | pow2";
    EXPECT_EQ(text_of(choose_codecs(config, codec, kModel)->pipelines[0]),
              canonical("compensate(0.5, 0.25) | all | bf16"));
    config.small_codec = "all | f32";
    EXPECT_EQ(text_of(choose_codecs(config, codec, kModel)->pipelines[0]), canonical("compensate(1, 0.25) | all | f32"))
        << "without a residual there is nothing for beta";
    config.small_codec = "compensate(0.9) | all | bf16";
    EXPECT_EQ(text_of(choose_codecs(config, codec, kModel)->pipelines[0]), canonical("compensate(0.9) | all | bf16"));
}
TEST(CodecChoice, Small_tensors_wait_as_the_codec_does_where_they_can) {
    auto config = two_nodes();
    const std::string codec = "compensate(lowpass=0.5) | accumulate(4) | topk(0.01) | pow2";
    EXPECT_EQ(text_of(choose_codecs(config, codec, kModel)->pipelines[0]),
              canonical("compensate(lowpass=0.5) | accumulate(4) | all | bf16"));
    config.small_codec = "all | f32";
    config.small_share = 1;  // sent at every step, they are more than a tenth of what a quarter of the steps sends
    EXPECT_EQ(text_of(choose_codecs(config, codec, kModel)->pipelines[0]), canonical("all | f32"))
        << "without a residual nothing can wait, and nothing is filtered";
    config.small_codec = "variance | f32";
    EXPECT_EQ(text_of(choose_codecs(config, codec, kModel)->pipelines[0]), canonical("accumulate(4) | variance | f32"));
    const auto plain = codec::parse_pipeline("topk(0.01) | pow2");
    const auto waiting = codec::parse_pipeline("accumulate(4) | topk(0.01) | pow2");
    EXPECT_DOUBLE_EQ(estimated_bits_per_element(*waiting, 5000), estimated_bits_per_element(*plain, 5000) / 4);
}
TEST(CodecChoice, Small_tensors_have_no_warm_up) {
    const auto choice = choose_codecs(two_nodes(), "momentum | warmup(500) | topk(0.01) | pow2", kModel);
    EXPECT_EQ(text_of(choice->pipelines[0]), canonical("momentum | all | bf16")) << "all of them is sent";
    const auto warm = codec::parse_pipeline("warmup(500) | topk(0.01) | pow2");
    const auto plain = codec::parse_pipeline("topk(0.01) | pow2");
    EXPECT_DOUBLE_EQ(estimated_bits_per_element(*warm, 5000), estimated_bits_per_element(*plain, 5000));
}
TEST(CodecChoice, Sketch_is_settled_for_each_size) {
    const std::vector<shm::TensorEntry> tensors{entry("bias", {700}), entry("long", {100'000}), entry("tiny", {20, 12}),
                                                entry("wide", {64, 9, 64})};
    auto config = two_nodes();
    config.small_elements = 0;
    const auto choice = choose_codecs(config, "sketch(0.01)", tensors);
    ASSERT_TRUE(choice.is_ok()) << choice.error().to_string();
    EXPECT_EQ(text_of(choice->pipelines[1]), canonical("sketch(0.01)"));
    EXPECT_EQ(text_of(choice->pipelines[2]), canonical("all | f32")) << "a sketch would not halve it";
    EXPECT_EQ(text_of(choice->pipelines[3]), canonical("sketch(0.01)"));
    EXPECT_EQ(choice->text, "sketch(ratio=0.01, rows=5, columns=auto)");
    const auto sketch = codec::parse_pipeline("sketch(0.01)");
    EXPECT_DOUBLE_EQ(estimated_bits_per_element(*sketch, 100'000), 32 * 0.06);
}
TEST(CodecChoice, Low_rank_is_settled_for_each_shape) {
    const std::vector<shm::TensorEntry> tensors{entry("bias", {700}), entry("long", {100'000}), entry("tiny", {12, 12}),
                                                entry("wide", {64, 9, 64}), entry("x", {40, 40})};
    const auto choice = choose_codecs(two_nodes(), "lowrank(2); x: lowrank(1, columns=square)", tensors);
    ASSERT_TRUE(choice.is_ok()) << choice.error().to_string();
    EXPECT_EQ(text_of(choice->pipelines[0]), canonical("all | bf16"));
    EXPECT_EQ(text_of(choice->pipelines[1]), canonical("all | bf16")) << "lowrank would send it as it is";
    EXPECT_EQ(text_of(choice->pipelines[3]), canonical("lowrank(2, 576)"));
    EXPECT_EQ(text_of(choice->pipelines[4]), canonical("lowrank(1, 40)"));
    EXPECT_EQ(choice->text, "lowrank(rank=2, columns=auto); x: lowrank(rank=1, columns=square)");
    const auto plain = choose_codecs(two_nodes(), "all | f32; elements > 1000: lowrank", tensors);
    EXPECT_EQ(text_of(plain->pipelines[1]), canonical("all | f32"));
    EXPECT_EQ(text_of(plain->pipelines[3]), canonical("lowrank(1, 576)"));
}
TEST(CodecChoice, A_model_of_small_tensors_joins_the_codec) {
    const std::vector<shm::TensorEntry> small{entry("a", {900}), entry("b", {900}), entry("c", {900})};
    const auto choice = choose_codecs(two_nodes(), "topk(0.01)", small);
    for (const auto& pipeline : choice->pipelines) EXPECT_EQ(text_of(pipeline), canonical("topk(0.01)"));
}
TEST(CodecChoice, Rules_go_before_the_codec_of_small_tensors) {
    const auto choice =
        choose_codecs(two_nodes(), "topk(0.01); a.bias: all | f32; elements < 5000 & b*: all | sign", kModel);
    EXPECT_EQ(text_of(choice->main), canonical("topk(0.01)"));
    EXPECT_EQ(text_of(choice->pipelines[0]), canonical("all | f32"));
    EXPECT_EQ(text_of(choice->pipelines[1]), canonical("topk(0.01)"));
    EXPECT_EQ(text_of(choice->pipelines[2]), canonical("all | sign")) << "else it would be small";
    EXPECT_EQ(text_of(choice->pipelines[3]), canonical("all | sign"));
    EXPECT_EQ(choice->text, codec::canonical_codec_text(*codec::parse_codec(choice->text)));
    EXPECT_NE(choice->text.find("a.bias: all | f32 | auto"), std::string::npos) << choice->text;
}
TEST(CodecChoice, Rules_apply_beside_a_plain_codec_too) {
    const auto choice = choose_codecs(two_nodes(), "all | f32; elements >= 100000: topk(0.01)", kModel);
    EXPECT_EQ(text_of(choice->pipelines[0]), canonical("all | f32"));
    EXPECT_EQ(text_of(choice->pipelines[1]), canonical("topk(0.01)"));
}
TEST(CodecChoice, Text_that_does_not_parse_says_whose_it_is) {
    const auto choice = choose_codecs(two_nodes(), "topq(1)", kModel);
    ASSERT_FALSE(choice.is_ok());
    EXPECT_EQ(choice.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(choice.error().text().find("codec of the client"), std::string::npos) << choice.error().text();
}

}  // namespace
}  // namespace gradsieve::daemon
