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
    request.node_count = input.node_count;
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
