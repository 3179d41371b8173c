// The low-pass form of error feedback against its definition, r = (1 - b) r + b (p - sent), in closed forms, in the
// balance that it keeps, and per form at the edge of fp32; what the forms do bit for bit is compared with the reference
// in encoder_forms_test.cpp and encoder_property_test.cpp.
#include "codec/low_pass.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 119;

std::string canonical(const std::string& text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); }
std::string refusal(const char* text) { return parse_pipeline(text).status().text(); }

// p = r + 4: 4, 5, 6, 7 waits, and a quarter of it comes to r each time: 1, 2, 3; 7 is sent, and r = 3/4 * 3 is left.
TEST(LowPass, A_share_of_what_waits_is_kept_and_a_share_of_what_was_kept_stays) {
    EncodeLoop loop(*parse_pipeline("compensate(lowpass=0.25) | threshold(6.5) | f32"), 1, 1, 0);
    std::vector<float> sent;
    std::vector<float> kept;
    for (int step = 0; step < 5; ++step) {
        sent.push_back(decode_payloads(loop.step({4.0F}).chunks, 1)[0]);
        kept.push_back(loop.residual()[0]);
    }
    EXPECT_EQ(sent, (std::vector<float>{0, 0, 0, 7, 0}));
    EXPECT_EQ(kept, (std::vector<float>{1, 2, 3, 2.25F, 3.25F}));
}
TEST(LowPass, What_quantization_loses_is_filtered_too) {
    EncodeLoop loop(*parse_pipeline("compensate(lowpass=0.5) | threshold(5) | sign(scale=4)"), 1, 1, 0);
    static_cast<void>(loop.step({6.0F}));
    EXPECT_EQ(loop.residual()[0], 1.0F);
    static_cast<void>(loop.step({0.0F}));  // (1 + 1) / 2
    EXPECT_EQ(loop.residual()[0], 1.0F);
}
TEST(LowPass, A_change_of_scale_goes_through_what_was_kept) {
    EncodeLoop loop(*parse_pipeline("compensate(0.5, lowpass=0.25) | threshold(100)"), 1, 1, 0);
    static_cast<void>(loop.step({8.0F}));
    EXPECT_EQ(loop.residual()[0], 2.0F);
    loop.set_rescale(4.0F);
    static_cast<void>(loop.step({0.0F}));  // beta weighs what enters p, not what stays: 3/4 * 8 + 1/4 * (1/2 * 8)
    EXPECT_EQ(loop.residual()[0], 7.0F);
}
/// The largest |sent + r / b - handed in| over the elements, in units of the largest number among them.
double worst_imbalance(const std::string& text, double share) {
    constexpr ElementCount kElements = 2000;
    std::mt19937_64 random(kSeed);
    EncodeLoop loop(*parse_pipeline(text), kElements, 1, 0);
    std::vector<double> balance(kElements, 0.0);
    double largest = 0;
    for (int step = 0; step < 200; ++step) {
        const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
        const auto handed_in = loop.handed_in(gradient);
        const auto sent = decode_payloads(loop.step(gradient).chunks, kElements);
        for (ElementCount element = 0; element < kElements; ++element) {
            balance[element] += double{sent[element]} - handed_in[element];
            largest = std::max(largest, std::fabs(loop.residual()[element] / share));
        }
    }
    double worst = 0;
    for (ElementCount element = 0; element < kElements; ++element)
        worst = std::max(worst, std::fabs(balance[element] + loop.residual()[element] / share));
    return worst / largest;
}
TEST(LowPass, What_was_sent_and_r_over_b_are_what_was_handed_in) {
    for (const char* stages : {"topk(0.05)", "topk(0.02) | pow2", "threshold(2) | f16", "block_topk(0.1, block=64)",
                               "all | sign", "randk(0.1) | natural", "adaptive_random(0.05)", "sidco(0.05)"})
        for (const double share : {0.75, 0.25, 0.1}) {
            const auto front = "compensate(lowpass=" + std::to_string(share) + ") | ";
            EXPECT_LT(worst_imbalance(front + stages, share), 200 * 0x1p-22) << front << stages << ", seed " << kSeed;
        }
    EXPECT_LT(worst_imbalance("momentum | compensate(1, 0.5, 0.5) | topk(0.05) | sign", 0.5), 200 * 0x1p-22);
}
TEST(LowPass, Nothing_else_is_conserved_by_it) {
    EXPECT_GT(worst_imbalance("compensate(lowpass=0.5) | topk(0.05)", 1), 0.1) << "r alone is not what is owed";
    EXPECT_GT(worst_imbalance("compensate(0.9, lowpass=0.5) | topk(0.05)", 0.5), 0.1) << "what waits fades";
}
TEST(LowPass, The_largest_numbers_stay_finite_in_every_form) {
    for (const CpuForm form : supported_forms())
        for (const ElementCount elements : {ElementCount{1}, ElementCount{15}, ElementCount{16}, ElementCount{77}}) {
            const float keep = 0x1p60F;
            std::vector<float> before(elements, FLT_MAX);
            std::vector<float> after(elements, -1.0F);
            before[elements / 2] = -FLT_MAX;
            const LowPassStep step{before.data(), after.data(), keep, 0.5F};
            payload_kernels_of(form)->low_pass(&step, 0, static_cast<std::uint32_t>(elements));
            for (ElementCount element = 0; element < elements; ++element)
                EXPECT_EQ(after[element], element == elements / 2 ? -FLT_MAX : FLT_MAX);
        }
}
TEST(LowPass, Its_text_is_an_argument_of_compensate) {
    EXPECT_EQ(canonical("compensate(lowpass=0.1) | topk(0.001)"),
              "compensate(beta=1, gamma=1, lowpass=0.1) | topk(ratio=0.001, scope=tensor, gate=0) | f32 | auto");
    EXPECT_EQ(canonical("compensate(1, 1, 1) | topk(0.1)"), canonical("topk(0.1)"));
    EXPECT_THAT(refusal("compensate(lowpass=0) | topk(0.1)"), HasSubstr("[1e-6, 1]"));
    EXPECT_THAT(refusal("compensate(lowpass=1.5) | topk(0.1)"), HasSubstr("[1e-6, 1]"));
}
TEST(LowPass, Before_what_v_judges_or_what_keeps_nothing_it_is_refused_by_name) {
    for (const char* text : {"compensate(lowpass=0.5) | variance", "compensate(lowpass=0.5) | variance_hybrid(0.1)",
                             "compensate(lowpass=0.5) | topk(0.1, gate=1)"})
        EXPECT_THAT(refusal(text), HasSubstr("v measures gradients as they are")) << text;
    for (const char* text :
         {"compensate(lowpass=0.5) | all", "compensate(lowpass=0.5) | all | dither(feedback=none)",
          "compensate(lowpass=0.5) | randk(0.1, none)", "compensate(lowpass=0.5) | all | sign(scale=none)"})
        EXPECT_THAT(refusal(text), HasSubstr("compensate: lowpass '0.5': allowed is 1 before a codec that keeps no"))
            << text;
}

}  // namespace
}  // namespace gradsieve::codec
