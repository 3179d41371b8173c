// delta: what is sent, kept and given back, in closed forms and against sums in double; what the forms do bit for bit
// is compared with the reference in encoder_forms_test.cpp and encoder_property_test.cpp, rates in
// theory/difference_rate_test.cpp.
#include "codec/difference.hpp"
#include "codec/digest.hpp"
#include "codec/state_arrays.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 121;

std::string refusal(const std::string& text) { return parse_pipeline(text).status().text(); }

/// Nodes with weights, their h, and H as each of them keeps it.
class Nodes {
public:
    Nodes(const std::string& text, ElementCount elements, const std::vector<float>& weights)
        : weights_(weights), result_(elements), tensor_(tensor_id("tensor"), result_.data(), elements) {
        for (auto& average : average_) average.assign(elements, 0.0F);
        for (std::size_t node = 0; node < weights.size(); ++node) {
            loops_.emplace_back(*parse_pipeline(text), elements, 1, 0);
            loops_.back().set_random_seed(kSeed + node);
        }
    }
    /// One step of all; the digest of what came back.
    std::uint64_t step(const std::vector<std::vector<float>>& gradients) {
        std::vector<EncodeResult> sent;
        for (std::size_t node = 0; node < loops_.size(); ++node) sent.push_back(loops_[node].step(gradients[node]));
        return decode(sent);
    }
    std::uint64_t decode(const std::vector<EncodeResult>& sent) {
        std::vector<std::vector<ChunkView>> views(sent.size());
        std::vector<Contribution> contributions;
        for (std::size_t node = 0; node < sent.size(); ++node) {
            for (const auto& chunk : sent[node].chunks) views[node].push_back({chunk.chunk_index, chunk.bytes});
            contributions.push_back({weights_[node], views[node]});
        }
        const auto before = average_[live_];
        auto& after = average_[1 - live_];
        std::ranges::fill(after, std::nanf(""));
        const auto decoded = decode_differences(++step_, contributions, average_[live_].data(), after.data(), tensor_);
        EXPECT_TRUE(decoded.is_ok()) << decoded.status().to_string();
        EXPECT_TRUE(same_bits(before, average_[live_])) << "the generation that is read";
        EXPECT_TRUE(same_bits(after, result_)) << "what comes back is H";
        EXPECT_EQ(decoded->touched_elements, result_.size());
        live_ = 1 - live_;
        return decoded->digest;
    }
    [[nodiscard]] EncodeLoop& node(std::size_t number) { return loops_[number]; }
    [[nodiscard]] const std::vector<float>& result() const { return result_; }
    [[nodiscard]] Step number() const { return step_; }
    /// Largest |H - sum of w h| over the largest magnitude of any h or H.
    [[nodiscard]] double imbalance() {
        double worst = 0;
        double largest = FLT_MIN;
        for (ElementCount element = 0; element < result_.size(); ++element) {
            double sum = 0;
            for (std::size_t node = 0; node < loops_.size(); ++node) {
                const double sent = loops_[node].residual()[element];
                sum += double{weights_[node]} * sent;
                largest = std::max(largest, std::fabs(sent));
            }
            largest = std::max(largest, std::fabs(double{result_[element]}));
            worst = std::max(worst, std::fabs(sum - result_[element]));
        }
        return worst / largest;
    }

private:
    std::vector<float> weights_;
    std::vector<EncodeLoop> loops_;
    std::array<std::vector<float>, 2> average_;
    std::size_t live_ = 0;
    std::vector<float> result_;
    ResultTensor tensor_;
    Step step_ = 0;
};

// Gradients 4, 1 and 0, of which Top-1 sends one difference at a time: h follows, and all of it comes back each time.
TEST(Delta, What_was_sent_comes_back_again_and_only_differences_are_sent) {
    Nodes nodes("delta | topk(0.3) | f32", 3, {1.0F});
    nodes.step({{4, 1, 0}});
    EXPECT_EQ(nodes.result(), (std::vector<float>{4, 0, 0}));
    nodes.step({{4, 1, 0}});
    EXPECT_EQ(nodes.result(), (std::vector<float>{4, 1, 0}));
    const auto nothing = nodes.node(0).step({4, 1, 0});
    EXPECT_EQ(nothing.kept_elements, 0U) << "no difference is left";
    nodes.decode({});
    EXPECT_EQ(nodes.result(), (std::vector<float>{4, 1, 0})) << "without a payload H is what it was";
    nodes.step({{0, 1, -2}});
    EXPECT_EQ(nodes.result(), (std::vector<float>{0, 1, 0}));
    EXPECT_EQ(std::vector<float>(nodes.node(0).residual().begin(), nodes.node(0).residual().end()),
              (std::vector<float>{0, 1, 0}));
}
TEST(Delta, H_is_the_weighted_sum_of_all_h_at_every_step) {
    constexpr ElementCount kElements = 5000;
    constexpr int kSteps = 40;
    for (const std::string text :
         {"delta | topk(0.02) | f32", "delta | all | sign", "delta | all | natural", "delta | topk(0.1) | pow2 | rice",
          "delta | block_topk(0.05) | dither | auto | entropy", "delta | threshold(0.5) | bf16",
          "delta | randk(0.1) | f32", "delta | all | minmax(4)", "delta | rotate | all | sign",
          "delta | adaptive_random(0.05) | f16", "delta | all | integer(64)", "momentum(0.5) | delta | topk(0.05)"}) {
        Nodes nodes(text, kElements, {0.5F, 0.25F, 0.25F});
        std::mt19937_64 random(kSeed);
        for (int step = 1; step <= kSteps; ++step) {
            std::vector<std::vector<float>> gradients;
            for (int node = 0; node < 3; ++node)
                gradients.push_back(make_gradient(DataKind::kHeavyTailed, kElements, random));
            nodes.step(gradients);
            ASSERT_LE(nodes.imbalance(), 4 * step * 0x1p-24) << text << ", step " << step << ", seed " << kSeed;
        }
    }
}
TEST(Delta, Gradients_that_stay_are_reached) {
    constexpr ElementCount kElements = 3000;
    struct Case {
        std::string text;
        double share;  ///< of the first distance, squared, that may be left after 60 steps
    };
    for (const auto& [text, share] : {Case{"delta | topk(0.1) | f32", 1e-12}, Case{"delta | all | sign", 1e-2},
                                      Case{"delta | all | natural", 1e-12}, Case{"delta | topk(0.2) | pow2", 1e-6},
                                      Case{"delta | rotate | all | dither(3)", 1e-6}}) {
        Nodes nodes(text, kElements, {0.5F, 0.5F});
        std::mt19937_64 random(kSeed);
        std::vector<std::vector<float>> gradients;
        for (int node = 0; node < 2; ++node) gradients.push_back(make_gradient(DataKind::kGaussian, kElements, random));
        const auto distance = [&] {
            double sum = 0;
            for (ElementCount element = 0; element < kElements; ++element)
                sum +=
                    std::pow((double{gradients[0][element]} + gradients[1][element]) / 2 - nodes.result()[element], 2);
            return sum;
        };
        nodes.step(gradients);
        const double first = distance();
        for (int step = 0; step < 60; ++step) nodes.step(gradients);
        EXPECT_LE(distance(), share * first) << text << ", seed " << kSeed;
    }
}
TEST(Delta, The_digest_is_of_every_element_that_comes_back) {
    constexpr ElementCount kElements = kChunkElements + 77;
    Nodes nodes("delta | topk(0.001) | f32", kElements, {1.0F});
    std::mt19937_64 random(kSeed);
    for (int step = 0; step < 2; ++step) {
        const auto digest = nodes.step({make_gradient(DataKind::kGaussian, kElements, random)});
        std::uint64_t expected = 0;
        for (ElementCount element = 0; element < kElements; ++element)
            expected += element_digest(
                digest_key(tensor_id("tensor"), nodes.number(), static_cast<std::uint32_t>(element / kChunkElements)),
                static_cast<std::uint32_t>(element % kChunkElements),
                std::bit_cast<std::uint32_t>(nodes.result()[element]));
        EXPECT_EQ(digest, expected);
    }
    const auto again = nodes.decode({});
    EXPECT_NE(again, nodes.decode({})) << "of another step";
}
TEST(Delta, A_step_that_fails_after_encoding_leaves_what_was_sent_as_it_was) {
    constexpr ElementCount kElements = 4000;
    const auto input =
        make_input(*parse_pipeline("momentum | delta | topk(0.1) | pow2"), kElements, 2, DataKind::kGaussian, kSeed);
    reference::State before = zero_state(input);
    std::mt19937_64 random(kSeed);
    before.residual = make_gradient(DataKind::kGaussian, kElements, random);
    EncodeWorkspace workspace;
    for (const CpuForm form : supported_forms()) {  // fails if the generation that is read changes
        const auto first = run_form(input, before, form, workspace);
        const auto second = run_form(input, before, form, workspace);
        EXPECT_TRUE(same_bits(first.state.residual, second.state.residual));
        EXPECT_EQ(first.result.chunks.at(0).bytes, second.result.chunks.at(0).bytes) << "a repeated step's payload";
    }
}
TEST(Delta, A_node_without_a_payload_keeps_h_and_u) {
    const auto pipeline = *parse_pipeline("momentum | delta | topk(0.5)");
    std::vector<float> h = {1, 2, 3}, u = {4, 5, 6}, h_out(3), u_out(3);
    keep_state(pipeline, 3, {.residual = h.data(), .momentum = u.data()},
               {.residual = h_out.data(), .momentum = u_out.data()});
    EXPECT_EQ(h_out, h);
    EXPECT_EQ(u_out, u);
}
TEST(Delta, Momentum_is_followed_as_it_is) {
    EncodeLoop loop(*parse_pipeline("momentum(0.5) | delta | topk(0.5)"), 2, 1, 0);
    std::vector<float> sent(2, 0.0F);
    const std::vector<std::vector<float>> expected = {{8, 0}, {12, 0}, {14, 0}, {15, 0}};
    for (const auto& sums : expected) {
        const auto decoded = decode_payloads(loop.step({8.0F, 0.25F}).chunks, 2);
        for (std::size_t element = 0; element < 2; ++element) sent[element] += decoded[element];
        EXPECT_EQ(sent[0], sums[0]) << "u = u / 2 + 8, which is not cleared where it is sent";
        EXPECT_EQ(loop.momentum()[0], sums[0]);
    }
}
TEST(Delta, A_sum_beyond_fp32_is_a_gradient_that_is_not_finite) {
    auto input = make_input(*parse_pipeline("delta | all | sign"), 4, 1, DataKind::kZero, kSeed);
    reference::State before = zero_state(input);
    before.residual = {FLT_MAX, 0, 0, 0};
    input.samples[0] = {0, FLT_MAX, FLT_MAX, -FLT_MAX};
    // p has one sign and the others' magnitude: h_0 = FLT_MAX - 3/4 FLT_MAX ... all finite.
    EncodeWorkspace workspace;
    EXPECT_FALSE(run_form(input, before, fastest_cpu_form(), workspace).result.non_finite);
    before.residual = {-FLT_MAX, 0, 0, 0};
    input.samples[0] = {FLT_MAX, 0, 0, 0};  // p itself overflows
    const auto output = run_form(input, before, fastest_cpu_form(), workspace);
    ASSERT_TRUE(output.result.non_finite);
    EXPECT_TRUE(output.result.chunks.empty());
}
TEST(Delta, Averages_that_leave_fp32_are_refused) {
    std::vector<float> in = {FLT_MAX}, out(1), result(1);
    ResultTensor tensor(1, result.data(), 1);
    EncodeLoop loop(*parse_pipeline("delta | topk(1)"), 1, 1, 0);
    const auto sent = loop.step({FLT_MAX});
    const std::array views = {ChunkView{0, sent.chunks.at(0).bytes}};
    const Contribution contribution{1.0F, views};
    const auto decoded = decode_differences(1, {&contribution, 1}, in.data(), out.data(), tensor);
    EXPECT_EQ(decoded.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(decoded.status().text(), HasSubstr("sum of differences"));
    EXPECT_EQ(in[0], FLT_MAX);
}
TEST(Delta, Another_scale_is_refused) {
    const auto pipeline = *parse_pipeline("delta | topk(0.5)");
    const std::vector<float> gradient = {1, 2};
    std::vector<float> in(2), out(2);
    const std::array<const float*, 1> samples = {gradient.data()};
    const std::array<float, 1> weights = {1.0F};
    EncodeRequest request;
    request.pipeline = &pipeline;
    request.elements = 2;
    request.samples = samples;
    request.weights = weights;
    request.in.residual = in.data();
    request.out.residual = out.data();
    EncodeWorkspace workspace;
    EXPECT_TRUE(encode_tensor(request, workspace).is_ok());
    request.rescale = 2;
    const auto status = encode_tensor(request, workspace).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), HasSubstr("rescale: 2.000000 with delta: allowed is 1"));
}
TEST(Delta, Text_is_read_and_written) {
    const auto canonical = [](const char* text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); };
    EXPECT_EQ(canonical("delta|topk(0.01)"), "delta | topk(ratio=0.01, scope=tensor, gate=0) | f32 | auto");
    EXPECT_EQ(canonical("similarity | momentum(0.9) | delta | rotate | all | sign"),
              "similarity | momentum(m=0.9, nesterov=no, clip=none) | delta | rotate | all | sign(scale=mean) | auto");
    EXPECT_EQ(canonical_text(*parse_pipeline("delta | all | sign"), Knobs::kBlank),
              "delta | all | sign(scale=mean) | auto")
        << "what nodes agree on";
    EXPECT_EQ(parse_pipeline("delta | topk(0.01)")->front.is_difference, true);
}
TEST(Delta, What_would_not_mean_what_it_says_is_refused) {
    EXPECT_THAT(refusal("compensate(0.9) | delta | topk(0.1)"), HasSubstr("of a residual"));
    EXPECT_THAT(refusal("accumulate(2) | delta | topk(0.1)"), HasSubstr("comes back in every step"));
    EXPECT_THAT(refusal("delta | accumulate(2) | topk(0.1)"), HasSubstr("accumulate, warmup, delta, rotate"));
    EXPECT_THAT(refusal("delta | variance"), HasSubstr("v judges sums of gradients"));
    EXPECT_THAT(refusal("delta | topk(0.1, gate=1)"), HasSubstr("v judges sums of gradients"));
    EXPECT_THAT(refusal("delta | topk(0.1, scope=model)"), HasSubstr("leave the scope out"));
    EXPECT_THAT(refusal("delta | lowrank(2)"), HasSubstr("one round of payloads"));
    for (const char* text : {"delta | all | f32", "delta | all | sign(scale=none)", "delta | randk(0.1, none)",
                             "delta | all | dither(feedback=none)", "delta | rotate | all | sign(scale=drive)"})
        EXPECT_THAT(refusal(text), HasSubstr("keeps no residual")) << text;
    EXPECT_THAT(refusal("delta | all | dither(feedback=unscaled)"), HasSubstr("run away"));
    EXPECT_THAT(refusal("delta(2) | topk(0.1)"), HasSubstr("delta"));
    EXPECT_THAT(refusal("delta"), HasSubstr("a selector behind delta"));
    EXPECT_TRUE(parse_pipeline("delta | all | integer(100)").is_ok()) << "off by a number at most";
}
TEST(Delta, H_and_the_epoch_are_kept_beside_h) {
    const auto pipeline = *parse_pipeline("delta | topk(0.1)");
    EXPECT_EQ(kept_state_arrays(pipeline), 3U);
    EXPECT_EQ(kept_state_bytes(pipeline, 1000), 2U * 4 * (1000 + 1000 + 2));
    EXPECT_EQ(kept_state_bytes(pipeline, 1), 2U * 4 * 3);
}

}  // namespace
}  // namespace gradsieve::codec
