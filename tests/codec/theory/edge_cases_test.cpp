// The edge cases that every codec has to get right, for every pipeline of the harness: zeros of both signs, subnormal
// and huge values, constants, one element, all elements kept, a change of scale. Values that are not finite, empty
// tensors and sizes beside the vector width are EncoderForms' and EncoderErrors'; bad bytes are PayloadReader's and
// IndexCoder's; bad parameters are Pipeline's.
#include "encoder_harness.hpp"
#include "operator_theory.hpp"

#include <bit>
#include <cfloat>
#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 74;

bool is_plus_zero(float value) { return std::bit_cast<std::uint32_t>(value) == 0; }

Pipeline pipeline_of(const std::string& text) { return *parse_pipeline(text); }

TEST(EdgeCases, Zeros_are_sent_as_zeros_and_leave_nothing) {
    for (const NamedPipeline& named : every_pipeline()) {
        if (named.pipeline.quantizer.kind == QuantizerKind::kVote) continue;  // below
        for (const ElementCount elements : {1U, 33U, 5000U})
            for (const DataKind kind : {DataKind::kZero, DataKind::kSignedZeros}) {
                std::mt19937_64 random(kSeed);
                EncodeLoop loop(named.pipeline, elements, 1, 0);
                for (int step = 0; step < 3; ++step) {
                    const auto gradient = make_gradient(kind, elements, random);
                    const auto result = loop.step(gradient);
                    for (const float value : decode_payloads(result.chunks, elements))
                        ASSERT_TRUE(is_plus_zero(value)) << named.name << " " << elements << ": " << value;
                    for (const float left : loop.residual()) ASSERT_EQ(left, 0.0F) << named.name;
                    for (const float variance : loop.variance()) ASSERT_EQ(variance, 0.0F) << named.name;
                    const auto& selector = named.pipeline.selector;
                    if (selector.kind == SelectorKind::kAll || is_keyed(selector)) continue;  // these send zeros
                    EXPECT_EQ(result.kept_elements, 0U) << named.name;
                    EXPECT_TRUE(result.chunks.empty()) << named.name << ": nothing to send is no payload";
                }
            }
    }
}
TEST(EdgeCases, Zeros_of_both_signs_vote_for_plus_one) {
    EncodeLoop loop(pipeline_of("all | sign(scale=none)"), 3, 1, 0);
    for (const float value : decode_payloads(loop.step({0.0F, -0.0F, 1e-45F}).chunks, 3)) EXPECT_EQ(value, 1.0F);
}
TEST(EdgeCases, Zeros_of_both_signs_give_the_same_bytes) {
    for (const NamedPipeline& named : every_pipeline()) {
        EncodeLoop plus(named.pipeline, 2000, 1, 0);
        EncodeLoop minus(named.pipeline, 2000, 1, 0);
        std::mt19937_64 random(kSeed);
        auto gradient = make_gradient(DataKind::kGaussian, 2000, random);
        for (std::size_t element = 0; element < 2000; element += 3) gradient[element] = 0.0F;
        const auto plus_chunks = plus.step(gradient).chunks;
        for (std::size_t element = 0; element < 2000; element += 3) gradient[element] = -0.0F;
        const auto minus_chunks = minus.step(gradient).chunks;
        const auto decoded = decode_payloads(minus_chunks, 2000);
        EXPECT_TRUE(same_bits(decoded, decode_payloads(plus_chunks, 2000))) << named.name;
        // Nothing is computed there: values are copied, bit for bit, and the decoder makes +0 of -0.
        if (!has_residual(named.pipeline) && named.pipeline.quantizer.kind == QuantizerKind::kF32) continue;
        ASSERT_EQ(plus_chunks.size(), minus_chunks.size()) << named.name;
        for (std::size_t chunk = 0; chunk < plus_chunks.size(); ++chunk)
            EXPECT_EQ(plus_chunks[chunk].bytes, minus_chunks[chunk].bytes) << named.name;
    }
}
TEST(EdgeCases, Subnormal_values_without_a_code_stay_in_the_residual) {
    for (const char* text : {"all | pow2", "all | natural", "all | natural(feedback=unscaled)", "all | dither",
                             "topk(1) | pow2", "topk(1) | natural", "topk(1) | dither"}) {
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(pipeline_of(text), 1000, 1, 0);
        const auto gradient = make_gradient(DataKind::kSubnormal, 1000, random);
        for (const float value : decode_payloads(loop.step(gradient).chunks, 1000)) ASSERT_EQ(value, 0.0F) << text;
        EXPECT_TRUE(same_bits({loop.residual().begin(), loop.residual().end()}, gradient)) << text;
    }
}
TEST(EdgeCases, Subnormal_values_with_a_code_are_exact) {
    for (const char* text : {"all | f32", "topk(1) | f32", "variance(0.5) | f32"}) {
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(pipeline_of(text), 1000, 1, 0);
        const auto gradient = make_gradient(DataKind::kSubnormal, 1000, random);
        const auto decoded = decode_payloads(loop.step(gradient).chunks, 1000);
        // r^2 of a subnormal number is 0 in fp32: the variance rule holds it back.
        if (std::string(text).starts_with("variance"))
            EXPECT_TRUE(same_bits({loop.residual().begin(), loop.residual().end()}, gradient)) << text;
        else
            EXPECT_EQ(decoded, gradient) << text;
    }
}
TEST(EdgeCases, Constants_and_single_elements_are_exact_where_their_code_can_say_so) {
    for (const char* text :
         {"all | f32", "all | sign", "all | sign(scale=two_mean)", "topk(1) | sign(scale=two_mean)", "topk(1) | sign",
          "topk(1) | f32", "all | bf16", "all | f16", "variance(0.5) | sign", "threshold(0.5) | f32"})
        for (const ElementCount elements : {1U, 31U, 4096U, 5000U})
            for (const float value : {0.75F, -3.0F}) {
                EncodeLoop loop(pipeline_of(text), elements, 1, 0);
                const auto gradient = constant_vector(elements, value);
                EXPECT_EQ(decode_payloads(loop.step(gradient).chunks, elements), gradient) << text << " " << elements;
                for (const float left : loop.residual()) ASSERT_EQ(left, 0.0F) << text << " " << elements;
            }
}
TEST(EdgeCases, Top_one_of_one_element_is_that_element) {
    EncodeLoop loop(pipeline_of("topk(0.001) | f32"), 1, 1, 0);
    EXPECT_EQ(decode_payloads(loop.step({1e-30F}).chunks, 1)[0], 1e-30F);
}
TEST(EdgeCases, All_elements_kept_is_the_same_as_no_selection) {
    std::mt19937_64 random(kSeed);
    const auto gradient = make_gradient(DataKind::kHeavyTailed, 5000, random);
    for (const std::string quantizer : {"f32", "f16", "bf16"}) {
        EncodeLoop kept(pipeline_of("topk(1) | " + quantizer), 5000, 1, 0);
        EncodeLoop all(pipeline_of("all | " + quantizer), 5000, 1, 0);
        const auto kept_chunks = kept.step(gradient).chunks;
        const auto all_chunks = all.step(gradient).chunks;
        ASSERT_EQ(kept_chunks.size(), all_chunks.size());
        for (std::size_t chunk = 0; chunk < all_chunks.size(); ++chunk)
            EXPECT_EQ(kept_chunks[chunk].bytes, all_chunks[chunk].bytes) << quantizer << ": the dense form is smallest";
    }
}
TEST(EdgeCases, Huge_values_never_become_infinite) {
    for (const NamedPipeline& named : every_pipeline()) {
        if (named.pipeline.front.is_nesterov) continue;  // FLT_MAX and m times it: the step is refused
        if (has_rotation(named.pipeline)) continue;      // as above 2^100: Rotation
        EncodeLoop loop(named.pipeline, 500, 1, 0);
        std::mt19937_64 random(kSeed);
        auto gradient = make_gradient(DataKind::kNearMaximum, 500, random);
        gradient[7] = FLT_MAX;
        gradient[8] = -FLT_MAX;
        for (const float value : decode_payloads(loop.step(gradient).chunks, 500))
            ASSERT_TRUE(std::isfinite(value)) << named.name;
        for (const float left : loop.residual()) ASSERT_TRUE(std::isfinite(left)) << named.name;
    }
}
TEST(EdgeCases, A_change_of_scale_by_a_power_of_two_scales_what_is_sent) {
    for (const NamedPipeline& named : every_pipeline()) {
        // Not those with a number in units of the gradient, integer among them, f16, whose steps grow towards its
        // smallest numbers, and rounding to powers of which 2^3 is none.
        const Selector& selector = named.pipeline.selector;
        const Quantizer& quantizer = named.pipeline.quantizer;
        if (selector.tau != 0 || quantizer.tau != 0 || has_local_clip(named.pipeline)) continue;
        if (quantizer.kind == QuantizerKind::kF16 || quantizer.kind == QuantizerKind::kInteger) continue;
        if (quantizer.is_fixed && quantizer.base != 2) continue;
        if (!has_residual(named.pipeline) || has_delta(named.pipeline)) continue;  // delta: refused
        EncodeLoop steady(named.pipeline, 3000, 1, 0);
        EncodeLoop changing(named.pipeline, 3000, 1, 0);
        std::mt19937_64 random(kSeed);
        float scale = 1;
        for (int step = 0; step < 8; ++step) {
            const float change = step % 3 == 2 ? 0x1p-3F : 1.0F;
            scale *= change;
            changing.set_rescale(change);
            auto gradient = make_gradient(DataKind::kGaussian, 3000, random);
            const auto expected = decode_payloads(steady.step(gradient).chunks, 3000);
            for (float& value : gradient) value *= scale;
            const auto decoded = decode_payloads(changing.step(gradient).chunks, 3000);
            for (std::size_t element = 0; element < 3000; ++element)
                ASSERT_EQ(decoded[element], scale * expected[element]) << named.name << ", step " << step;
        }
    }
}
/// Whole numbers, so that sums are exact in any order.
TEST(EdgeCases, The_order_of_a_batch_s_parts_does_not_matter) {
    std::mt19937_64 random(kSeed);
    EncodeLoop forward(variance_pipeline(1.0, QuantizerKind::kF32), 3000, 8, 64);
    EncodeLoop backward(variance_pipeline(1.0, QuantizerKind::kF32), 3000, 8, 64);
    ElementCount sent = 0;
    for (int step = 0; step < 10; ++step) {
        std::vector<std::vector<float>> parts(8, std::vector<float>(3000));
        for (auto& part : parts)
            for (float& value : part) value = static_cast<float>(static_cast<int>(random() % 65) - 30);
        std::vector<const float*> pointers;
        for (const auto& part : parts) pointers.push_back(part.data());
        const auto expected = decode_payloads(forward.step(pointers).chunks, 3000);
        std::ranges::reverse(pointers);
        EXPECT_EQ(decode_payloads(backward.step(pointers).chunks, 3000), expected) << "step " << step;
        sent += sent_elements(expected).size();
    }
    EXPECT_GT(sent, 3000U);
}
/// Of the paper's 4-bit code: decoded over true in [1/2, 4/3], within 128 to 1, and the largest at the top.
TEST(EdgeCases, Four_bit_codes_stay_between_a_half_and_four_thirds_of_the_value) {
    for (const DataKind kind : {DataKind::kGaussian, DataKind::kHeavyTailed, DataKind::kWideRange}) {
        std::mt19937_64 random(kSeed);
        const auto gradient = make_gradient(kind, 4000, random);
        EncodeLoop loop(pipeline_of("variance(alpha=0.5) | pow2(bits=4, scope=tensor)"), 4000, 1, 0);
        const auto decoded = decode_payloads(loop.step(gradient).chunks, 4000);
        float largest = 0;
        for (const float value : gradient) largest = std::max(largest, std::fabs(value));
        const float top = std::ldexp(1.0F, std::ilogb(largest));
        bool has_top = false;
        for (const ElementCount element : sent_elements(decoded)) {
            const double ratio = double{decoded[element]} / gradient[element];
            ASSERT_TRUE(ratio > 0.5 && ratio <= 4.0 / 3) << gradient[element] << " became " << decoded[element];
            const float magnitude = std::fabs(decoded[element]);
            ASSERT_TRUE(magnitude <= top && magnitude >= top / 128);
            has_top = has_top || magnitude == top;
        }
        EXPECT_TRUE(has_top) << data_kind_name(kind);
    }
}

}  // namespace
}  // namespace gradsieve::codec
