#include "tests/codec/payload_cases.hpp"

#include "codec/rotation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

namespace gradsieve::test {
namespace {

// Twelve uniform 16-bit integers: near normal, and exact in fp32.
float gaussian(std::uint64_t& state) {
    std::int64_t sum = -6 * 65535;
    for (unsigned draw = 0; draw < 3; ++draw) {
        const std::uint64_t word = random_word(state);
        for (unsigned part = 0; part < 4; ++part) sum += static_cast<std::int64_t>((word >> (16 * part)) & 0xFFFFU);
    }
    return static_cast<float>(sum) * 0x1p-20F;
}

// Random sign and mantissa, exponent falling off by halves from a random place: spans tens of octaves.
float heavy_tailed(std::uint64_t& state) {
    const std::uint64_t word = random_word(state);
    const auto octaves = static_cast<std::uint32_t>(std::countl_zero(random_word(state) | 1U) * 2);
    const std::uint32_t exponent = 100 + (word >> 60U) + octaves;
    return std::bit_cast<float>(static_cast<std::uint32_t>(word & 0x807FFFFFU) | (exponent << 23U));
}

std::vector<PipelineCase> make_pipeline_cases() {
    std::vector<PipelineCase> cases;
    const auto add = [&](const std::string& text, bool is_dense) {
        const auto pipeline = codec::parse_pipeline(text);
        if (!pipeline.is_ok()) throw std::logic_error(text + ": " + pipeline.error().to_string());
        cases.push_back({text, *pipeline, is_dense});
    };
    const std::vector<std::string> quantizers = {"f32",
                                                 "f16",
                                                 "bf16",
                                                 "pow2(bits=2)",
                                                 "pow2(bits=4)",
                                                 "pow2(bits=8)",
                                                 "pow2(scope=tensor)",
                                                 "sign",
                                                 "sign(scale=0.01)",
                                                 "sign(scale=two_mean)",
                                                 "sign(scale=none)",
                                                 "natural",
                                                 "natural(feedback=unscaled)",
                                                 "dither",
                                                 "dither(levels=1)",
                                                 "ternary",
                                                 "rounding(1.5)",
                                                 "rounding(2, biased)",
                                                 "exponential_dither",
                                                 "exponential_dither(1, 2, biased)",
                                                 "exponential_dither(31, 1.5, unbiased, l2)",
                                                 "exponential_dither(100, 1.1, unbiased, max, unscaled)",
                                                 "dither(levels=2, norm=l2)",
                                                 "dither(levels=15, feedback=unscaled)",
                                                 "dither(levels=31)",
                                                 "dither(levels=63)",
                                                 "dither(levels=127, norm=l2)"};
    for (const auto& quantizer : quantizers) {
        const bool is_pow2 = quantizer.rfind("pow2", 0) == 0;
        for (const std::string coder : {"auto", "rice", "bitmap", "raw32", "elias_fano"}) {
            if (is_pow2 || coder == "auto") add("all | " + quantizer + " | " + coder, true);
            if (quantizer != "sign(scale=none)") add("topk(0.01) | " + quantizer + " | " + coder, false);
        }
        // No code for zero, or only after all.
        if (is_pow2 || quantizer == "sign(scale=two_mean)" || quantizer == "sign(scale=none)") continue;
        add("randk(0.2) | " + quantizer, false);
        add("biased_random(0.95, 0.1) | " + quantizer, false);
    }
    for (const auto& quantizer : quantizers) {
        if (codec::code_bits(codec::parse_pipeline("all | " + quantizer)->quantizer) < 2) continue;
        const bool is_pow2 = quantizer.rfind("pow2", 0) == 0;
        for (const std::string coder : {"auto", "raw32"}) {
            if (is_pow2 || coder == "auto") add("all | " + quantizer + " | " + coder + " | entropy", true);
            add("topk(0.01) | " + quantizer + " | " + coder + " | entropy", false);
        }
        if (!is_pow2) add("randk(0.2) | " + quantizer + " | entropy", false);
    }
    add("topk(0.01) | natural | rice | entropy", false);
    add("topk(0.01) | natural | bitmap | entropy", false);
    add("topk(0.01) | natural | elias_fano | entropy", false);
    add("biased_random(0.95, 0.1) | natural | entropy", false);
    for (const std::string minmax : {"minmax", "minmax(2, 64)", "minmax(5, 128, unscaled)", "minmax(8, 4096, none)"})
        for (const std::string entropy : {"", " | entropy"}) add("all | " + minmax + entropy, true);
    for (const std::string entropy : {"", " | entropy"}) {
        for (const std::string integer : {"integer(1)", "integer(1e4)", "integer(3e6)", "integer(7, biased)",
                                          "integer(30, unbiased, none)", "integer(0.1)"})
            add("all | " + integer + entropy, true);
        for (const std::string coder : {"auto", "rice", "bitmap", "raw32", "elias_fano"})
            add("topk(0.01) | integer(5) | " + coder + entropy, false);
        add("topk(0.01) | integer(1e5)" + entropy, false);
        add("randk(0.2) | integer(2)" + entropy, false);
        add("randk(0.7, none) | integer(100)" + entropy, false);
    }
    add("biased_random(0.95, 0.1) | integer(1e7, biased)", false);
    add("randk(1) | f32", false);
    add("randk(0.7, none) | dither(feedback=none)", false);
    add("bernoulli(0.9) | bf16", false);
    for (const std::string quantizer :
         {"f16", "bf16", "sign", "sign(scale=two_mean)", "sign(scale=drive)", "sign(scale=0.01)", "natural", "dither",
          "ternary | entropy", "exponential_dither", "minmax(2, 64)"})
        add("rotate | all | " + quantizer, true);
    return cases;
}

}  // namespace

std::uint64_t random_word(std::uint64_t& inout_state) {
    inout_state += 0x9E3779B97F4A7C15ULL;
    return mix64(inout_state);
}

std::vector<float> all_magnitudes(std::uint32_t count) {
    std::uint64_t state = count;
    std::vector<float> values(count);
    for (float& value : values) {
        const auto bits = static_cast<std::uint32_t>(random_word(state));
        value = codec::element::float_of((bits & 0x7F800000U) == 0x7F800000U ? bits & 0x80FFFFFFU : bits);
    }
    return values;
}
std::uint32_t float_bits(float value) { return std::bit_cast<std::uint32_t>(value); }

std::string shape_name(Shape shape) {
    static const std::vector<std::string> kNames = {"gaussian", "heavy",   "constant",   "zeros",
                                                    "tiny",     "one-hot", "alternating"};
    return kNames[static_cast<std::size_t>(shape)];
}
const std::vector<Shape>& all_shapes() {
    static const std::vector<Shape> kShapes = {Shape::kGaussian, Shape::kHeavyTailed, Shape::kConstant,   Shape::kZeros,
                                               Shape::kTiny,     Shape::kOneHot,      Shape::kAlternating};
    return kShapes;
}

std::vector<float> make_values(Shape shape, std::size_t count, std::uint64_t seed) {
    std::uint64_t state = seed;
    std::vector<float> values(count, 0.0F);
    for (std::size_t i = 0; i < count; ++i) {
        switch (shape) {
            case Shape::kGaussian: values[i] = gaussian(state); break;
            case Shape::kHeavyTailed: values[i] = heavy_tailed(state); break;
            case Shape::kConstant: values[i] = 0.1F; break;
            case Shape::kZeros: values[i] = i % 2 == 0 ? 0.0F : -0.0F; break;
            case Shape::kTiny:  // subnormals, and the smallest normal numbers
                values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random_word(state)) & 0x80FFFFFFU);
                break;
            case Shape::kOneHot: values[i] = i == count / 2 ? -3.0F : 0.0F; break;
            case Shape::kAlternating: values[i] = i % 2 == 0 ? 1.0F : -1.0F; break;
        }
    }
    return values;
}

std::vector<std::uint32_t> make_indices(std::size_t elements, std::uint32_t parts_per_million, std::uint64_t seed) {
    std::uint64_t state = seed;
    std::vector<std::uint32_t> indices;
    for (std::size_t i = 0; i < elements; ++i)
        if (random_word(state) % 1000000 < parts_per_million) indices.push_back(static_cast<std::uint32_t>(i));
    return indices;
}

const std::vector<PipelineCase>& all_pipeline_cases() {
    static const std::vector<PipelineCase> kCases = make_pipeline_cases();
    return kCases;
}

codec::SelectionRule rule_of(const codec::Pipeline& pipeline, std::size_t elements) {
    return codec::SelectionPlan(pipeline.selector, 1, 2, 3, elements).rule(0);
}

void set_random(const codec::Pipeline& pipeline, codec::ChunkSelection& inout_selection) {
    static const codec::PhiloxKey kRotation = codec::rotation_key(4, 5, 6, 7);
    inout_selection.random = codec::rounding_stream(1, 2, 3);
    inout_selection.first_element = 5 * kChunkElements;
    if (has_rotation(pipeline)) inout_selection.rotation = &kRotation;
}

Coded code(const codec::Pipeline& pipeline, std::size_t elements, bool is_dense,
           const std::vector<std::uint32_t>& indices, const std::vector<float>& values) {
    codec::ChunkSelection selection;
    selection.chunk_elements = elements;
    selection.is_dense = is_dense;
    selection.indices = indices;
    selection.values = values;
    set_random(pipeline, selection);
    const codec::SelectionRule rule = rule_of(pipeline, elements);
    if (codec::is_keyed(pipeline.selector)) selection.keyed = &rule;
    for (const float value : values) selection.tensor_maximum = std::max(selection.tensor_maximum, std::abs(value));
    Coded coded;
    coded.decoded.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
    codec::CodeScratch scratch;
    coded.payload = bytes_of(codec::code_chunk(pipeline, selection, scratch, coded.decoded));
    return coded;
}

CaseData make_case_data(const PipelineCase& pipeline_case, Shape shape, std::size_t elements, std::uint64_t seed) {
    CaseData data;
    const bool is_dense = pipeline_case.is_dense;
    if (codec::is_keyed(pipeline_case.pipeline.selector)) {
        data.indices.resize(elements + codec::kIndexSlack);
        data.indices.resize(codec::draw_indices(rule_of(pipeline_case.pipeline, elements), elements,
                                                static_cast<std::uint32_t>(elements), codec::payload_kernels(),
                                                data.indices.data()));
        if (data.indices.empty()) throw std::logic_error(pipeline_case.text + " draws nothing");
    } else if (!is_dense) {
        // Sparse in large chunks, half full in small ones.
        data.indices = make_indices(elements, elements > 2000 ? 20000 : 500000, seed);
        if (data.indices.empty()) data.indices.push_back(static_cast<std::uint32_t>(elements - 1));
    }
    data.values = make_values(shape, is_dense ? elements : data.indices.size(), seed + 1);
    return data;
}

Bytes bytes_of(ByteView view) { return {view.begin(), view.end()}; }

std::vector<std::uint8_t> octets(const Bytes& bytes) {
    std::vector<std::uint8_t> result;
    for (const std::byte byte : bytes) result.push_back(static_cast<std::uint8_t>(byte));
    return result;
}

}  // namespace gradsieve::test
