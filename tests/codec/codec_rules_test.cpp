#include "codec/codec_rules.hpp"

#include <gmock/gmock.h>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

RuledCodec parsed(const std::string& text) {
    auto codec = parse_codec(text);
    EXPECT_TRUE(codec.is_ok()) << codec.status().to_string();
    return codec.is_ok() ? std::move(*codec) : RuledCodec{};
}
std::string rule_text(const RuledCodec& codec, const std::string& name, ElementCount elements) {
    const auto* pipeline = ruled_pipeline(codec, name, elements);
    return pipeline == nullptr ? "" : canonical_text(*pipeline, Knobs::kKeep);
}

TEST(CodecRules, A_pipeline_alone_has_none) {
    const auto codec = parsed(" topk(0.01) | pow2 ");
    EXPECT_EQ(codec.main, *parse_pipeline("topk(0.01) | pow2"));
    EXPECT_TRUE(codec.rules.empty());
    EXPECT_EQ(ruled_pipeline(codec, "a", 1), nullptr);
}
TEST(CodecRules, First_one_that_fits_decides) {
    const auto codec = parsed("topk(0.01); *.bias: all | f32; layer?.* : all | bf16 ;*: all | sign");
    EXPECT_EQ(rule_text(codec, "layer1.bias", 9), "all | f32 | auto");
    EXPECT_EQ(rule_text(codec, "layer1.weight", 9), "all | bf16 | auto");
    EXPECT_EQ(rule_text(codec, "layer10.weight", 9), "all | sign(scale=mean) | auto");
}
TEST(CodecRules, Sizes_bound_on_both_sides) {
    const auto codec = parsed(
        "topk(0.01); elements < 10: all | f32; w* & elements > 20 & elements <= 30: all | bf16; elements >= 40: all | "
        "sign");
    EXPECT_EQ(rule_text(codec, "w", 9), "all | f32 | auto");
    EXPECT_EQ(rule_text(codec, "w", 10), "");
    EXPECT_EQ(rule_text(codec, "w", 20), "");
    EXPECT_EQ(rule_text(codec, "w", 21), "all | bf16 | auto");
    EXPECT_EQ(rule_text(codec, "w", 30), "all | bf16 | auto");
    EXPECT_EQ(rule_text(codec, "v", 30), "");
    EXPECT_EQ(rule_text(codec, "v", 39), "");
    EXPECT_EQ(rule_text(codec, "v", 40), "all | sign(scale=mean) | auto");
}
TEST(CodecRules, A_tensor_may_be_called_elements) {
    EXPECT_EQ(rule_text(parsed("topk(0.01); elements: all | f32"), "elements", 5), "all | f32 | auto");
}
TEST(CodecRules, Canonical_text_is_read_back_as_the_same) {
    for (const char* text : {"all", "topk(0.01) | pow2; *.bias: all|f32",
                             "variance; elements>=0: all | bf16; a & elements<7: topk(0.5) | sign | rice",
                             "all | f32; elements > 5 & elements < 9: topk(0.1)"}) {
        const auto codec = parsed(text);
        EXPECT_EQ(parsed(canonical_codec_text(codec)), codec) << canonical_codec_text(codec);
    }
    EXPECT_EQ(canonical_codec_text(parsed("all|f32;a*&elements<10:all|bf16")),
              "all | f32 | auto; a* & elements <= 9: all | bf16 | auto");
}
TEST(CodecRules, What_is_wrong_is_named) {
    const struct {
        const char* text;
        const char* seen;
        const char* allowed;
    } cases[] = {
        {"all | f32; *.bias", "*.bias", "CONDITIONS: PIPELINE"},
        {"all | f32;", "''", "CONDITIONS: PIPELINE"},
        {"all; : all", "''", "one pattern of tensor names"},
        {"all; a b: all", "a b", "one pattern of tensor names"},
        {"all; a & b: all", "'b'", "one pattern of tensor names"},
        {"all; elements < many: all", "elements < many", "a whole number"},
        {"all; elements < 0: all", "elements < 0", "a whole number that leaves some"},
        {"all; elements > 18446744073709551615: all", "elements > 18446744073709551615",
         "a whole number that leaves some"},
        {"all; elements > 10 & elements < 5: all", "elements > 10 & elements < 5",
         "conditions that some tensor fulfils"},
        {"all; a: topq(1)", "codec rule 'a: topq(1)'", "did you mean topk"},
        {"topq; a: all", "topq", "did you mean topk"},
    };
    for (const auto& [text, seen, allowed] : cases) {
        const auto codec = parse_codec(text);
        ASSERT_FALSE(codec.is_ok()) << text;
        EXPECT_EQ(codec.status().code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(codec.status().to_string(), HasSubstr(seen)) << text;
        EXPECT_THAT(codec.status().to_string(), HasSubstr(allowed)) << text;
    }
    std::string many = "all";
    for (int rule = 0; rule < 65; ++rule) many += "; a: all";
    EXPECT_THAT(parse_codec(many).status().to_string(), HasSubstr("'65': allowed is at most 64"));
}

}  // namespace
}  // namespace gradsieve::codec
