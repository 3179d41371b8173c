// Nothing handed in is lost: what receivers decode plus what stays in the residual is what was put in. Checked per step
// and element, and over many steps against an fp64 shadow. The faithful mode drops quantization errors and must fail.
#include "encoder_harness.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 62;

/// p of a step: what the residual and the gradient (or momentum) come to before anything is sent.
std::vector<float> accumulated(const Pipeline& pipeline, std::span<const float> residual,
                               const std::vector<float>& gradient) {
    const auto beta = static_cast<float>(pipeline.front.beta);
    std::vector<float> sum(gradient.size());
    for (std::size_t element = 0; element < sum.size(); ++element) {
        const float carried = beta * residual[element];
        sum[element] = carried + gradient[element];
    }
    return sum;
}

float ulp(float value) {
    const float magnitude = std::fabs(value);
    return std::nextafter(magnitude, INFINITY) - magnitude;
}

bool is_exact(const Pipeline& pipeline) { return pipeline.quantizer.kind == QuantizerKind::kF32; }

/// sent + left - put in, the largest over the elements in units of T * 2^-24 * max |p|.
double worst_imbalance(const Pipeline& pipeline, ElementCount elements, int steps) {
    std::mt19937_64 random(kSeed);
    EncodeLoop loop(pipeline, elements, 1, 0);
    std::vector<double> put_in(elements, 0.0);
    std::vector<double> sent(elements, 0.0);
    double largest = 0;
    for (int step = 0; step < steps; ++step) {
        const auto gradient = make_gradient(DataKind::kHeavyTailed, elements, random);
        const auto handed_in = loop.handed_in(gradient);
        for (const float value : accumulated(pipeline, loop.residual(), handed_in))
            largest = std::max(largest, std::fabs(double{value}));
        const EncodeResult result = loop.step(gradient);
        const auto decoded = decode_payloads(result.chunks, elements);
        for (ElementCount element = 0; element < elements; ++element) {
            put_in[element] += handed_in[element];
            sent[element] += decoded[element];
        }
    }
    double worst = 0;
    for (ElementCount element = 0; element < elements; ++element) {
        worst = std::max(worst, std::fabs(sent[element] + loop.residual()[element] - put_in[element]));
    }
    return worst / (steps * 0x1p-24 * largest);
}

TEST(EncoderConservation, Each_step_sends_exactly_what_leaves_the_residual) {
    constexpr ElementCount kElements = 5000;
    for (const NamedPipeline& named : every_pipeline()) {
        if (!has_residual(named.pipeline) || named.pipeline.selector.is_faithful) continue;
        if (has_low_pass(named.pipeline)) continue;  // LowPass
        if (has_delta(named.pipeline)) continue;     // Delta: what it keeps is what it sent
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(named.pipeline, kElements, 1, 0);
        for (int step = 0; step < 12; ++step) {
            const auto gradient = make_gradient(DataKind::kHeavyTailed, kElements, random);
            const auto before = accumulated(named.pipeline, loop.residual(), loop.handed_in(gradient));
            const auto decoded = decode_payloads(loop.step(gradient).chunks, kElements);
            for (ElementCount element = 0; element < kElements; ++element) {
                const float p = before[element];
                const float left = loop.residual()[element];
                if (is_exact(named.pipeline)) {
                    ASSERT_TRUE((left == 0 && decoded[element] == p) || (left == p && decoded[element] == 0))
                        << named.name << " element " << element;
                    continue;
                }
                const double imbalance = double{decoded[element]} + left - p;
                ASSERT_LE(std::fabs(imbalance), ulp(std::max(std::fabs(p), std::fabs(decoded[element]))))
                    << named.name << " step " << step << " element " << element;
            }
        }
    }
}
TEST(EncoderConservation, Many_steps_agree_with_a_shadow_in_double) {
    for (const NamedPipeline& named : every_pipeline()) {
        if (!has_residual(named.pipeline) || named.pipeline.selector.is_faithful) continue;
        if (named.pipeline.front.beta != 1) continue;  // what waits fades: below
        if (has_low_pass(named.pipeline)) continue;    // LowPass
        if (has_delta(named.pipeline)) continue;       // Delta
        const double imbalance = worst_imbalance(named.pipeline, 1000, 300);
        EXPECT_LE(imbalance, is_exact(named.pipeline) ? 1.0 : 2.0) << named.name;
    }
}
TEST(EncoderConservation, Faithful_mode_drops_what_quantization_loses) {
    EXPECT_GT(worst_imbalance(faithful_pipeline(0.5, QuantizerKind::kPow2), 1000, 300), 1000.0);
    EXPECT_LE(worst_imbalance(variance_pipeline(0.5, QuantizerKind::kPow2), 1000, 300), 2.0);
}
TEST(EncoderConservation, What_waits_fades_below_beta_1) {
    EXPECT_GT(worst_imbalance(*parse_pipeline("compensate(0.9) | topk(0.05)"), 1000, 300), 1000.0);
    EXPECT_LE(worst_imbalance(*parse_pipeline("compensate(1, 0.3) | topk(0.05)"), 1000, 300), 1.0);
}
TEST(EncoderConservation, The_mean_over_workers_is_kept) {
    constexpr ElementCount kElements = 1000;
    constexpr int kWorkers = 3;
    constexpr int kSteps = 50;
    std::vector<EncodeLoop> workers;
    std::vector<double> balance(kElements, 0.0);
    for (int worker = 0; worker < kWorkers; ++worker) {
        workers.emplace_back(top_k_pipeline(0.05, 0, QuantizerKind::kPow2), kElements, 1, 0);
    }
    std::mt19937_64 random(kSeed);
    for (int step = 0; step < kSteps; ++step) {
        for (EncodeLoop& worker : workers) {
            const auto gradient = make_gradient(DataKind::kGaussian, kElements, random);
            const auto decoded = decode_payloads(worker.step(gradient).chunks, kElements);
            for (ElementCount element = 0; element < kElements; ++element) {
                balance[element] += double{decoded[element]} - gradient[element];
            }
        }
    }
    for (ElementCount element = 0; element < kElements; ++element) {
        for (EncodeLoop& worker : workers) balance[element] += worker.residual()[element];
        EXPECT_NEAR(balance[element] / kWorkers, 0.0, kSteps * 0x1p-24 * 64);
    }
}
TEST(EncoderConservation, Selectors_with_a_tau_send_multiples_of_it) {
    for (const Pipeline& pipeline : {hybrid_pipeline(1.0, 0.25), threshold_pipeline(0.25, QuantizerKind::kSign)}) {
        std::mt19937_64 random(kSeed);
        EncodeLoop loop(pipeline, 2000, 1, 0);
        ElementCount sent = 0;
        for (int step = 0; step < 20; ++step) {
            const auto gradient = make_gradient(DataKind::kGaussian, 2000, random);
            const auto decoded = decode_payloads(loop.step(gradient).chunks, 2000);
            for (const float value : decoded) EXPECT_TRUE(value == 0 || std::fabs(value) == 0.25F) << value;
            sent += sent_elements(decoded).size();
        }
        EXPECT_GT(sent, 1000U);
    }
}

}  // namespace
}  // namespace gradsieve::codec
