// Properties that hold for any codec, size and data: RapidCheck draws them and prints its seed.
#include "codec/select_topk.hpp"
#include "encoder_harness.hpp"

#include <rapidcheck.h>

#include <atomic>
#include <cmath>
#include <thread>

namespace gradsieve::codec {
namespace {

NamedPipeline any_pipeline() {
    const auto pipelines = every_pipeline();
    return pipelines[*rc::gen::inRange<std::size_t>(0, pipelines.size())];
}
DataKind any_finite_kind() {
    const auto kinds = every_data_kind();
    return kinds[*rc::gen::inRange<std::size_t>(0, kinds.size() - 2)];
}

TEST(EncoderProperty, Any_step_of_any_codec_equals_the_reference) {
    EXPECT_TRUE(rc::check("form against reference", [] {
        const NamedPipeline named = any_pipeline();
        const auto elements = *rc::gen::inRange<ElementCount>(0, 6000);
        const auto samples = *rc::gen::inRange<std::size_t>(1, 10);
        const auto seed = *rc::gen::arbitrary<std::uint64_t>();
        auto input = make_input(named.pipeline, elements, samples, any_finite_kind(), seed);
        for (float& weight : input.weights) weight = static_cast<float>(*rc::gen::inRange(0, 100)) / 100.0F;
        input.step = *rc::gen::inRange<Step>(0, 7);
        input.node_count = *rc::gen::inRange<std::uint32_t>(1, 10);
        input.batch_samples = *rc::gen::inRange<std::uint64_t>(0, 100);
        const float rescale = std::ldexp(1.0F, *rc::gen::inRange(-3, 4)) * 1.25F;
        if (!has_delta(named.pipeline)) input.rescale = rescale;
        reference::State state = zero_state(input);
        std::mt19937_64 random(seed);
        for (float& value : state.residual) value = std::ldexp(static_cast<float>(random() % 1000) - 500, -8);
        for (float& value : state.variance) value = std::ldexp(static_cast<float>(random() % 1000), -8);
        for (float& value : state.momentum) value = std::ldexp(static_cast<float>(random() % 1000) - 500, -8);
        EncodeWorkspace workspace;
        const auto forms = supported_forms();
        const CpuForm form = forms[*rc::gen::inRange<std::size_t>(0, forms.size())];
        const Placement placement{*rc::gen::inRange<std::size_t>(0, 16), true};
        const auto expected = reference::encode(input, state);
        const auto same = equals_reference(run_form(input, state, form, workspace, placement), expected);
        if (!same) RC_FAIL(named.name + ": " + same.message());
    }));
}
TEST(EncoderProperty, Bytes_never_depend_on_the_hint) {
    EXPECT_TRUE(rc::check("top-k with any hint", [] {
        const double gate = *rc::gen::element(0.0, 0.5, 1.0);
        const double ratio = *rc::gen::element(0.001, 0.01, 0.3, 1.0);
        const auto pipeline = top_k_pipeline(ratio, gate, QuantizerKind::kPow2);
        const auto elements = *rc::gen::inRange<ElementCount>(1, 20000);
        const auto input = make_input(pipeline, elements, 1 + elements % 2, any_finite_kind(), elements);
        reference::State state = zero_state(input);
        EncodeWorkspace workspace;
        const FormOutput plain = run_form(input, state, fastest_cpu_form(), workspace);
        // The low five bits are the margin's logarithm, usable from 17 to 21.
        const auto near = rc::gen::map(
            rc::gen::pair(rc::gen::inRange<std::uint32_t>(0x3D000000U, 0x40800000U), rc::gen::inRange(15U, 24U)),
            [](const auto& pair) { return (pair.first & ~31U) | pair.second; });
        const std::uint32_t given = *rc::gen::oneOf(
            rc::gen::arbitrary<std::uint32_t>(), near, near,
            rc::gen::element(0U, 1U, 0x7F7FFFF1U, 0x7F800011U, 0xFFFFFFFFU, 0x7F7FFFF5U, 0x00200015U, 0x00020011U));
        std::uint32_t hint = given;
        const FormOutput hinted = run_form(input, state, fastest_cpu_form(), workspace, {}, &hint);
        RC_ASSERT(same_bits(hinted.state.residual, plain.state.residual));
        RC_ASSERT(same_bits(hinted.state.variance, plain.state.variance));
        RC_ASSERT(hinted.result.chunks.size() == plain.result.chunks.size());
        for (std::size_t chunk = 0; chunk < plain.result.chunks.size(); ++chunk) {
            RC_ASSERT(hinted.result.chunks[chunk].bytes == plain.result.chunks[chunk].bytes);
        }
        // The hint left behind is good enough for the same step again.
        const FormOutput again = run_form(input, state, fastest_cpu_form(), workspace, {}, &hint);
        RC_ASSERT(again.result.kept_elements == plain.result.kept_elements);
    }));
}
TEST(EncoderProperty, Guesses_of_a_list_that_overflows_are_undone) {
    for (const double gate : {0.0, 0.5}) {
        const auto pipeline = top_k_pipeline(0.01, gate, QuantizerKind::kPow2);
        const auto input = make_input(pipeline, 300000, 2, DataKind::kGaussian, 12);
        const reference::State state = zero_state(input);
        EncodeWorkspace workspace;
        const FormOutput plain = run_form(input, state, fastest_cpu_form(), workspace);
        // Everything above a thousandth is taken to be sent: the list is cut several times, and most cells go.
        for (const float threshold : {0.001F, 0.5F, 100.0F}) {
            for (const CpuForm form : supported_forms()) {
                std::uint32_t hint = (std::bit_cast<std::uint32_t>(threshold) & ~31U) | 20U;
                ASSERT_TRUE(TopKHint(hint).is_known());
                const FormOutput hinted = run_form(input, state, form, workspace, {}, &hint);
                EXPECT_TRUE(same_bits(hinted.state.residual, plain.state.residual)) << threshold;
                EXPECT_TRUE(same_bits(hinted.state.variance, plain.state.variance)) << threshold;
                ASSERT_EQ(hinted.result.chunks.size(), 1U);
                EXPECT_EQ(hinted.result.chunks[0].bytes, plain.result.chunks[0].bytes) << threshold;
            }
        }
    }
}
TEST(EncoderProperty, The_same_step_twice_gives_the_same_bytes) {
    for (const NamedPipeline& named : every_pipeline()) {
        const auto input = make_input(named.pipeline, 5000, 2, DataKind::kHeavyTailed, 9);
        EncodeWorkspace first_workspace;
        EncodeWorkspace second_workspace;
        const auto other = make_input(named.pipeline, 9000, 3, DataKind::kConstant, 10);
        static_cast<void>(run_form(other, zero_state(other), fastest_cpu_form(), second_workspace));
        const auto first = run_form(input, zero_state(input), fastest_cpu_form(), first_workspace);
        const auto second = run_form(input, zero_state(input), fastest_cpu_form(), second_workspace);
        EXPECT_TRUE(same_bits(first.state.residual, second.state.residual)) << named.name;
        EXPECT_TRUE(same_bits(first.state.variance, second.state.variance)) << named.name;
        EXPECT_TRUE(same_bits(first.state.momentum, second.state.momentum)) << named.name;
        ASSERT_EQ(first.result.chunks.size(), second.result.chunks.size()) << named.name;
        for (std::size_t chunk = 0; chunk < first.result.chunks.size(); ++chunk) {
            EXPECT_EQ(first.result.chunks[chunk].bytes, second.result.chunks[chunk].bytes) << named.name;
        }
    }
}
TEST(EncoderProperty, Feedback_changes_what_is_sent) {
    for (const NamedPipeline& named : every_pipeline()) {
        if (!has_residual(named.pipeline)) continue;
        std::mt19937_64 random(4);
        EncodeLoop kept(named.pipeline, 4000, 1, 0);
        EncodeLoop dropped(named.pipeline, 4000, 1, 0);
        bool is_same = true;
        for (int step = 0; step < 4; ++step) {
            const auto gradient = make_gradient(DataKind::kGaussian, 4000, random);
            std::ranges::fill(dropped.residual(), 0.0F);
            const auto with = decode_payloads(kept.step(gradient).chunks, 4000);
            is_same = is_same && same_bits(with, decode_payloads(dropped.step(gradient).chunks, 4000));
        }
        const bool sends_everything = named.name == "variance(0)|f32";  // nothing is left to feed back
        EXPECT_EQ(is_same, sends_everything || named.pipeline.front.beta == 0) << named.name;
    }
}
TEST(EncoderProperty, A_client_that_writes_meanwhile_harms_nobody) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the data race is the point of this test";
#endif
    for (const NamedPipeline& named : every_pipeline()) {
        constexpr ElementCount kElements = 50000;
        std::vector<float> gradient(kElements, 1.0F);
        std::atomic<bool> is_over{false};
        std::thread client([&] {
            const std::array<float, 5> values = {NAN, 1.0F, INFINITY, -3e38F, 1e-41F};
            for (std::uint64_t turn = 0; !is_over.load(std::memory_order_relaxed); ++turn) {
                static_cast<volatile float*>(gradient.data())[turn * 7919 % kElements] = values[turn / 11 % 5];
            }
        });
        const std::array<const float*, 2> samples = {gradient.data(), gradient.data()};
        const std::array<float, 2> weights = {0.5F, 0.5F};
        const std::vector<float> zeros(kElements);
        reference::State states[2] = {{zeros, zeros, zeros}, {zeros, zeros, zeros}};
        EncodeRequest request;
        request.pipeline = &named.pipeline;
        request.elements = kElements;
        request.samples = samples;
        request.weights = weights;
        request.in = {states[0].residual.data(), states[0].variance.data(), states[0].momentum.data()};
        request.out = {states[1].residual.data(), states[1].variance.data(), states[1].momentum.data()};
        EncodeWorkspace workspace;
        for (int call = 0; call < 20; ++call) {
            const auto result = encode_tensor(request, workspace);
            ASSERT_TRUE(result.is_ok());
            if (result->non_finite) {
                EXPECT_LT(result->non_finite->element, kElements);
                EXPECT_LT(result->non_finite->sample_index, 2U);
                continue;
            }
            static_cast<void>(decode_payloads(result->chunks, kElements));
            for (const float value : states[1].residual) ASSERT_TRUE(std::isfinite(value)) << named.name;
        }
        is_over.store(true, std::memory_order_relaxed);
        client.join();
    }
}

}  // namespace
}  // namespace gradsieve::codec
