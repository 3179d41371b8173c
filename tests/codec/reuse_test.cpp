// Steps that are skipped: when, what is kept then, and what receivers make of a reuse record.
#include "reuse_loop.hpp"

#include "educational_decoder.hpp"
#include "payload_cases.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <iostream>

namespace gradsieve::codec {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Values = std::vector<float>;

constexpr std::uint64_t kSeed = 20261129;

Values normal(std::size_t elements, std::mt19937_64& random, float deviation = 1) {
    Values values(elements);
    std::normal_distribution<float> draw(0, deviation);
    for (auto& value : values) value = draw(random);
    return values;
}
/// A gradient that drifts by `share` of its size in every step, for each node.
class Drift {
public:
    Drift(std::size_t nodes, std::size_t elements, float share) : share_(share), random_(kSeed) {
        for (std::size_t node = 0; node < nodes; ++node) gradients_.push_back(normal(elements, random_));
    }
    const std::vector<Values>& next() {
        for (auto& gradient : gradients_) {
            const auto change = normal(gradient.size(), random_, share_);
            for (std::size_t at = 0; at < gradient.size(); ++at) gradient[at] += change[at];
        }
        return gradients_;
    }

private:
    float share_;
    std::mt19937_64 random_;
    std::vector<Values> gradients_;
};
double square(const Values& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
}
/// What a node's payload decodes to, slowly.
Values slowly_decoded(const std::vector<ChunkPayload>& chunks, std::size_t elements) {
    Values values(elements, 0.0F);
    for (const auto& chunk : chunks) {
        const ElementCount first = chunk.chunk_index * kChunkElements;
        const auto count = static_cast<std::uint32_t>(std::min<ElementCount>(kChunkElements, elements - first));
        const auto decoded = test::educational_decode(test::octets(test::bytes_of(chunk.bytes)), count);
        EXPECT_TRUE(decoded.has_value());
        for (const auto& [index, value] : *decoded) values[first + index] = value;
    }
    return values;
}
/// p of a step, slowly: one sample of weight 1.
Values summed(const Values& residual, const Values& gradient, const Pipeline& pipeline, float rescale) {
    Values sum(gradient.size());
    const float factor = static_cast<float>(pipeline.front.beta) * rescale;
    for (std::size_t at = 0; at < sum.size(); ++at) {
        const float carried = factor * residual[at];
        sum[at] = carried + static_cast<float>(pipeline.front.gamma) * gradient[at];
    }
    return sum;
}

struct Tally {
    int skipped = 0, sent = 0;
};
/// Runs a loop, and holds every step of every node to the formulas.
Tally check_steps(ReuseLoop& loop, std::size_t nodes, std::size_t elements, int steps, Drift& drift) {
    Tally tally;
    std::vector<Values> last(nodes);
    std::vector<int> in_a_row(nodes, 0);
    std::vector<double> put_in(elements, 0), came_back(elements, 0);
    double largest = 0;
    for (int step = 0; step < steps; ++step) {
        const auto& gradients = drift.next();
        std::vector<Values> before;
        for (std::size_t node = 0; node < nodes; ++node) before.push_back(loop.residual(node));
        const auto outcome = loop.step(gradients);
        for (std::size_t node = 0; node < nodes; ++node) {
            EXPECT_EQ(outcome.decoded[node].digest, outcome.decoded[0].digest);
            EXPECT_EQ(outcome.averages[node], outcome.averages[0]) << "bits differ between nodes";
            const auto sum = summed(before[node], gradients[node], loop.pipeline(), loop.rescale);
            for (std::size_t at = 0; at < elements; ++at) {
                put_in[at] += gradients[node][at];
                largest = std::max(largest, std::fabs(double{sum[at]}));
            }
            if (!outcome.is_reuse[node]) {
                last[node] = slowly_decoded(outcome.chunks[node], elements);
                in_a_row[node] = 0;
                ++tally.sent;
                continue;
            }
            ++tally.skipped;
            ++in_a_row[node];
            EXPECT_LE(in_a_row[node], loop.pipeline().reuse.most);
            Values left(elements);
            for (std::size_t at = 0; at < elements; ++at) left[at] = sum[at] - last[node][at];
            EXPECT_TRUE(same_bits(loop.residual(node), left)) << "step " << step << ": r is not fl(p - d)";
            EXPECT_LE(square(left), (1 - loop.pipeline().reuse.share) * square(sum) * (1 + 1e-9)) << "step " << step;
            for (const auto& chunk : outcome.chunks[node]) EXPECT_EQ(chunk.bytes.size(), kReuseBytes);
        }
        for (std::size_t at = 0; at < elements; ++at)
            came_back[at] += static_cast<double>(nodes) * outcome.averages[0][at];
    }
    for (std::size_t at = 0; at < elements && loop.pipeline().front == Front{}; ++at) {
        double kept = came_back[at];
        for (std::size_t node = 0; node < nodes; ++node) kept += loop.residual(node)[at];
        if (std::fabs(kept - put_in[at]) <= static_cast<double>(nodes) * steps * 0x1p-22 * largest) continue;
        ADD_FAILURE() << "element " << at << ": " << kept << " of " << put_in[at] << " that went in";
        break;
    }
    return tally;
}

TEST(Reuse, Slow_drift_is_skipped_by_codecs_that_send_everything_and_nothing_is_lost) {
    std::cout << "seed " << kSeed << "\n";
    const std::pair<const char*, int> codecs[] = {
        {"all | bf16", 60},
        {"all | f16", 60},
        {"all | dither(levels=7)", 30},
        {"all | minmax(bits=4)", 30},
        {"all | integer(20)", 30},
        {"rotate | all | dither", 30},
        {"compensate(0.9, 0.5) | all | dither", 30},
        {"all | pow2(bits=4)", 30},
        // Powers of two leave an eighth of what is sent, and four times that if it comes twice.
        {"all | natural", 10},
        {"all | natural | entropy", 10},
        {"all | exponential_dither(levels=7)", 10}};
    for (const auto& [codec, least] : codecs) {
        ReuseLoop loop("similarity(skip=0.7) | " + std::string(codec), 5'000, 3);
        Drift drift(3, 5'000, 0.03F);
        const auto tally = check_steps(loop, 3, 5'000, 40, drift);
        EXPECT_GE(tally.skipped, least) << codec << ", of 120";
        EXPECT_GT(tally.sent, 14) << codec << ": every node sends in full at least every eighth step";
    }
}
TEST(Reuse, Signs_are_seldom_an_answer_twice) {
    ReuseLoop loop("similarity(skip=0.3) | all | sign", 5'000, 2);
    Drift drift(2, 5'000, 0.03F);
    const auto tally = check_steps(loop, 2, 5'000, 60, drift);
    EXPECT_LT(tally.skipped, 20) << "what a sign takes off p is gone from r";
}
TEST(Reuse, Tensors_of_several_chunks_have_a_record_for_each) {
    const std::size_t elements = kChunkElements + 1'000;
    ReuseLoop loop("similarity(skip=0.5) | all | bf16", elements, 1);
    Drift drift(1, elements, 0.01F);
    const auto tally = check_steps(loop, 1, elements, 4, drift);
    EXPECT_EQ(tally.skipped, 3);
    EXPECT_EQ(loop.held(0).of(0).chunks.size(), 2U);
}
TEST(Reuse, New_gradients_are_never_answered_by_old_ones) {
    for (const char* codec : {"all | dither(levels=7)", "all | sign", "all | bf16"}) {
        ReuseLoop loop("similarity(skip=0.1) | " + std::string(codec), 5'000, 1);
        std::mt19937_64 random(kSeed);
        for (int step = 0; step < 40; ++step) {
            const auto outcome = loop.step({normal(5'000, random)});
            EXPECT_FALSE(outcome.is_reuse[0]) << codec << ", step " << step;
        }
    }
}
/// With one element to a bucket estimates are exact: the decision is that of the formula, both ways.
TEST(Reuse, Decision_is_the_share_that_the_last_payload_takes_away) {
    int skipped = 0, sent = 0;
    for (const float share : {0.3F, 0.6F, 0.9F}) {
        ReuseLoop loop("similarity(skip=" + std::to_string(share) + ", most=100) | all | dither(levels=7)", 1'000, 1);
        Drift drift(1, 1'000, 0.2F);
        Values last;
        for (int step = 0; step < 40; ++step) {
            const auto& gradients = drift.next();
            const auto sum = summed(loop.residual(0), gradients[0], loop.pipeline(), 1);
            const auto outcome = loop.step(gradients);
            if (!last.empty()) {
                Values left(sum.size());
                for (std::size_t at = 0; at < sum.size(); ++at) left[at] = sum[at] - last[at];
                const double taken = 1 - square(left) / square(sum);
                EXPECT_EQ(outcome.is_reuse[0], taken >= loop.pipeline().reuse.share) << step << ": " << taken;
                EXPECT_NEAR(outcome.shares[0].value_or(-1), taken, 1e-5);
            }
            if (!outcome.is_reuse[0]) last = slowly_decoded(outcome.chunks[0], 1'000);
            ++(outcome.is_reuse[0] ? skipped : sent);
        }
    }
    EXPECT_GT(skipped, 10);
    EXPECT_GT(sent, 10);
}
TEST(Reuse, Steps_in_a_row_are_limited) {
    for (const int most : {1, 3}) {
        ReuseLoop loop("similarity(skip=0.2, most=" + std::to_string(most) + ") | all | bf16", 3'000, 1);
        std::mt19937_64 random(kSeed);
        const auto gradient = normal(3'000, random);
        for (int step = 0; step < 12; ++step)
            EXPECT_EQ(loop.step({gradient}).is_reuse[0], step % (most + 1) != 0) << most << ", step " << step;
    }
}
TEST(Reuse, A_step_that_is_not_skipped_is_as_without_the_stage) {
    ReuseLoop loop("similarity(skip=0.999) | all | dither(levels=7)", 3'000, 1);
    ReuseLoop other("similarity(skip=0.01) | all | dither(levels=7)", 3'000, 1);
    EncodeLoop plain(*parse_pipeline("all | dither(levels=7)"), 3'000, 1, 0);
    std::mt19937_64 random(kSeed);
    for (int step = 0; step < 5; ++step) {
        const auto gradient = normal(3'000, random);
        const auto outcome = loop.step({gradient});
        EXPECT_FALSE(outcome.is_reuse[0]);
        EXPECT_EQ(other.step({gradient}).averages, outcome.averages) << "knobs change no payload";
    }
    EXPECT_TRUE(same_bits(loop.residual(0), other.residual(0)));
}
TEST(Reuse, Another_scale_of_gradients_is_another_sum) {
    ReuseLoop loop("similarity(skip=0.5) | all | bf16", 3'000, 1);
    std::mt19937_64 random(kSeed);
    auto gradient = normal(3'000, random);
    EXPECT_FALSE(loop.step({gradient}).is_reuse[0]);
    EXPECT_TRUE(loop.step({gradient}).is_reuse[0]);
    for (auto& value : gradient) value *= 16;
    loop.rescale = 16;
    EXPECT_FALSE(loop.step({gradient}).is_reuse[0]) << "16 g is not answered by g";
    loop.rescale = 1;
    EXPECT_TRUE(loop.step({gradient}).is_reuse[0]);
}
TEST(Reuse, A_step_without_a_result_leaves_what_was_held) {
    using End = ReuseLoop::End;
    ReuseLoop loop("similarity(skip=0.5) | all | bf16", 3'000, 2);
    std::mt19937_64 random(kSeed);
    const auto gradient = normal(3'000, random);
    const auto other = normal(3'000, random);
    const auto committed = loop.step({gradient, gradient});
    const auto residual = loop.residual(0);
    EXPECT_FALSE(loop.step({other, other}, End::kFailed).is_reuse[0]);
    EXPECT_TRUE(loop.step({gradient, gradient}, End::kFailed).is_reuse[0]) << "the payload of step 1 is held";
    EXPECT_EQ(loop.held(1).of(0).step, 1U);
    EXPECT_TRUE(same_bits(loop.residual(0), residual));
    const auto again = loop.step({gradient, gradient});
    EXPECT_THAT(again.is_reuse, Each(true));
    EXPECT_EQ(again.averages, committed.averages);
    EXPECT_EQ(loop.in_a_row(0), 1) << "steps that failed were not skipped";
}
/// What decides is in the state, so that the same steps are skipped; what others do not hold goes as it is.
TEST(Reuse, A_run_that_is_resumed_gives_the_bits_of_one_that_was_not) {
    for (const char* codec : {"all | dither(levels=7)", "all | pow2(bits=4)", "all | bf16"})
        for (int restarted = 1; restarted < 12; ++restarted) {
            const auto text = "similarity(skip=0.4, most=3) | " + std::string(codec);
            ReuseLoop whole(text, 3'000, 2), resumed(text, 3'000, 2);
            Drift drift(2, 3'000, 0.05F);
            for (int step = 0; step < 12; ++step) {
                const auto& gradients = drift.next();
                if (step == restarted) resumed.restart();
                const auto expected = whole.step(gradients);
                const auto outcome = resumed.step(gradients);
                EXPECT_EQ(outcome.averages, expected.averages) << codec << ", step " << step;
                EXPECT_EQ(outcome.decoded[0].digest, expected.decoded[0].digest);
                EXPECT_EQ(outcome.is_reuse, expected.is_reuse);
                if (step == restarted) {
                    EXPECT_THAT(outcome.has_records, Each(false)) << "nobody holds anything";
                }
            }
            for (const std::size_t node : {0U, 1U})
                EXPECT_TRUE(same_bits(resumed.residual(node), whole.residual(node)));
        }
}
TEST(Reuse, A_step_that_is_done_again_after_a_start_is_skipped_as_it_was) {
    ReuseLoop loop("similarity(skip=0.5) | all | bf16", 3'000, 2);
    std::mt19937_64 random(kSeed);
    const auto gradient = normal(3'000, random);
    (void)loop.step({gradient, gradient});
    const auto lost = loop.step({gradient, gradient}, ReuseLoop::End::kFailed);
    EXPECT_THAT(lost.has_records, Each(true));
    loop.restart();
    const auto again = loop.step({gradient, gradient});
    EXPECT_THAT(again.is_reuse, Each(true));
    EXPECT_THAT(again.has_records, Each(false));
    EXPECT_EQ(again.averages, lost.averages) << "a rank may have had it";
    EXPECT_THAT(loop.step({gradient, gradient}).has_records, Each(true)) << "of the step in which the bytes went again";
}
TEST(Reuse, A_state_that_makes_no_sense_is_none) {
    const auto pipeline = *parse_pipeline("similarity(skip=0.5) | all | sign");
    const auto floats = sent_floats(pipeline, 5'000);
    std::vector<std::uint32_t> words(floats, 0);
    const auto read = [&] { return read_sent(pipeline, 5'000, reinterpret_cast<const float*>(words.data())); };
    EXPECT_FALSE(read()) << "zeros";
    words[0] = 1;
    EXPECT_FALSE(read()) << "a chunk of which there are no bytes";
    const auto place = floats - (most_payload_bytes(pipeline, 5'000) + 3) / 4 - 1;
    words[place] = 1;
    ASSERT_TRUE(read());
    EXPECT_EQ(read()->chunks.size(), 1U);
    words[1] = 8;
    EXPECT_FALSE(read()) << "more steps in a row than are allowed";
    words[1] = 7;
    words[place] = 0xffffffffU;
    EXPECT_FALSE(read()) << "more bytes than there is room for";
    words[place] = 1;
    words[0] = 2;
    EXPECT_FALSE(read()) << "more chunks than the tensor has";
}
TEST(Reuse, A_gradient_of_zeros_is_sent) {
    ReuseLoop loop("similarity(skip=0.5) | all | bf16", 100, 1);
    for (int step = 0; step < 3; ++step) {
        const auto outcome = loop.step({Values(100, 0.0F)});
        EXPECT_FALSE(outcome.is_reuse[0]);
        EXPECT_EQ(outcome.shares[0], std::nullopt);
    }
}
TEST(Reuse, A_number_that_is_none_is_found_in_a_step_that_would_be_skipped) {
    const auto pipeline = *parse_pipeline("similarity(skip=0.1) | all | bf16");
    EncodeWorkspace workspace;
    Values gradient(2'000, 1.0F), in(2'000, 0.0F), out(2'000);
    Values sent_in(sent_floats(pipeline, 2'000), 0.0F), sent_out = sent_in;
    const float* const samples[] = {gradient.data()};
    const float weights[] = {1.0F};
    EncodeRequest request;
    request.pipeline = &pipeline;
    request.step = 1;
    request.elements = 2'000;
    request.samples = samples;
    request.weights = weights;
    request.in = {.residual = in.data(), .sent = sent_in.data()};
    request.out = {.residual = out.data(), .sent = sent_out.data()};
    const Signature clean(0, samples, weights, 2'000);
    ASSERT_TRUE(encode_or_reuse(request, {}, clean, workspace).is_ok());
    request.step = 2;
    std::swap(request.in, request.out);
    gradient[77] = std::numeric_limits<float>::infinity();
    // A client changed its memory after it was looked at: the pass sees what it sees.
    const auto second = encode_or_reuse(request, {}, clean, workspace);
    ASSERT_TRUE(second.is_ok());
    EXPECT_FALSE(second->is_reuse);
    ASSERT_TRUE(second->encoded.non_finite);
    EXPECT_EQ(second->encoded.non_finite->element, 77U);
}

}  // namespace
}  // namespace gradsieve::codec
