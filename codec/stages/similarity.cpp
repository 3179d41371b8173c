#include "codec/stages/similarity.hpp"

#include "codec/stages/stage_list.hpp"
#include "codec/stages/stage_text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace gradsieve::codec {
namespace {

using Sums = std::array<double, kSignatureBuckets>;
using Row = std::array<float, kSignatureBuckets>;

/// Sign bits and offset of one row of elements.
struct RowDraw {
    std::array<std::uint32_t, kSignatureBuckets> signs;  ///< the sign bit of a float, or 0
    std::size_t offset = 0;
};
void draw_row(PhiloxKey key, std::uint64_t row, RowDraw& ret_draw) {
    constexpr std::size_t kWordBits = 32;
    for (std::uint32_t draw = 0; draw + 1 < kSignatureDrawsPerRow; ++draw) {
        const PhiloxBlock block = signature_draw(key, row, draw);
        for (std::size_t word = 0; word < kSignatureWordsPerDraw; ++word)
            for (std::size_t bit = 0; bit < kWordBits; ++bit)
                ret_draw.signs[(draw * kSignatureWordsPerDraw + word) * kWordBits + bit] =
                    (block.words[word] << (kWordBits - 1 - bit)) & 0x80000000U;
    }
    ret_draw.offset = signature_offset(signature_draw(key, row, kSignatureDrawsPerRow - 1));
}

void add_row(const Row& mean, std::size_t count, const RowDraw& draw, Sums& inout_sums) {
    const auto add = [&](std::size_t begin, std::size_t end, double* sums) {
        for (std::size_t at = begin; at < end; ++at)
            sums[at - begin] += std::bit_cast<float>(std::bit_cast<std::uint32_t>(mean[at]) ^ draw.signs[at]);
    };
    const std::size_t turn = std::min(count, kSignatureBuckets - draw.offset);
    add(0, turn, inout_sums.data() + draw.offset);
    add(turn, count, inout_sums.data());
}

void add_sums(std::span<const double> sums, std::span<double> inout_sums) {
    for (std::size_t bucket = 0; bucket < kSignatureBuckets; ++bucket) inout_sums[bucket] += sums[bucket];
}

}  // namespace

Signature::Signature(TensorId tensor, std::span<const float* const> samples, std::span<const float> weights,
                     ElementCount elements)
    : Signature() {
    const PhiloxKey key = signature_key(tensor);
    RowDraw draw;
    Row mean;
    const auto sum_group = [&](ElementCount begin, ElementCount end) {
        Sums sums{};
        for (ElementCount first = begin; first < end; first += kSignatureBuckets) {
            const auto count = static_cast<std::size_t>(std::min<ElementCount>(kSignatureBuckets, end - first));
            draw_row(key, first / kSignatureBuckets, draw);
            for (std::size_t at = 0; at < count; ++at) mean[at] = weights[0] * samples[0][first + at];
            for (std::size_t sample = 1; sample < samples.size(); ++sample)
                for (std::size_t at = 0; at < count; ++at)
                    mean[at] = mean[at] + weights[sample] * samples[sample][first + at];
            add_row(mean, count, draw, sums);
        }
        return sums;
    };
    for (ElementCount chunk = 0; chunk < elements; chunk += kChunkElements) {
        const ElementCount end = std::min<ElementCount>(chunk + kChunkElements, elements);
        Sums sums{};
        for (ElementCount group = chunk; group < end; group += kSignatureGroupElements)
            add_sums(sum_group(group, std::min<ElementCount>(group + kSignatureGroupElements, end)), sums);
        add_chunk(sums);
    }
}

void Signature::add_chunk(std::span<const double> chunk_sums) noexcept { add_sums(chunk_sums, sums_); }

Signature Signature::of_sums(std::span<const double> sums) {
    Signature signature;
    signature.sums_.assign(sums.begin(), sums.end());
    return signature;
}

Signature Signature::combined(const Signature& left, double left_factor, const Signature& right, double right_factor) {
    Signature sum;
    sum.sums_.resize(kSignatureBuckets);
    for (std::size_t bucket = 0; bucket < kSignatureBuckets; ++bucket)
        sum.sums_[bucket] = left_factor * left.sums_[bucket] + right_factor * right.sums_[bucket];
    return sum;
}

double Signature::square() const noexcept {
    double square = 0;
    for (const double sum : sums_) square += sum * sum;
    return square;
}

std::optional<double> cosine_of(const Signature& left, const Signature& right) noexcept {
    double product = 0;
    double left_square = 0;
    double right_square = 0;
    for (std::size_t bucket = 0; bucket < kSignatureBuckets; ++bucket) {
        product += left.sums()[bucket] * right.sums()[bucket];
        left_square += left.sums()[bucket] * left.sums()[bucket];
        right_square += right.sums()[bucket] * right.sums()[bucket];
    }
    const double cosine = product / std::sqrt(left_square) / std::sqrt(right_square);
    if (!std::isfinite(cosine)) return std::nullopt;
    return std::clamp(cosine, -1.0, 1.0);
}

std::size_t differing_bits(const Signature& left, const Signature& right) noexcept {
    std::size_t count = 0;
    for (std::size_t bucket = 0; bucket < kSignatureBuckets; ++bucket)
        count += (left.sums()[bucket] < 0) != (right.sums()[bucket] < 0) ? 1 : 0;
    return count;
}

namespace stages {
namespace {

constexpr std::string_view kNever = "none";
/// A share of 1 is never taken away, and one of 0 is no contraction.
constexpr NumberRange kShare = {0.01, 0.999, false, "none or [0.01, 0.999]"};
constexpr NumberRange kMost = {1, 100, false, "a whole number in [1, 100]"};
constexpr std::string_view kSkipBefore = "codec stage similarity: skip before";

Status read(ArgumentReader& arguments, Pipeline& inout_pipeline) {
    inout_pipeline.measures_similarity = true;
    const auto skip = arguments.take("skip");
    if (skip && *skip != kNever) inout_pipeline.reuse.share = arguments.parse_number("skip", *skip, kShare);
    const auto most = arguments.take("most");
    GRADSIEVE_TRY(arguments.finish());
    if (!most) return {};
    if (!has_reuse(inout_pipeline))
        return bad_text("codec stage similarity: most", *most, "none without skip",
                        "write similarity(skip=0.5, most=" + std::string(*most) + "), or leave it out");
    const double number = arguments.parse_number("most", *most, kMost);
    return read_whole(arguments, number, "codec stage similarity: most", kMost, inout_pipeline.reuse.most);
}

/// Knobs blanked, one that only measures is left out.
std::string text(const Pipeline& pipeline, Knobs knobs) {
    if (has_reuse(pipeline))
        return "similarity(skip=" + knob_text(pipeline.reuse.share, knobs) +
               ", most=" + knob_text(pipeline.reuse.most, knobs) + ")";
    return pipeline.measures_similarity && knobs == Knobs::kKeep ? "similarity" : "";
}

/// Refuses to skip where the same payload again would be no answer, or what it leaves over would be kept nowhere.
Status check(const Pipeline& pipeline) {
    if (!has_reuse(pipeline)) return {};
    if (has_phases(pipeline))
        return bad_text(kSkipBefore, name_of(pipeline.whole), "a codec of one round of payloads",
                        "its second round follows from the first: leave skip out, or write e.g. all | dither");
    if (has_delta(pipeline))
        return bad_text(kSkipBefore, "delta", "compensate, rotate or the selector",
                        "what was sent last has moved all nodes' average already, and the same again is no answer to "
                        "what is missing from it: leave skip or delta out");
    if (!sends_all(pipeline.selector))
        return bad_text(kSkipBefore, name_of(pipeline.selector), "all",
                        "what a selector sent has left the residual, so the same again is no answer to what waits: "
                        "leave skip out, or select with all");
    if (!has_residual(pipeline))
        return bad_text(kSkipBefore, name_of(pipeline.quantizer), "a quantizer that keeps its errors",
                        "the difference to what is sent again would be kept nowhere: leave skip out, or write e.g. "
                        "bf16, sign or dither without feedback=none");
    if (has_momentum(pipeline))
        return bad_text(kSkipBefore, "momentum", "compensate, rotate or the selector",
                        "what is to be sent is not the residual and the gradient alone, of which signatures tell: "
                        "leave skip or momentum out");
    if (pipeline.front.period > 1)
        return bad_text(kSkipBefore, "accumulate", "compensate, rotate or the selector",
                        "steps that send nothing have nothing to skip: leave skip or accumulate out");
    if (has_low_pass(pipeline))
        return bad_text(kSkipBefore, "compensate(lowpass=..)", "compensate without lowpass",
                        "a filter would not keep the difference: leave skip or lowpass out");
    return {};
}

}  // namespace

const FrontStage Similarity::kStage = {
    .row =
        StageRow{
            "similarity", "front", "skip=none|NUMBER, most=7", "tensor",
            "none; 16 KiB per tensor on the host, not kept; with skip, r, the last payload and 16 KiB per generation",
            "measures how alike this step's gradient and that of the last committed step are, for status: the cosine "
            "from sums of 1,024 buckets with random signs, and how many of their signs, SimHash bits, differ; stands "
            "before all others; skip=x sends, at most `most` times in a row, a record of 10 bytes in place of a "
            "payload "
            "where the node's last payload, added once more, takes at least the share x of the square of what is to be "
            "sent: before `all` and a quantizer that keeps its errors, which keeps the difference; without it nothing "
            "that is sent changes",
            "Charikar 2002, Similarity Estimation Techniques from Rounding Algorithms; Charikar, Chen, Farach-Colton "
            "2002, Finding Frequent Items in Data Streams",
            "gather"},
    .read = read,
    .text = text,
    .check = check,
};

}  // namespace stages

}  // namespace gradsieve::codec
