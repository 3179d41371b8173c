#include "codec/similarity.hpp"

#include "codec/philox.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace gradsieve::codec {
namespace {

/// In the counter's upper half of the second word, as kRoundingPurpose.
constexpr std::uint32_t kSignaturePurpose = 7U << 24U;
constexpr std::size_t kWordBits = 32;
constexpr std::size_t kSignWords = kSignatureBuckets / kWordBits;
constexpr std::size_t kWordsPerDraw = 4;
constexpr std::size_t kDrawsPerRow = kSignWords / kWordsPerDraw + 1;  ///< the last one has the offset

PhiloxBlock draw_of(PhiloxKey key, std::uint64_t number) {
    return philox(
        {{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U) | kSignaturePurpose, 0, 0}},
        key);
}

/// Sign bits and offset of one row of elements.
struct RowDraw {
    std::array<std::uint32_t, kSignatureBuckets> signs;  ///< the sign bit of a float, or 0
    std::size_t offset = 0;
};
void draw_row(PhiloxKey key, std::uint64_t row, RowDraw& ret_draw) {
    const std::uint64_t first = row * kDrawsPerRow;
    for (std::size_t draw = 0; draw + 1 < kDrawsPerRow; ++draw) {
        const PhiloxBlock block = draw_of(key, first + draw);
        for (std::size_t word = 0; word < kWordsPerDraw; ++word)
            for (std::size_t bit = 0; bit < kWordBits; ++bit)
                ret_draw.signs[(draw * kWordsPerDraw + word) * kWordBits + bit] =
                    (block.words[word] << (kWordBits - 1 - bit)) & 0x80000000U;
    }
    ret_draw.offset = draw_of(key, first + kDrawsPerRow - 1).words[0] % kSignatureBuckets;
}

}  // namespace

Signature::Signature(TensorId tensor, std::span<const float* const> samples, std::span<const float> weights,
                     ElementCount elements)
    : sums_(kSignatureBuckets, 0.0) {
    const std::uint64_t tensor_key = mix64(tensor);
    const PhiloxKey key{static_cast<std::uint32_t>(tensor_key), static_cast<std::uint32_t>(tensor_key >> 32U)};
    RowDraw draw;
    std::array<float, kSignatureBuckets> mean;
    for (ElementCount first = 0; first < elements; first += kSignatureBuckets) {
        const auto count = static_cast<std::size_t>(std::min<ElementCount>(kSignatureBuckets, elements - first));
        draw_row(key, first / kSignatureBuckets, draw);
        for (std::size_t at = 0; at < count; ++at) mean[at] = weights[0] * samples[0][first + at];
        for (std::size_t sample = 1; sample < samples.size(); ++sample)
            for (std::size_t at = 0; at < count; ++at)
                mean[at] = mean[at] + weights[sample] * samples[sample][first + at];
        const auto add = [&](std::size_t begin, std::size_t end, double* sums) {
            for (std::size_t at = begin; at < end; ++at)
                sums[at - begin] += std::bit_cast<float>(std::bit_cast<std::uint32_t>(mean[at]) ^ draw.signs[at]);
        };
        const std::size_t turn = std::min(count, kSignatureBuckets - draw.offset);
        add(0, turn, sums_.data() + draw.offset);
        add(turn, count, sums_.data());
    }
}

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
