// Which pipelines may send a step plain, and that nothing is lost where they do so now and then.
#include "codec/plain_form.hpp"

#include "codec/state_arrays.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace gradsieve::codec {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kSeed = 20261130;

Pipeline pipeline(std::string_view text) {
    const auto parsed = parse_pipeline(text);
    EXPECT_TRUE(parsed.is_ok()) << text << ": " << parsed.status().to_string();
    return parsed.value_or(Pipeline{});
}
std::string plain_text(std::string_view text) {
    EXPECT_EQ(plain_refusal(pipeline(text)), "") << text;
    return canonical_text(plain_pipeline(pipeline(text)), Knobs::kKeep);
}

TEST(PlainForm, What_keeps_a_residual_goes_as_bf16_and_what_keeps_nothing_as_f32) {
    for (const auto* text :
         {"topk(0.01) | pow2", "block_topk(0.1)", "gaussian_k(0.01)", "sidco(0.01)", "threshold(0.5)",
          "adaptive_random(0.1)", "randk(0.1)", "warmup(100) | topk(0.01)", "all | sign", "all | pow2",
          "all | dither(levels=7) | entropy", "all | natural", "all | minmax"}) {
        EXPECT_EQ(plain_text(text), canonical_text(pipeline("all | bf16"), Knobs::kKeep)) << text;
        EXPECT_EQ(plain_name(pipeline(text)), "bf16");
        EXPECT_EQ(plain_bits(pipeline(text)), 16U);
    }
    for (const auto* text : {"all | dither(feedback=none)", "randk(0.1, feedback=none)",
                             "bernoulli(0.1, feedback=none)", "all | natural(feedback=none)"}) {
        EXPECT_EQ(plain_text(text), canonical_text(pipeline("all | f32"), Knobs::kKeep)) << text;
        EXPECT_EQ(plain_name(pipeline(text)), "f32");
        EXPECT_EQ(plain_bits(pipeline(text)), 32U);
    }
    EXPECT_EQ(plain_text("similarity | topk(0.01)"), canonical_text(pipeline("similarity | all | bf16"), Knobs::kKeep))
        << "it measures gradients, however they are sent";
}
TEST(PlainForm, Arrays_that_are_kept_are_the_same_or_there_is_a_reason) {
    for (const NamedPipeline& named : every_pipeline()) {
        if (!plain_refusal(named.pipeline).empty()) continue;
        const Pipeline plain = plain_pipeline(named.pipeline);
        for (const StateArray& array : state_arrays())
            EXPECT_EQ(array.is_kept(named.pipeline), array.is_kept(plain)) << named.name << ": " << array.name;
    }
}
TEST(PlainForm, Others_say_why_not) {
    const auto reason = [](std::string_view text) { return std::string(plain_refusal(pipeline(text))); };
    EXPECT_THAT(reason("lowrank(4)"), HasSubstr("two rounds"));
    EXPECT_THAT(reason("sketch(0.01)"), HasSubstr("two rounds"));
    EXPECT_THAT(reason("topk(0.01, scope=model)"), HasSubstr("scope=model"));
    EXPECT_THAT(reason("delta | topk(0.01)"), HasSubstr("delta"));
    EXPECT_THAT(reason("similarity(skip=0.8) | all | dither"), HasSubstr("similarity(skip=..)"));
    EXPECT_THAT(reason("momentum(0.9) | topk(0.01)"), HasSubstr("momentum"));
    EXPECT_THAT(reason("compensate(beta=0.9) | topk(0.01)"), HasSubstr("compensate"));
    EXPECT_THAT(reason("compensate(lowpass=0.5) | topk(0.01)"), HasSubstr("compensate"));
    EXPECT_THAT(reason("accumulate(4) | topk(0.01)"), HasSubstr("accumulate"));
    EXPECT_THAT(reason("rotate | all | sign"), HasSubstr("rotations"));
    EXPECT_THAT(reason("all | sign(scale=none)"), HasSubstr("votes"));
    for (const auto* text : {"variance(1)", "variance(1, mode=faithful)", "variance_hybrid(0.5)", "topk(0.01, gate=1)"})
        EXPECT_THAT(reason(text), HasSubstr("variances")) << text;
    for (const auto* text : {"all | f32", "all | f16", "all | bf16"})
        EXPECT_THAT(reason(text), HasSubstr("plain already")) << text;
}

/// One tensor's residual from step to step, each of which is encoded by whichever pipeline.
class Steps {
public:
    explicit Steps(ElementCount elements) : residual_(elements), next_(elements) {}
    /// What receivers get of it.
    std::vector<float> step(const Pipeline& pipeline, const std::vector<float>& gradient) {
        const float* sample = gradient.data();
        const float weight = 1;
        EncodeRequest request;
        request.pipeline = &pipeline;
        request.tensor = 7;
        request.step = ++step_;
        request.elements = gradient.size();
        request.samples = {&sample, 1};
        request.weights = {&weight, 1};
        request.random_seed = kSeed;
        request.selection_hint = &hint_;
        request.in.residual = residual_.data();
        request.out.residual = next_.data();
        const auto encoded = encode_tensor(request, workspace_);
        EXPECT_TRUE(encoded.is_ok()) << encoded.status().to_string();
        residual_.swap(next_);
        return decode_payloads(encoded->chunks, gradient.size());
    }
    [[nodiscard]] const std::vector<float>& residual() const { return residual_; }

private:
    std::vector<float> residual_, next_;
    Step step_ = 0;
    std::uint32_t hint_ = 0;
    EncodeWorkspace workspace_;
};

TEST(PlainForm, Nothing_is_lost_where_a_tensor_goes_coded_then_plain_then_coded) {
    constexpr ElementCount kElements = 10'000;
    for (const auto* text : {"topk(0.01) | f32", "topk(0.05) | pow2", "gaussian_k(0.05) | f32", "threshold(2) | f32",
                             "all | pow2", "randk(0.1) | f32"}) {
        const Pipeline written = pipeline(text);
        const Pipeline plain = plain_pipeline(written);
        std::mt19937 random(kSeed);
        std::uniform_int_distribution<int> whole(-1000, 1000);
        Steps steps(kElements);
        std::vector<double> put_in(kElements), sent(kElements);
        for (int step = 0; step < 30; ++step) {
            std::vector<float> gradient(kElements);
            for (auto& value : gradient) value = static_cast<float>(whole(random)) / 256;  // sums of these are exact
            const bool is_plain = step >= 10 && step < 20;
            const auto decoded = steps.step(is_plain ? plain : written, gradient);
            for (ElementCount element = 0; element < kElements; ++element) {
                put_in[element] += gradient[element];
                sent[element] += decoded[element];
                ASSERT_EQ(sent[element] + steps.residual()[element], put_in[element])
                    << text << " step " << step << " element " << element;
                if (!is_plain) continue;
                ASSERT_LE(std::fabs(steps.residual()[element]), std::fabs(decoded[element]) / 256)
                    << "what waited is sent";
            }
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec
