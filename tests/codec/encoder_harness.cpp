#include "encoder_harness.hpp"

#include "codec/decoder.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace gradsieve::codec {
namespace {

constexpr float kPoison = -1.25e17F;
constexpr std::size_t kFence = 16;

Pipeline make_pipeline(const Selector& selector, QuantizerKind kind, Scope scope) {
    Pipeline pipeline;
    pipeline.selector = selector;
    pipeline.quantizer.kind = kind;
    pipeline.quantizer.scope = scope;
    return pipeline;
}

/// An array at a chosen distance from a 64-byte boundary, between fences.
class PlacedArray {
public:
    PlacedArray(ElementCount elements, std::size_t offset_floats, float fill)
        : elements_(elements), memory_(elements + 2 * kFence + 32 + offset_floats, kPoison) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kFence);
        const std::size_t to_boundary = (64 - address % 64) % 64 / sizeof(float);
        data_ = memory_.data() + kFence + to_boundary + offset_floats;
        std::fill_n(data_, elements, fill);
    }
    PlacedArray(const std::vector<float>& values, std::size_t offset_floats)
        : PlacedArray(values.size(), offset_floats, 0.0F) {
        std::copy(values.begin(), values.end(), data_);
    }
    PlacedArray(PlacedArray&&) = default;

    [[nodiscard]] float* data() { return data_; }
    [[nodiscard]] std::vector<float> values() const { return {data_, data_ + elements_}; }
    [[nodiscard]] bool is_fenced() const {
        return std::all_of(memory_.data(), static_cast<const float*>(data_),
                           [](float cell) { return cell == kPoison; }) &&
               std::all_of(static_cast<const float*>(data_) + elements_, memory_.data() + memory_.size(),
                           [](float cell) { return cell == kPoison; });
    }

private:
    ElementCount elements_;
    std::vector<float> memory_;
    float* data_ = nullptr;
};

float special_value(DataKind kind, float normal, std::mt19937_64& random) {
    const std::uint64_t dice = random();
    switch (kind) {
        case DataKind::kHeavyTailed:
            return normal / std::max(0.001F, std::fabs(static_cast<float>(dice % 2000) - 1000.0F) / 1000.0F);
        case DataKind::kConstant: return 0.75F;
        case DataKind::kZero: return 0.0F;
        case DataKind::kSignedZeros: return (dice & 1U) != 0 ? -0.0F : 0.0F;
        case DataKind::kSubnormal: return normal * 1e-40F;
        case DataKind::kNearMaximum: return std::copysign(FLT_MAX / 16.0F * static_cast<float>(1 + dice % 3), normal);
        case DataKind::kWideRange: return std::ldexp(normal, static_cast<int>(dice % 120) - 60);
        case DataKind::kGaussian:
        case DataKind::kNotANumber:
        case DataKind::kInfinite: break;
    }
    return normal;
}

}  // namespace

Pipeline all_pipeline(QuantizerKind quantizer) { return make_pipeline({}, quantizer, Scope::kTile); }
Pipeline variance_pipeline(double alpha, QuantizerKind quantizer, Scope scope) {
    Selector selector;
    selector.kind = SelectorKind::kVariance;
    selector.alpha = alpha;
    return make_pipeline(selector, quantizer, scope);
}
Pipeline faithful_pipeline(double alpha, QuantizerKind quantizer, Scope scope) {
    Pipeline pipeline = variance_pipeline(alpha, quantizer, scope);
    pipeline.selector.is_faithful = true;
    return pipeline;
}
Pipeline hybrid_pipeline(double alpha, double tau) {
    Pipeline pipeline = variance_pipeline(alpha, QuantizerKind::kSign);
    pipeline.selector.kind = SelectorKind::kVarianceHybrid;
    pipeline.selector.tau = tau;
    pipeline.quantizer.tau = tau;
    return pipeline;
}
Pipeline threshold_pipeline(double tau, QuantizerKind quantizer, Scope scope) {
    Selector selector;
    selector.kind = SelectorKind::kThreshold;
    selector.tau = tau;
    Pipeline pipeline = make_pipeline(selector, quantizer, scope);
    if (quantizer == QuantizerKind::kSign) pipeline.quantizer.tau = tau;
    return pipeline;
}
Pipeline top_k_pipeline(double ratio, double gate, QuantizerKind quantizer, Scope scope) {
    Selector selector;
    selector.kind = SelectorKind::kTopK;
    selector.ratio = ratio;
    selector.gate = gate;
    return make_pipeline(selector, quantizer, scope);
}

Pipeline dither_pipeline(const Selector& selector, int levels, Norm norm, Feedback feedback) {
    Pipeline pipeline = make_pipeline(selector, QuantizerKind::kDither, Scope::kTile);
    pipeline.quantizer.levels = levels;
    pipeline.quantizer.norm = norm;
    pipeline.quantizer.feedback = feedback;
    return pipeline;
}

Pipeline natural_pipeline(const Selector& selector, Feedback feedback) {
    Pipeline pipeline = make_pipeline(selector, QuantizerKind::kNatural, Scope::kTile);
    pipeline.quantizer.feedback = feedback;
    return pipeline;
}

std::vector<NamedPipeline> every_pipeline() {
    using enum QuantizerKind;
    return {{"all|f32", all_pipeline(kF32)},
            {"all|f16", all_pipeline(kF16)},
            {"all|bf16", all_pipeline(kBf16)},
            {"all|pow2", all_pipeline(kPow2)},
            {"all|sign", all_pipeline(kSign)},
            {"all|sign(two_mean)", *parse_pipeline("all | sign(scale=two_mean)")},
            {"topk|sign(two_mean)", *parse_pipeline("topk(0.1) | sign(scale=two_mean)")},
            {"all|sign(none)", *parse_pipeline("all | sign(scale=none)")},
            {"all|dither", dither_pipeline({}, 7)},
            {"all|dither(127, unscaled)", dither_pipeline({}, 127, Norm::kMax, Feedback::kUnscaled)},
            {"all|dither(3, l2)", dither_pipeline({}, 3, Norm::kL2)},
            {"all|dither(7, none)", dither_pipeline({}, 7, Norm::kMax, Feedback::kNone)},
            {"all|dither(1, l2, none)", dither_pipeline({}, 1, Norm::kL2, Feedback::kNone)},
            {"all|ternary", *parse_pipeline("all | ternary")},
            {"all|exponential", *parse_pipeline("all | exponential_dither")},
            {"all|exponential(none)", *parse_pipeline("all | exponential_dither(15, 1.5, norm=l2, feedback=none)")},
            {"topk|exponential(biased)", *parse_pipeline("topk(0.2) | exponential_dither(mode=biased)")},
            {"block_topk|f32", *parse_pipeline("block_topk(0.1)")},
            {"block_topk(64)|pow2", *parse_pipeline("block_topk(0.05, block=64) | pow2(scope=tensor)")},
            {"gaussian_k|f32", *parse_pipeline("gaussian_k(0.05)")},
            {"gaussian_k|pow2(tensor)", *parse_pipeline("gaussian_k(0.01) | pow2(scope=tensor)")},
            {"sidco|sign", *parse_pipeline("sidco(0.02) | sign")},
            {"sidco(1)|natural", *parse_pipeline("sidco(0.1, stages=1) | natural")},
            {"sidco(5)|dither", *parse_pipeline("sidco(0.001, stages=5) | dither")},
            {"momentum|topk|f32", *parse_pipeline("momentum(0.9) | topk(0.05)")},
            {"momentum|threshold|pow2", *parse_pipeline("momentum(0.5, nesterov=yes) | threshold(0.5) | pow2")},
            {"momentum|block_topk|dither", *parse_pipeline("momentum(nesterov=yes) | block_topk(0.1) | dither")},
            {"momentum|all|sign", *parse_pipeline("momentum(0.9, nesterov=yes) | all | sign")},
            {"momentum|all|f32", *parse_pipeline("momentum(0.5) | all")},
            {"compensate|topk|f32", *parse_pipeline("compensate(0.7) | topk(0.05)")},
            {"compensate|all|sign", *parse_pipeline("compensate(0.9, 0.3) | all | sign")},
            {"compensate|randk|natural", *parse_pipeline("compensate(0, 0.8) | randk(0.2) | natural")},
            {"compensate|all|dither(none)", *parse_pipeline("compensate(gamma=0.1) | all | dither(feedback=none)")},
            {"momentum|compensate|block_topk",
             *parse_pipeline("momentum(nesterov=yes) | compensate(0.5, 0.7) | block_topk(0.1) | pow2")},
            {"momentum|compensate|all", *parse_pipeline("momentum(0.5) | compensate(gamma=0.3) | all | f32")},
            {"randk|f32", *parse_pipeline("randk(0.1)")},
            {"randk(none)|f32", *parse_pipeline("randk(0.03, none)")},
            {"randk(0.7)|sign", *parse_pipeline("randk(0.7) | sign")},
            {"randk(1)|natural", *parse_pipeline("randk(1) | natural(unscaled)")},
            {"randk(none)|dither", *parse_pipeline("randk(0.4, none) | dither(3, l2)")},
            {"bernoulli|f16", *parse_pipeline("bernoulli(0.2) | f16")},
            {"bernoulli(none)|exponential", *parse_pipeline("bernoulli(0.9, none) | exponential_dither")},
            {"bernoulli(none)|f32", *parse_pipeline("bernoulli(1e-4, none)")},
            {"adaptive_random|f32", *parse_pipeline("adaptive_random(0.05)")},
            {"adaptive_random(64)|pow2", *parse_pipeline("adaptive_random(0.3, 64) | pow2(4)")},
            {"adaptive_random|sign", *parse_pipeline("adaptive_random(1e-4, block=512) | sign")},
            {"biased_random|bf16", *parse_pipeline("biased_random(0.9, 0.01) | bf16")},
            {"biased_random|ternary", *parse_pipeline("biased_random(0.1, 1) | ternary")},
            {"all|minmax", *parse_pipeline("all | minmax")},
            {"all|minmax(8, 64, unscaled)", *parse_pipeline("all | minmax(8, 64, unscaled)")},
            {"all|minmax(2, 4096, none)", *parse_pipeline("all | minmax(2, 4096, none)")},
            {"all|rounding(1.1)", *parse_pipeline("all | rounding(1.1)")},
            {"all|natural|entropy", *parse_pipeline("all | natural | entropy")},
            {"topk|pow2|entropy", *parse_pipeline("topk(0.2) | pow2 | entropy")},
            {"topk|ternary(1)", *parse_pipeline("topk(0.2) | ternary(clip=1)")},
            {"all|natural", natural_pipeline({})},
            {"all|natural(unscaled)", natural_pipeline({}, Feedback::kUnscaled)},
            {"all|natural(none)", natural_pipeline({}, Feedback::kNone)},
            {"variance|natural", natural_pipeline(variance_pipeline(0.5, kF32).selector)},
            {"faithful|natural", natural_pipeline(faithful_pipeline(1.0, kF32).selector, Feedback::kNone)},
            {"threshold|natural", natural_pipeline(threshold_pipeline(0.5, kF32).selector, Feedback::kUnscaled)},
            {"topk|natural", natural_pipeline(top_k_pipeline(0.1, 0, kF32).selector)},
            {"variance|f32", variance_pipeline(1.5, kF32)},
            {"variance|f16", variance_pipeline(1.0, kF16)},
            {"variance|bf16", variance_pipeline(1.0, kBf16)},
            {"variance|pow2", variance_pipeline(0.5, kPow2)},
            {"variance|pow2(tensor)", variance_pipeline(0.5, kPow2, Scope::kTensor)},
            {"variance|dither", dither_pipeline(variance_pipeline(0.5, kF32).selector, 7)},
            {"faithful|dither", dither_pipeline(faithful_pipeline(0.5, kF32).selector, 7, Norm::kMax, Feedback::kNone)},
            {"variance|sign", variance_pipeline(1.0, kSign)},
            {"variance(0)|f32", variance_pipeline(0.0, kF32)},
            {"faithful|f32", faithful_pipeline(1.0, kF32)},
            {"faithful|pow2(tensor)", faithful_pipeline(0.5, kPow2, Scope::kTensor)},
            {"hybrid|sign(tau)", hybrid_pipeline(1.0, 0.5)},
            {"threshold|sign(tau)", threshold_pipeline(0.5, kSign)},
            {"threshold|f32", threshold_pipeline(1.0, kF32)},
            {"threshold|bf16", threshold_pipeline(0.25, kBf16)},
            {"threshold|pow2", threshold_pipeline(0.5, kPow2)},
            {"threshold|pow2(tensor)", threshold_pipeline(0.25, kPow2, Scope::kTensor)},
            {"threshold|dither", dither_pipeline(threshold_pipeline(0.5, kF32).selector, 7)},
            {"topk|f32", top_k_pipeline(0.01, 0, kF32)},
            {"topk|f16", top_k_pipeline(0.1, 0, kF16)},
            {"topk|bf16", top_k_pipeline(0.1, 0, kBf16)},
            {"topk|pow2(tensor)", top_k_pipeline(0.1, 0, kPow2, Scope::kTensor)},
            {"topk|dither(31, l2)", dither_pipeline(top_k_pipeline(0.1, 0, kF32).selector, 31, Norm::kL2)},
            {"topk(1)|dither(1)", dither_pipeline(top_k_pipeline(1.0, 0, kF32).selector, 1)},
            {"topk(1)|pow2", top_k_pipeline(1.0, 0, kPow2)},
            {"topk(gate)|f32", top_k_pipeline(0.1, 1.0, kF32)},
            {"topk(gate)|sign", top_k_pipeline(0.03, 0.5, kSign)}};
}

std::vector<CpuForm> supported_forms() {
    std::vector<CpuForm> forms;
    for (const CpuForm form : cpu_forms()) {
        if (is_cpu_form_supported(form)) forms.push_back(form);
    }
    return forms;
}

std::vector<DataKind> every_data_kind() {
    using enum DataKind;
    return {kGaussian,  kHeavyTailed, kConstant,  kZero,       kSignedZeros,
            kSubnormal, kNearMaximum, kWideRange, kNotANumber, kInfinite};
}

std::string data_kind_name(DataKind kind) {
    static const std::vector<std::string> names = {"gaussian",     "heavy-tailed", "constant",     "zero",
                                                   "signed zeros", "subnormal",    "near maximum", "wide range",
                                                   "not a number", "infinite"};
    return names[static_cast<std::size_t>(kind)];
}

std::vector<float> make_gradient(DataKind kind, ElementCount elements, std::mt19937_64& random) {
    std::normal_distribution<float> normal;
    std::vector<float> gradient(elements);
    for (float& value : gradient) value = special_value(kind, normal(random), random);
    if (elements == 0) return gradient;
    const ElementCount place = elements - 1 - random() % std::min<ElementCount>(elements, 40);
    if (kind == DataKind::kNotANumber) gradient[place] = std::nanf("");
    if (kind == DataKind::kInfinite) gradient[place] = -INFINITY;
    return gradient;
}

reference::Input make_input(const Pipeline& pipeline, ElementCount elements, std::size_t samples, DataKind kind,
                            std::uint64_t seed) {
    std::mt19937_64 random(seed);
    reference::Input input;
    input.pipeline = pipeline;
    input.elements = elements;
    for (std::size_t sample = 0; sample < samples; ++sample) {
        const bool is_special = kind != DataKind::kNotANumber && kind != DataKind::kInfinite;
        const bool is_struck = sample == samples - 1;  // one sample is enough to spoil the step
        input.samples.push_back(make_gradient(is_special || is_struck ? kind : DataKind::kGaussian, elements, random));
    }
    input.weights.assign(samples, 1.0F / static_cast<float>(samples));
    return input;
}

reference::State zero_state(const reference::Input& input) {
    reference::State state;
    if (has_residual(input.pipeline)) state.residual.assign(input.elements, 0.0F);
    if (has_variance(input.pipeline)) state.variance.assign(input.elements, 0.0F);
    if (has_momentum(input.pipeline)) state.momentum.assign(input.elements, 0.0F);
    return state;
}

FormOutput run_form(const reference::Input& input, const reference::State& before, CpuForm form,
                    EncodeWorkspace& workspace, Placement placement, std::uint32_t* selection_hint) {
    std::vector<PlacedArray> samples;
    std::vector<PlacedArray> moments;
    std::vector<const float*> sample_pointers;
    std::vector<const float*> moment_pointers;
    for (const auto& sample : input.samples) samples.emplace_back(sample, placement.offset_floats);
    for (const auto& moment : input.second_moments) moments.emplace_back(moment, placement.offset_floats);
    for (auto& sample : samples) sample_pointers.push_back(sample.data());
    for (auto& moment : moments) moment_pointers.push_back(moment.data());
    PlacedArray residual_in(before.residual, placement.offset_floats);
    PlacedArray variance_in(before.variance, placement.offset_floats);
    PlacedArray momentum_in(before.momentum, placement.offset_floats);
    PlacedArray residual_out(before.residual.size(), placement.offset_floats, kPoison);
    PlacedArray variance_out(before.variance.size(), placement.offset_floats, kPoison);
    PlacedArray momentum_out(before.momentum.size(), placement.offset_floats, kPoison);

    EncodeRequest request;
    request.pipeline = &input.pipeline;
    request.tensor = input.tensor;
    request.step = input.step;
    request.random_seed = input.random_seed;
    request.selection_seed = input.selection_seed;
    request.elements = input.elements;
    request.samples = sample_pointers;
    request.weights = input.weights;
    request.second_moments = moment_pointers;
    request.batch_samples = input.batch_samples;
    request.rescale = input.rescale;
    request.selection_hint = selection_hint;
    if (!before.residual.empty()) request.in.residual = residual_in.data();
    if (!before.residual.empty()) request.out.residual = residual_out.data();
    if (!before.variance.empty()) request.in.variance = variance_in.data();
    if (!before.variance.empty()) request.out.variance = variance_out.data();
    if (!before.momentum.empty()) request.in.momentum = momentum_in.data();
    if (!before.momentum.empty()) request.out.momentum = momentum_out.data();

    auto result = encode_tensor_with(request, {form, input.may_pool, placement.may_stream}, workspace);
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_TRUE(same_bits(residual_in.values(), before.residual)) << "the generation read must not change";
    EXPECT_TRUE(same_bits(variance_in.values(), before.variance)) << "the generation read must not change";
    EXPECT_TRUE(same_bits(momentum_in.values(), before.momentum)) << "the generation read must not change";
    EXPECT_TRUE(residual_out.is_fenced() && variance_out.is_fenced() && momentum_out.is_fenced())
        << "wrote outside the arrays";
    FormOutput output{{residual_out.values(), variance_out.values(), momentum_out.values()}, {}};
    if (result.is_ok()) output.result = std::move(*result);
    return output;
}

std::vector<float> decode_payloads(const std::vector<ChunkPayload>& chunks, ElementCount elements) {
    std::vector<float> average(elements, 0.0F);
    ResultTensor tensor(tensor_id("tensor"), average.data(), elements);
    std::vector<ChunkView> views;
    for (const ChunkPayload& chunk : chunks) views.push_back({chunk.chunk_index, chunk.bytes});
    const std::array contributions = {Contribution{1.0F, views}};
    const auto result = tensor.decode_average(1, contributions);
    EXPECT_TRUE(result.is_ok()) << result.status().to_string();
    return average;
}

std::vector<ElementCount> sent_elements(const std::vector<float>& decoded) {
    std::vector<ElementCount> sent;
    for (ElementCount element = 0; element < decoded.size(); ++element) {
        if (decoded[element] != 0) sent.push_back(element);
    }
    return sent;
}

::testing::AssertionResult same_bits(const std::vector<float>& left, const std::vector<float>& right) {
    if (left.size() != right.size()) {
        return ::testing::AssertionFailure() << left.size() << " elements against " << right.size();
    }
    if (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0) {
        return ::testing::AssertionSuccess();
    }
    std::size_t element = 0;
    while (std::bit_cast<std::uint32_t>(left[element]) == std::bit_cast<std::uint32_t>(right[element])) ++element;
    return ::testing::AssertionFailure() << "element " << element << " of " << left.size() << ": " << left[element]
                                         << " against " << right[element];
}

::testing::AssertionResult equals_reference(const FormOutput& form, const reference::Output& expected) {
    const EncodeResult& result = form.result;
    if (result.variance_source != expected.variance_source) {
        return ::testing::AssertionFailure() << "variance source " << variance_source_name(result.variance_source)
                                             << " against " << variance_source_name(expected.variance_source);
    }
    if (result.non_finite.has_value() != expected.non_finite.has_value()) {
        return ::testing::AssertionFailure() << "one of them says non-finite";
    }
    if (expected.non_finite) {
        if (result.non_finite->element != expected.non_finite->element ||
            result.non_finite->sample_index != expected.non_finite->sample_index) {
            return ::testing::AssertionFailure()
                   << "non-finite at element " << result.non_finite->element << " sample "
                   << result.non_finite->sample_index << " against " << expected.non_finite->element << " sample "
                   << expected.non_finite->sample_index;
        }
        if (!result.chunks.empty()) return ::testing::AssertionFailure() << "payloads of a non-finite step";
        return ::testing::AssertionSuccess();
    }
    if (const auto same = same_bits(form.state.residual, expected.state.residual); !same) {
        return ::testing::AssertionFailure() << "residual: " << same.message();
    }
    if (const auto same = same_bits(form.state.variance, expected.state.variance); !same) {
        return ::testing::AssertionFailure() << "variance: " << same.message();
    }
    if (const auto same = same_bits(form.state.momentum, expected.state.momentum); !same) {
        return ::testing::AssertionFailure() << "momentum: " << same.message();
    }
    if (result.kept_elements != expected.kept_elements) {
        return ::testing::AssertionFailure()
               << "kept " << result.kept_elements << " against " << expected.kept_elements;
    }
    if (result.chunks.size() != expected.chunks.size()) {
        return ::testing::AssertionFailure() << result.chunks.size() << " payloads against " << expected.chunks.size();
    }
    for (std::size_t chunk = 0; chunk < result.chunks.size(); ++chunk) {
        if (result.chunks[chunk].chunk_index != expected.chunks[chunk].chunk_index ||
            result.chunks[chunk].bytes != expected.chunks[chunk].bytes) {
            return ::testing::AssertionFailure() << "payload " << chunk << " differs";
        }
    }
    return ::testing::AssertionSuccess();
}

}  // namespace gradsieve::codec
