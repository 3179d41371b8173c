#include "codec/similarity.hpp"

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

}  // namespace gradsieve::codec
