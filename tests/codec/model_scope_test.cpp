#include "codec/model_scope.hpp"

#include "scope_loop.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

namespace gradsieve::codec {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Values = std::vector<float>;
using Tensors = std::vector<Values>;

constexpr std::uint64_t kSeed = 14;

Values gaussian(ElementCount elements, float scale, std::mt19937_64& random) {
    std::normal_distribution<float> normal(0, scale);
    Values values(elements);
    for (auto& value : values) value = normal(random);
    return values;
}

/// What is selected of all tensors, by a sort: true for each element that is.
std::vector<std::vector<bool>> sorted_selection(const Tensors& values, std::size_t k) {
    std::vector<std::pair<std::size_t, std::size_t>> order;
    std::vector<std::vector<bool>> selected;
    for (std::size_t tensor = 0; tensor < values.size(); ++tensor) {
        selected.emplace_back(values[tensor].size(), false);
        for (std::size_t element = 0; element < values[tensor].size(); ++element)
            if (values[tensor][element] != 0) order.emplace_back(tensor, element);
    }
    std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        return std::fabs(values[a.first][a.second]) > std::fabs(values[b.first][b.second]);
    });
    order.resize(std::min(k, order.size()));
    for (const auto& [tensor, element] : order) selected[tensor][element] = true;
    return selected;
}

/// One step of f32 values against the sort: what is sent is sent whole and leaves nothing, and the rest stays as it is.
void step_against_sort(ScopeLoop& loop, const Tensors& gradients) {
    Tensors expected;
    std::vector<std::vector<Values>> samples;
    for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
        expected.push_back(gradients[tensor]);
        for (std::size_t element = 0; element < gradients[tensor].size(); ++element)
            expected[tensor][element] += loop.state(tensor).residual[element];
        samples.push_back({gradients[tensor]});
    }
    const auto selected = sorted_selection(expected, loop.k());
    const auto results = loop.step(samples);
    for (std::size_t tensor = 0; tensor < gradients.size(); ++tensor) {
        const ElementCount elements = gradients[tensor].size();
        Values sent = expected[tensor];
        Values left = expected[tensor];
        for (std::size_t element = 0; element < elements; ++element)
            (selected[tensor][element] ? left : sent)[element] = 0.0F;
        EXPECT_TRUE(same_bits(decode_payloads(results[tensor].chunks, elements), sent)) << "tensor " << tensor;
        EXPECT_TRUE(same_bits(loop.state(tensor).residual, left)) << "tensor " << tensor;
        EXPECT_EQ(results[tensor].kept_elements,
                  static_cast<ElementCount>(std::count(selected[tensor].begin(), selected[tensor].end(), true)));
    }
}

TEST(ModelScope, Text_names_the_scope) {
    const auto parsed = parse_pipeline("topk(0.01, scope=model) | f32");
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().to_string();
    EXPECT_TRUE(has_model_scope(*parsed));
    EXPECT_EQ(canonical_text(*parsed, Knobs::kKeep), "topk(ratio=0.01, scope=model, gate=0) | f32 | auto");
    EXPECT_EQ(canonical_text(*parsed, Knobs::kBlank), "topk(ratio=*, scope=model, gate=*) | f32 | auto");
    EXPECT_EQ(*parse_pipeline(canonical_text(*parsed, Knobs::kKeep)), *parsed);
    EXPECT_FALSE(has_model_scope(*parse_pipeline("topk(0.01)")));
    EXPECT_FALSE(has_model_scope(*parse_pipeline("topk(0.01, tensor)")));
    EXPECT_THAT(parse_pipeline("topk(0.01, scope=chunk)").status().to_string(), HasSubstr("tensor or model"));
    EXPECT_FALSE(parse_pipeline("topk(0.01) | pow2(4, scope=model)").is_ok());
}
TEST(ModelScope, Any_tensors_agree_with_sorting_all_of_them) {
    std::mt19937_64 random(kSeed);
    // A chunk and a bit, spans and a bit, small ones, an empty one.
    ScopeLoop loop("topk(0.01, scope=model) | f32", {20000, 1, kChunkElements + 33, 0, 31, 5000});
    const std::vector<float> scales = {1.0F, 30.0F, 0.1F, 1.0F, 5.0F, 0.0F};
    bool has_counted = false;
    for (const float step_scale : {1.0F, 1.0F, 1.0F, 1e-4F, 50.0F, 1e-6F, 1e-6F, 1.0F}) {
        Tensors gradients;
        for (std::size_t tensor = 0;
             const ElementCount elements : {20000UL, 1UL, kChunkElements + 33, 0UL, 31UL, 5000UL})
            gradients.push_back(gaussian(elements, step_scale * scales[tensor++], random));
        step_against_sort(loop, gradients);
        has_counted = has_counted || loop.phases[1] == ScopePhase::kCount;
    }
    EXPECT_TRUE(has_counted) << "a threshold that falls by more than its margin was to be among the steps, seed "
                             << kSeed;
}
TEST(ModelScope, Usual_step_has_one_look_at_each_tensor) {
    std::mt19937_64 random(kSeed);
    ScopeLoop loop("topk(0.01, scope=model) | f32", {30000, 10000});
    for (int step = 0; step < 30; ++step)
        step_against_sort(loop, {gaussian(30000, 1, random), gaussian(10000, 2, random)});
    EXPECT_THAT(loop.phases, ElementsAre(ScopePhase::kObserve, ScopePhase::kCut, ScopePhase::kSettle));
}
TEST(ModelScope, First_step_counts_before_it_lists) {
    std::mt19937_64 random(kSeed);
    ScopeLoop loop("topk(0.01, scope=model) | f32", {3000});
    step_against_sort(loop, {gaussian(3000, 1, random)});
    EXPECT_THAT(loop.phases,
                ElementsAre(ScopePhase::kObserve, ScopePhase::kList, ScopePhase::kCut, ScopePhase::kSettle));
}
TEST(ModelScope, Threshold_too_high_gives_back_what_was_taken_to_be_sent) {
    std::mt19937_64 random(kSeed);
    ScopeLoop loop("topk(0.2, scope=model) | f32", {30000, 10000});
    step_against_sort(loop, {gaussian(30000, 1, random), gaussian(10000, 1, random)});
    Tensors few = {Values(30000), Values(10000)};
    for (std::size_t element = 0; element < 30000; element += 1000) few[0][element] = 100.0F;
    step_against_sort(loop, few);
    EXPECT_THAT(loop.phases, ElementsAre(ScopePhase::kObserve, ScopePhase::kCount, ScopePhase::kList, ScopePhase::kCut,
                                         ScopePhase::kSettle));
}
TEST(ModelScope, Ties_go_to_the_lower_tensor_and_element) {
    ScopeLoop loop("topk(0.25, scope=model) | f32", {3, 5, 8});
    ASSERT_EQ(loop.k(), 4U);
    for (int step = 0; step < 3; ++step) {
        Tensors gradients = {Values(3, 1.0F), Values(5, -1.0F), Values(8, 1.0F)};
        gradients[2][7] = -2.0F;
        step_against_sort(loop, gradients);
        if (step > 0) continue;
        EXPECT_TRUE(same_bits(loop.state(0).residual, {0, 0, 0}));
        EXPECT_TRUE(same_bits(loop.state(1).residual, Values(5, -1.0F))) << "one above, and three ties";
        EXPECT_EQ(loop.state(2).residual[7], 0.0F);
    }
}
TEST(ModelScope, Constant_tensors_longer_than_a_list_are_cut_to_the_first_ones) {
    ScopeLoop loop("topk(0.001, scope=model) | f32", {200000, 100000});
    for (int step = 0; step < 3; ++step) step_against_sort(loop, {Values(200000, 1.0F), Values(100000, 1.0F)});
}
TEST(ModelScope, Lists_that_overflow_give_back_what_they_drop) {
    std::mt19937_64 random(kSeed);
    ScopeLoop loop("topk(0.001, scope=model) | f32", {300000, 100000});
    step_against_sort(loop, {gaussian(300000, 1e-3F, random), gaussian(100000, 1e-3F, random)});
    Tensors rising = {Values(300000), Values(100000)};
    for (auto& values : rising)
        for (std::size_t element = 0; element < values.size(); ++element) values[element] = 1.0F + float(element);
    step_against_sort(loop, rising);
    EXPECT_THAT(loop.phases, Not(Contains(ScopePhase::kCount))) << "all were above the predicted threshold";
    step_against_sort(loop, {gaussian(300000, 1, random), gaussian(100000, 1, random)});
}
TEST(ModelScope, Fewer_than_k_that_are_not_zero_are_all_sent) {
    ScopeLoop loop("topk(0.5, scope=model) | f32", {6, 4});
    Tensors few = {Values(6), Values(4)};
    few[1][2] = -3.0F;
    few[0][5] = 1e-44F;
    step_against_sort(loop, few);
    step_against_sort(loop, {Values(6), Values(4)});
    step_against_sort(loop, few);
    step_against_sort(loop, {Values(6, 2.0F), Values(4, 2.0F)});
}
TEST(ModelScope, Any_steps_of_any_tensors_agree_with_sorting) {
    std::mt19937_64 random(kSeed);
    for (int trial = 0; trial < 200; ++trial) {
        std::vector<ElementCount> sizes(1 + random() % 6);
        for (auto& elements : sizes) elements = random() % 200;
        sizes[0] += 1;
        const std::string ratio = std::array{"0.001", "0.02", "0.3", "1"}[random() % 4];
        ScopeLoop loop("topk(" + ratio + ", scope=model) | f32", sizes);
        loop.form = supported_forms()[random() % supported_forms().size()];
        for (int step = 0; step < 8; ++step) {
            Tensors gradients;
            const float scale = std::ldexp(1.0F, static_cast<int>(random() % 12) - 6);
            for (const auto elements : sizes) {
                gradients.emplace_back(elements);
                for (auto& value : gradients.back()) value = scale * float(static_cast<int>(random() % 9) - 4);
            }
            step_against_sort(loop, gradients);
            ASSERT_FALSE(::testing::Test::HasFailure()) << "trial " << trial << " step " << step << " seed " << kSeed;
        }
    }
}
/// Tensors of whole groups of 32 elements, side by side, are one tensor's elements in every respect but their tiles.
TEST(ModelScope, Gate_and_variance_are_those_of_the_tensors_side_by_side) {
    std::mt19937_64 random(kSeed);
    const std::vector<ElementCount> sizes = {3200, 96, 6400};
    const ElementCount all = std::accumulate(sizes.begin(), sizes.end(), ElementCount{0});
    for (const std::string gate : {"0", "0.5", "4"}) {
        ScopeLoop parts("topk(0.05, scope=model, gate=" + gate + ") | f32", sizes, 4);
        ScopeLoop whole("topk(0.05, scope=model, gate=" + gate + ") | f32", {all}, 4);
        for (int step = 0; step < 6; ++step) {
            const float scale = step == 3 ? 1e-3F : 1.0F;
            std::vector<std::vector<Values>> gradients(sizes.size());
            std::vector<Values> joined(4);
            for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor)
                for (std::size_t sample = 0; sample < 4; ++sample) {
                    gradients[tensor].push_back(gaussian(sizes[tensor], scale, random));
                    joined[sample].insert(joined[sample].end(), gradients[tensor].back().begin(),
                                          gradients[tensor].back().end());
                }
            const auto sent = parts.step(gradients);
            const auto sent_whole = whole.step({joined});
            EXPECT_EQ(parts.phases, whole.phases);
            Values decoded, residual, variance;
            for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
                const auto values = decode_payloads(sent[tensor].chunks, sizes[tensor]);
                decoded.insert(decoded.end(), values.begin(), values.end());
                const auto& state = parts.state(tensor);
                residual.insert(residual.end(), state.residual.begin(), state.residual.end());
                variance.insert(variance.end(), state.variance.begin(), state.variance.end());
            }
            EXPECT_TRUE(same_bits(decoded, decode_payloads(sent_whole[0].chunks, all))) << gate << " step " << step;
            EXPECT_TRUE(same_bits(residual, whole.state(0).residual)) << gate << " step " << step;
            EXPECT_TRUE(same_bits(variance, whole.state(0).variance)) << gate << " step " << step;
        }
    }
}
TEST(ModelScope, One_tensor_is_encoded_as_in_its_own_scope) {
    for (const std::string front :
         {"", "momentum(0.9) | ", "momentum(0.9, clip=50) | ", "compensate(0.9, 0.5) | ", "compensate(1, 1, 0.5) | "})
        for (const std::string rest : {"f32", "bf16 | rice", "pow2", "pow2(4, scope=tensor)", "sign", "dither",
                                       "natural", "exponential_dither | bitmap", "pow2 | auto | entropy"})
            for (const std::string gate : {"0", "1"}) {
                if (!front.empty() && gate != "0") continue;
                for (const auto form : supported_forms()) {
                    std::mt19937_64 random(kSeed);
                    constexpr ElementCount kElements = 40007;
                    ScopeLoop loop(front + "topk(0.02, scope=model, gate=" + gate + ") | " + rest, {kElements}, 2);
                    loop.form = form;
                    auto input = make_input(*parse_pipeline(front + "topk(0.02, gate=" + gate + ") | " + rest),
                                            kElements, 2, DataKind::kGaussian, kSeed);
                    input.tensor = tensor_id("tensor 0");
                    auto state = zero_state(input);
                    EncodeWorkspace workspace;
                    std::uint32_t hint = 0;
                    for (Step step = 1; step <= 5; ++step) {
                        const float scale = step == 3 ? 1e-3F : 1.0F;
                        for (auto& sample : input.samples) sample = gaussian(kElements, scale, random);
                        input.step = step;
                        const auto expected = run_form(input, state, form, workspace, {}, &hint);
                        const auto found = loop.step({input.samples});
                        EXPECT_EQ(found[0].kept_elements, expected.result.kept_elements);
                        EXPECT_EQ(found[0].variance_source, expected.result.variance_source);
                        ASSERT_EQ(found[0].chunks.size(), expected.result.chunks.size());
                        for (std::size_t chunk = 0; chunk < found[0].chunks.size(); ++chunk)
                            EXPECT_TRUE(found[0].chunks[chunk].bytes == expected.result.chunks[chunk].bytes);
                        state = expected.state;
                        EXPECT_TRUE(same_bits(loop.state(0).residual, state.residual)) << front << rest << gate;
                        EXPECT_TRUE(same_bits(loop.state(0).variance, state.variance)) << front << rest << gate;
                        EXPECT_TRUE(same_bits(loop.state(0).momentum, state.momentum)) << front << rest << gate;
                    }
                }
            }
}
TEST(ModelScope, Tensor_encoded_alone_is_all_of_its_scope) {
    std::mt19937_64 random(kSeed);
    const auto gradient = gaussian(9000, 1, random);
    EncodeLoop model(*parse_pipeline("topk(0.02, scope=model) | pow2"), 9000, 1, 0);
    EncodeLoop tensor(*parse_pipeline("topk(0.02) | pow2"), 9000, 1, 0);
    for (int step = 0; step < 3; ++step)
        EXPECT_TRUE(same_bits(decode_payloads(model.step(gradient).chunks, 9000),
                              decode_payloads(tensor.step(gradient).chunks, 9000)));
}
TEST(ModelScope, Quantization_errors_stay_in_every_tensors_residual) {
    for (const std::string quantizer : {"pow2", "bf16", "sign", "dither", "natural", "pow2(4, scope=tensor)"}) {
        std::mt19937_64 random(kSeed);
        const std::vector<ElementCount> sizes = {5000, 700, 12000};
        ScopeLoop loop("topk(0.03, scope=model) | " + quantizer, sizes);
        for (int step = 0; step < 6; ++step) {
            Tensors before;
            std::vector<std::vector<Values>> gradients;
            for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
                before.push_back(loop.state(tensor).residual);
                gradients.push_back({gaussian(sizes[tensor], step == 4 ? 1e-3F : float(tensor + 1), random)});
            }
            const auto results = loop.step(gradients);
            for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
                const auto decoded = decode_payloads(results[tensor].chunks, sizes[tensor]);
                Values expected(sizes[tensor]);
                for (std::size_t element = 0; element < sizes[tensor]; ++element)
                    expected[element] = (before[tensor][element] + gradients[tensor][0][element]) - decoded[element];
                EXPECT_TRUE(same_bits(loop.state(tensor).residual, expected)) << quantizer << " step " << step;
            }
        }
    }
}
TEST(ModelScope, Member_with_a_nan_takes_no_part_and_the_others_share_out_its_share) {
    std::mt19937_64 random(kSeed);
    ScopeLoop loop("topk(0.1, scope=model) | f32", {500, 400, 100});
    for (int step = 0; step < 2; ++step) {
        std::vector<std::vector<Values>> gradients = {
            {gaussian(500, 1, random)}, {gaussian(400, 1, random)}, {gaussian(100, 1, random)}};
        gradients[1][0][77] = std::numeric_limits<float>::quiet_NaN();
        const auto before = loop.state(1).residual;
        const auto results = loop.step(gradients);
        ASSERT_TRUE(results[1].non_finite.has_value());
        EXPECT_EQ(results[1].non_finite->element, 77U);
        EXPECT_TRUE(results[1].chunks.empty());
        EXPECT_TRUE(same_bits(loop.state(1).residual, before));
        EXPECT_EQ(results[0].kept_elements + results[2].kept_elements, 100U);
    }
    step_against_sort(loop, {gaussian(500, 1, random), gaussian(400, 1, random), gaussian(100, 1, random)});
}
TEST(ModelScope, Phases_of_other_codecs_and_cuts_of_one_tensor_are_refused) {
    const auto pipeline = *parse_pipeline("topk(0.1)");
    const auto model = *parse_pipeline("topk(0.1, scope=model)");
    Values values(4, 1.0F), in(4), out(4);
    const float* sample = values.data();
    const float weight = 1;
    EncodeRequest request;
    request.pipeline = &pipeline;
    request.elements = 4;
    request.samples = {&sample, 1};
    request.weights = {&weight, 1};
    request.in.residual = in.data();
    request.out.residual = out.data();
    ScopeMember member;
    EncodeWorkspace workspace;
    EXPECT_THAT(encode_member(ScopePhase::kObserve, {}, request, member, workspace).status().to_string(),
                HasSubstr("call encode_tensor"));
    request.pipeline = &model;
    EXPECT_TRUE(encode_member(ScopePhase::kObserve, {}, request, member, workspace).is_ok());
    EXPECT_THAT(encode_member(ScopePhase::kCut, {}, request, member, workspace).status().to_string(),
                HasSubstr("cut_scope"));
    request.weights = {};
    EXPECT_THAT(encode_member(ScopePhase::kObserve, {}, request, member, workspace).status().to_string(),
                HasSubstr("weights"));
}

}  // namespace
}  // namespace gradsieve::codec
