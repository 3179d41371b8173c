// The randomized Hadamard transform in front of quantizers: its forms against the definition, written out, its
// published constants, and what receivers make of payloads of several nodes. That every form of the encoder has the
// reference's bits with it is EncoderForms' and EncoderProperty's; what is not lost, EncoderConservation's; bytes,
// PayloadConformance's; bad ones, PayloadReader's.
#include "codec/rotation.hpp"
#include "codec/decoder.hpp"
#include "encoder_harness.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <numbers>

namespace gradsieve::codec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 4711;
constexpr PhiloxKey kKey = {0x12345678U, 0x9ABCDEF0U};
/// Of every kind of end: no block, one of each order, and three of each.
constexpr std::array<std::size_t, 16> kSizes = {1, 2, 3, 4, 5, 15, 16, 63, 64, 127, 255, 256, 1024, 1365, 4095, 4096};

std::vector<float> gaussian(std::size_t elements, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    return make_gradient(DataKind::kGaussian, elements, random);
}
std::vector<float> heavy_tailed(std::size_t elements, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    return make_gradient(DataKind::kHeavyTailed, elements, random);
}
/// Normal numbers to the third power: tails that are heavy, and no few that are nearly all.
std::vector<float> cubes(std::size_t elements, std::uint64_t seed) {
    auto values = gaussian(elements, seed);
    for (float& value : values) value = value * value * value;
    return values;
}
double square_sum(std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return sum;
}

/// Of 32 elements of a chunk, by the definition.
std::uint32_t rotation_signs(PhiloxKey key, std::uint32_t word) {
    return philox({{word / 4, 6U << 24U, 0, 0}}, key).words[word % 4];
}
/// H x of one block, by the definition's stages.
void transform_plainly(std::span<float> inout_block) {
    const auto root = std::sqrt(static_cast<float>(inout_block.size()));
    for (float& value : inout_block) value = value / root;
    for (std::size_t h = 1; h < inout_block.size(); h *= 2) {
        const std::vector<float> before(inout_block.begin(), inout_block.end());
        for (std::size_t i = 0; i < before.size(); ++i)
            inout_block[i] = i / h % 2 == 0 ? before[i] + before[i + h] : before[i - h] - before[i];
    }
}
template <typename Work>
void for_each_block(std::vector<float>& inout_tile, Work work) {
    for (std::size_t first = 0, order = 4096; first < inout_tile.size(); first += order) {
        while (order > inout_tile.size() - first) order /= 4;
        work(std::span(inout_tile).subspan(first, order));
    }
}
void flip_plainly(std::uint32_t first, std::vector<float>& inout_tile) {
    for (std::size_t i = 0; i < inout_tile.size(); ++i) {
        const auto at = static_cast<std::uint32_t>(first + i);
        if ((rotation_signs(kKey, at / 32) >> (at % 32)) % 2 == 1) inout_tile[i] = -inout_tile[i];
    }
}

TEST(Rotation, Every_form_has_the_definition_s_bits) {
    for (const std::size_t size : kSizes)
        for (const bool is_heavy : {false, true})
            for (const std::uint32_t first : {0U, 37U * 4096U}) {
                const auto values = is_heavy ? heavy_tailed(size, size) : gaussian(size, size);
                auto expected = values;
                flip_plainly(first, expected);
                for_each_block(expected, transform_plainly);
                auto back = expected;
                for_each_block(back, transform_plainly);
                flip_plainly(first, back);
                for (float& value : back) value = value + 0.0F;
                for (const CpuForm form : supported_forms()) {
                    const PayloadKernels& kernels = *payload_kernels_of(form);
                    std::vector<float> rotated(size, NAN);
                    rotate_tile(kKey, first, values, kernels, rotated.data());
                    EXPECT_TRUE(same_bits(rotated, expected)) << cpu_form_name(form) << " " << size;
                    rotate_tile_back(kKey, first, rotated, kernels, rotated.data());
                    EXPECT_TRUE(same_bits(rotated, back)) << cpu_form_name(form) << " " << size;
                    auto in_place = values;
                    rotate_tile(kKey, first, in_place, kernels, in_place.data());
                    EXPECT_TRUE(same_bits(in_place, expected)) << cpu_form_name(form) << " " << size;
                }
            }
}
TEST(Rotation, Keeps_norms_and_is_its_own_way_back) {
    for (const std::size_t size : kSizes) {
        const auto values = heavy_tailed(size, kSeed);
        std::vector<float> rotated(size);
        std::vector<float> back(size);
        rotate_tile(kKey, 0, values, payload_kernels(), rotated.data());
        rotate_tile_back(kKey, 0, rotated, payload_kernels(), back.data());
        const double energy = square_sum(values);
        EXPECT_NEAR(square_sum(rotated), energy, 1e-6 * energy) << size;
        double error = 0;
        for (std::size_t i = 0; i < size; ++i) error += std::pow(static_cast<double>(back[i]) - values[i], 2);
        EXPECT_LE(error, 1e-12 * energy) << size;
    }
}
TEST(Rotation, Signs_are_fair_and_differ_from_chunk_to_chunk_and_step_to_step) {
    const auto key = rotation_key(1, 2, 3, 0);
    const std::array<PhiloxKey, 4> others = {rotation_key(2, 2, 3, 0), rotation_key(1, 3, 3, 0),
                                             rotation_key(1, 2, 4, 0), rotation_key(1, 2, 3, 1)};
    constexpr std::uint32_t kWords = kChunkElements / 32;
    int negatives = 0;
    std::array<int, 4> different = {};
    for (std::uint32_t word = 0; word < kWords; ++word) {
        const std::uint32_t signs = rotation_signs(key, word);
        negatives += std::popcount(signs);
        for (std::size_t i = 0; i < others.size(); ++i)
            different[i] += std::popcount(signs ^ rotation_signs(others[i], word));
    }
    const double half = kChunkElements / 2.0;
    const double five_sigma = 5 * std::sqrt(half / 2);
    EXPECT_NEAR(negatives, half, five_sigma);
    for (const int count : different) EXPECT_NEAR(count, half, five_sigma);
}

using Data = std::vector<float> (*)(std::size_t, std::uint64_t);
/// Error of a step from zero, over the gradient's energy; the mean of `trials` gradients and rotations.
double mean_error(const std::string& codec, ElementCount elements, int trials, Data data) {
    const Pipeline pipeline = *parse_pipeline(codec);
    double sum = 0;
    for (int trial = 0; trial < trials; ++trial) {
        EncodeLoop loop(pipeline, elements, 1, 0);
        loop.set_selection_seed(kSeed + static_cast<std::uint64_t>(trial));
        loop.set_random_seed(kSeed + static_cast<std::uint64_t>(trial));
        const auto gradient = data(elements, kSeed + static_cast<std::uint64_t>(trial));
        const auto decoded = decode_payloads(loop.step(gradient).chunks, elements);
        double error = 0;
        for (ElementCount i = 0; i < elements; ++i) error += std::pow(static_cast<double>(decoded[i]) - gradient[i], 2);
        sum += error / square_sum(gradient);
    }
    return sum / trials;
}

// Vargaftik et al. 2021: 1 - 2/pi with the scale of least squares, pi/2 - 1 with the other one, for large n. Without a
// rotation, of x^3 with a normal x, 1 - (E |x|^3)^2 / E x^6 = 1 - 8/(15 pi).
TEST(Rotation, Signs_lose_what_they_lose_of_normal_numbers) {
    constexpr double kLeastSquares = 1 - 2 / std::numbers::pi;
    constexpr double kDrive = std::numbers::pi / 2 - 1;
    for (const Data data : {&gaussian, &cubes}) {
        EXPECT_NEAR(mean_error("rotate | all | sign", 65536, 8, data), kLeastSquares, 0.01);
        EXPECT_NEAR(mean_error("rotate | all | sign(scale=drive)", 65536, 8, data), kDrive, 0.02);
    }
    EXPECT_NEAR(mean_error("all | sign", 65536, 8, &cubes), 1 - 8 / (15 * std::numbers::pi), 0.02);
}
TEST(Rotation, Levels_fit_heavy_tails_better) {
    for (const std::string rest : {"dither(7)", "minmax(4, 512)", "ternary"})
        EXPECT_LT(mean_error("rotate | all | " + rest, 65536, 4, &cubes),
                  0.75 * mean_error("all | " + rest, 65536, 4, &cubes))
            << rest;
}
// Every rotated element has one magnitude, and powers of two are exact all the way.
TEST(Rotation, Signs_of_a_single_element_lose_nothing) {
    for (const char* codec : {"rotate | all | sign", "rotate | all | sign(scale=drive)"}) {
        EncodeLoop loop(*parse_pipeline(codec), 8192, 1, 0);
        std::vector<float> gradient(8192, 0.0F);
        gradient[5000] = -3;
        EXPECT_TRUE(same_bits(decode_payloads(loop.step(gradient).chunks, 8192), gradient)) << codec;
        for (const float left : loop.residual()) EXPECT_EQ(left, 0.0F) << codec;
    }
}
// The mean of T decoded gradients: its error is that of one over T.
TEST(Rotation, Drive_s_scale_is_unbiased_over_rotations) {
    constexpr ElementCount kElements = 8192;
    constexpr int kTrials = 400;
    EncodeLoop loop(*parse_pipeline("rotate | all | sign(scale=drive)"), kElements, 1, 0);
    EXPECT_TRUE(loop.residual().empty());
    const auto gradient = cubes(kElements, kSeed);
    std::vector<double> mean(kElements, 0.0);
    for (int trial = 0; trial < kTrials; ++trial) {
        const auto decoded = decode_payloads(loop.step(gradient).chunks, kElements);
        for (ElementCount i = 0; i < kElements; ++i) mean[i] += static_cast<double>(decoded[i]) / kTrials;
    }
    double error = 0;
    for (ElementCount i = 0; i < kElements; ++i) error += std::pow(mean[i] - gradient[i], 2);
    const double expected = (std::numbers::pi / 2 - 1) / kTrials * square_sum(gradient);
    EXPECT_LT(error, 1.5 * expected) << "seed " << kSeed;
    EXPECT_GT(error, 0.5 * expected) << "seed " << kSeed;
}

// Two elements have two magnitudes when they are rotated, of which signs tell the larger element's alone.
TEST(Rotation, A_small_element_beside_a_single_large_one_needs_a_residual) {
    std::vector<float> gradient(4096, 0.0F);
    gradient[100] = 4;
    gradient[200] = 1;
    EncodeLoop without(*parse_pipeline("rotate | all | sign(scale=drive)"), 4096, 1, 0);
    EncodeLoop with(*parse_pipeline("rotate | all | sign"), 4096, 1, 0);
    double sent_without = 0;
    double sent_with = 0;
    for (int step = 0; step < 64; ++step) {
        sent_without += decode_payloads(without.step(gradient).chunks, 4096)[200];
        sent_with += decode_payloads(with.step(gradient).chunks, 4096)[200];
    }
    EXPECT_NEAR(sent_without, 0, 1e-3);
    EXPECT_NEAR(sent_with, 64, 8);
}

std::vector<ChunkPayload> payloads_of(const char* codec, const std::vector<float>& gradient, std::uint64_t node,
                                      std::uint64_t selection_seed = 1) {
    EncodeLoop loop(*parse_pipeline(codec), gradient.size(), 1, 0);
    loop.set_random_seed(node);
    loop.set_selection_seed(selection_seed);
    return loop.step(gradient).chunks;
}
using Payloads = std::vector<ChunkPayload>;
Result<DecodeResult> average(const std::vector<const Payloads*>& nodes, std::vector<float>& ret_average) {
    std::vector<std::vector<ChunkView>> views(nodes.size());
    std::vector<Contribution> contributions;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
        for (const auto& chunk : *nodes[node]) views[node].push_back({chunk.chunk_index, chunk.bytes.view()});
        contributions.push_back({1.0F / static_cast<float>(nodes.size()), views[node]});
    }
    ResultTensor tensor(1, ret_average.data(), ret_average.size());
    return tensor.decode_average(1, contributions);
}

TEST(Rotation, Nodes_share_one_and_their_sum_is_rotated_back) {
    constexpr ElementCount kElements = kChunkElements + 5003;
    for (const char* codec : {"rotate | all | f16", "rotate | all | minmax(8, 64)", "rotate | all | dither(127)"}) {
        const std::vector<std::vector<float>> gradients = {gaussian(kElements, 1), gaussian(kElements, 2),
                                                           gaussian(kElements, 3)};
        std::vector<std::vector<ChunkPayload>> nodes;
        for (std::size_t node = 0; node < 3; ++node) nodes.push_back(payloads_of(codec, gradients[node], node));
        std::vector<float> result(kElements, 0.0F);
        const auto decoded = average({&nodes[0], &nodes[1], &nodes[2]}, result);
        ASSERT_TRUE(decoded.is_ok()) << decoded.status().to_string();
        EXPECT_EQ(decoded->touched_elements, kElements);
        double error = 0;
        for (ElementCount i = 0; i < kElements; ++i)
            error += std::pow(result[i] - (gradients[0][i] + gradients[1][i] + gradients[2][i]) / 3, 2);
        EXPECT_LT(error / kElements, 1e-3) << codec;
    }
}
// Equal gradients on all nodes: what each loses by itself is averaged away.
TEST(Rotation, Drive_s_nodes_have_rotations_of_their_own) {
    constexpr ElementCount kElements = 65536 + 1700;
    constexpr std::size_t kNodes = 8;
    const auto gradient = cubes(kElements, kSeed);
    const auto error_of = [&](const char* codec) {
        std::vector<std::vector<ChunkPayload>> nodes;
        for (std::size_t node = 0; node < kNodes; ++node) nodes.push_back(payloads_of(codec, gradient, node));
        std::vector<float> result(kElements, 0.0F);
        std::vector<const Payloads*> all;
        for (const auto& node : nodes) all.push_back(&node);
        EXPECT_TRUE(average(all, result).is_ok());
        double error = 0;
        for (ElementCount i = 0; i < kElements; ++i) error += std::pow(static_cast<double>(result[i]) - gradient[i], 2);
        return error / square_sum(gradient);
    };
    EXPECT_NEAR(error_of("rotate | all | sign(scale=drive)"), (std::numbers::pi / 2 - 1) / kNodes, 0.01);
    EXPECT_NEAR(error_of("rotate | all | sign"), 1 - 2 / std::numbers::pi, 0.03) << "one rotation: error feedback's";
}
// Each by itself is what a payload decodes to alone, times its factor, and they are added in node order.
TEST(Rotation, Payloads_of_several_keys_are_rotated_back_one_by_one) {
    const auto gradient = gaussian(9001, 1);
    std::vector<std::vector<ChunkPayload>> nodes;
    std::vector<float> expected(9001, 0.0F);
    for (std::uint64_t node = 0; node < 2; ++node) {
        nodes.push_back(payloads_of("rotate | all | sign(scale=drive)", gradient, node));
        const auto alone = decode_payloads(nodes.back(), 9001);
        for (ElementCount i = 0; i < 9001; ++i) expected[i] = expected[i] + 0.5F * alone[i];  // halves are exact
    }
    std::vector<float> result(9001, 0.0F);
    ASSERT_TRUE(average({&nodes[0], &nodes[1]}, result).is_ok());
    EXPECT_TRUE(same_bits(result, expected));
}
TEST(Rotation, Payloads_without_one_beside_it_are_refused) {
    const auto gradient = gaussian(5000, 1);
    const auto turned = payloads_of("rotate | all | sign", gradient, 1);
    const auto plain = payloads_of("all | sign", gradient, 2);
    const auto list = payloads_of("topk(0.1)", gradient, 2);
    const auto other = payloads_of("rotate | all | bf16", gradient, 2);
    const auto of_other_key = payloads_of("rotate | all | sign", gradient, 2, 9);
    std::vector<float> result(5000, 0.0F);
    const auto told = [&](const Payloads& first, const Payloads& second) {
        return average({&first, &second}, result).status().to_string();
    };
    EXPECT_THAT(told(turned, plain),
                AllOf(HasSubstr("corrupt"), HasSubstr("contribution 1: chunk 0"), HasSubstr("rotation missing")));
    EXPECT_THAT(told(plain, turned), HasSubstr("rotation of one payload"));
    EXPECT_THAT(told(turned, list), HasSubstr("rotation missing"));
    EXPECT_TRUE(average({&turned, &other}, result).is_ok());
    EXPECT_TRUE(average({&turned, &of_other_key}, result).is_ok());
}
TEST(Rotation, Numbers_whose_sum_might_not_be_finite_are_refused) {
    const std::vector<float> gradient(4096, 0x1p100F);
    auto chunks = payloads_of("rotate | all | bf16", gradient, 1);
    Bytes bytes(chunks[0].bytes.view().begin(), chunks[0].bytes.view().end());
    ASSERT_TRUE(validate_chunk(bytes, 4096).is_ok());
    bytes[bytes.size() - 1] = std::byte{0x78};  // above 2^112
    EXPECT_THAT(validate_chunk(bytes, 4096).text(), HasSubstr("number of a rotation too large"));
    std::vector<float> result(4096, 0.0F);
    ResultTensor tensor(1, result.data(), result.size());
    const ChunkView chunk{0, bytes};
    const Contribution contribution{1.0F, {&chunk, 1}};
    EXPECT_THAT(tensor.decode_average(1, {&contribution, 1}).status().to_string(), HasSubstr("at most 2^112"));
    auto levels = payloads_of("rotate | all | dither", gradient, 1);
    bytes.assign(levels[0].bytes.view().begin(), levels[0].bytes.view().end());
    bytes[14] = std::byte{0x78};  // the scale, behind 3 bytes and the key
    EXPECT_THAT(validate_chunk(bytes, 4096).text(), HasSubstr("number of a rotation too large"));
    std::vector<float> exact(4096);
    EXPECT_THAT(read_exact_chunk(bytes, exact).text(), HasSubstr("form of an exact chunk"));
}
TEST(Rotation, What_is_too_large_makes_the_step_non_finite_where_it_is) {
    for (const char* codec : {"rotate | all | sign", "rotate | all | dither(feedback=none)"})
        for (const CpuForm form : supported_forms()) {
            auto input = make_input(*parse_pipeline(codec), 3 * kTileElements + 100, 1, DataKind::kGaussian, kSeed);
            EncodeWorkspace workspace;
            input.samples[0][9000] = -0x1p100F;
            EXPECT_FALSE(run_form(input, zero_state(input), form, workspace).result.non_finite) << codec;
            input.samples[0][9001] = 0x1.1p100F;
            const auto output = run_form(input, zero_state(input), form, workspace);
            ASSERT_TRUE(output.result.non_finite) << codec;
            EXPECT_EQ(output.result.non_finite->element, 9001U) << codec;
            EXPECT_TRUE(output.result.chunks.empty()) << codec;
        }
}
TEST(Rotation, Its_text_has_one_spelling_and_refusals_say_what_to_write) {
    const auto canonical = [](const char* text) { return canonical_text(*parse_pipeline(text), Knobs::kKeep); };
    EXPECT_EQ(canonical("rotate | all | sign"), "rotate | all | sign(scale=mean) | auto");
    EXPECT_EQ(canonical("rotate | all | sign(drive)"), "rotate | all | sign(scale=drive) | auto");
    EXPECT_EQ(canonical("accumulate(2) | rotate | all | minmax"),
              "accumulate(n=2) | rotate | all | minmax(bits=4, bucket=512, feedback=scaled) | auto");
    for (const char* text : {"rotate | all | sign(drive)", "similarity | momentum | rotate | all | natural | entropy"})
        EXPECT_EQ(*parse_pipeline(canonical(text)), *parse_pipeline(text)) << text;
    EXPECT_THAT(canonical_text(*parse_pipeline("rotate | all | sign"), Knobs::kBlank), HasSubstr("rotate | all"));
    const auto refusal = [](const char* text) { return parse_pipeline(text).status().text(); };
    EXPECT_THAT(refusal("rotate | topk(0.1)"), AllOf(HasSubstr("selector after rotate"), HasSubstr("all")));
    EXPECT_THAT(refusal("rotate | all"), HasSubstr("f32 loses nothing that a rotation could spread"));
    EXPECT_THAT(refusal("rotate | all | pow2"), HasSubstr("quantizer after rotate"));
    EXPECT_THAT(refusal("rotate | all | sign(scale=none)"), HasSubstr("sign(scale=none)"));
    EXPECT_THAT(refusal("rotate(2) | all | sign"), HasSubstr("rotate"));
    EXPECT_THAT(refusal("rotate | momentum | all | sign"), HasSubstr("in the order"));
    EXPECT_THAT(refusal("all | sign(scale=drive)"), HasSubstr("rotate | all | sign(scale=drive)"));
    EXPECT_THAT(refusal("topk(0.1) | sign(scale=drive)"), HasSubstr("drive"));
    EXPECT_THAT(refusal("accumulate(2) | rotate | all | sign(scale=drive)"), HasSubstr("keeps no residual"));
}

}  // namespace
}  // namespace gradsieve::codec
