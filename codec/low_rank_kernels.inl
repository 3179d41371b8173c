// Body of the kernels of lowrank, compiled once per instruction set; internal linkage, as in payload_kernels.inl.
#include "codec/low_rank_kernels.hpp"
#include "codec/vector_types.inl"

#include <cfloat>

namespace gradsieve::codec {
namespace {

/// Numbers of a row in hand at a time: they and their sums stay in the first-level cache.
constexpr std::uint32_t kPieceElements = 1024;

[[gnu::always_inline]] inline Floats floats_at(const float* address) {
    Floats values;
    __builtin_memcpy(&values, address, sizeof(values));
    return values;
}

[[gnu::always_inline]] inline Floats cut(Floats values, float limit) {
    const Floats most = limit - Floats{};
    values = values > most ? most : values;
    return values < -most ? -most : values;
}
[[gnu::always_inline]] inline float cut(float value, float limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}

/// The sums of kRows factors, so that each vector of values is loaded once for all of them.
template <unsigned kRows>
[[gnu::always_inline]] inline void project_rows(const float* values, std::uint32_t count, const float* factors,
                                                std::size_t stride, float* ret_sums) {
    Floats sums[kRows][kRunVectors] = {};
    const std::uint32_t whole = count / kRunElements * kRunElements;
    for (std::uint32_t at = 0; at < whole; at += kRunElements)
        for (unsigned part = 0; part < kRunVectors; ++part) {
            const Floats value = cut(floats_at(values + at + part * kLanes), kFactorLimit);
            for (unsigned row = 0; row < kRows; ++row)
                sums[row][part] = sums[row][part] + value * floats_at(factors + row * stride + at + part * kLanes);
        }
    for (unsigned row = 0; row < kRows; ++row) {
        float lanes[kRunElements];
        __builtin_memcpy(lanes, sums[row], sizeof(lanes));
        for (std::uint32_t at = whole; at < count; ++at)
            lanes[at - whole] = lanes[at - whole] + cut(values[at], kFactorLimit) * factors[row * stride + at];
        for (std::uint32_t half = kRunElements / 2; half > 0; half /= 2)
            for (std::uint32_t lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
        ret_sums[row] = lanes[0];
    }
}

void project(const float* values, std::uint32_t count, const float* factors, std::size_t stride, std::uint32_t rank,
             float* ret_sums) {
    std::uint32_t row = 0;
    for (; row + 2 <= rank; row += 2) project_rows<2>(values, count, factors + row * stride, stride, ret_sums + row);
    if (row < rank) project_rows<1>(values, count, factors + row * stride, stride, ret_sums + row);
}

/// kRows at a time, so that a sum is loaded and stored once for all of them.
template <unsigned kRows>
[[gnu::always_inline]] inline void add_rows(const float* values, std::uint32_t count, const float* left,
                                            std::uint32_t rank, float* inout_factors, std::size_t stride) {
    const std::uint32_t whole = count / kLanes * kLanes;
    for (std::uint32_t at = 0; at < whole; at += kLanes) {
        Floats cells[kRows];
        for (unsigned row = 0; row < kRows; ++row)
            cells[row] = cut(floats_at(values + row * stride + at), kFactorLimit);
        for (std::uint32_t factor = 0; factor < rank; ++factor) {
            float* sums = inout_factors + factor * stride + at;
            Floats sum = floats_at(sums);
            for (unsigned row = 0; row < kRows; ++row) sum = sum + left[row * rank + factor] * cells[row];
            __builtin_memcpy(sums, &sum, sizeof(sum));
        }
    }
    for (std::uint32_t at = whole; at < count; ++at)
        for (std::uint32_t factor = 0; factor < rank; ++factor) {
            float sum = inout_factors[factor * stride + at];
            for (unsigned row = 0; row < kRows; ++row)
                sum = sum + left[row * rank + factor] * cut(values[row * stride + at], kFactorLimit);
            inout_factors[factor * stride + at] = sum;
        }
}

void add_outer(const float* values, std::uint32_t rows, std::uint32_t count, const float* left, std::uint32_t rank,
               float* inout_factors, std::size_t stride) {
    constexpr std::uint32_t kAtOnce = 4;
    std::uint32_t row = 0;
    for (; row + kAtOnce <= rows; row += kAtOnce)
        add_rows<kAtOnce>(values + row * stride, count, left + std::size_t{row} * rank, rank, inout_factors, stride);
    for (; row < rows; ++row)
        add_rows<1>(values + row * stride, count, left + std::size_t{row} * rank, rank, inout_factors, stride);
}

/// At most kPieceElements.
[[gnu::always_inline]] inline void expand_piece(const float* row, std::uint32_t rank, const float* factors,
                                                std::size_t stride, std::uint32_t count, float* ret_values) {
    const std::uint32_t whole = count / kLanes * kLanes;
    for (std::uint32_t at = 0; at < whole; at += kLanes) {
        Floats sum = {};
        for (std::uint32_t factor = 0; factor < rank; ++factor)
            sum = sum + row[factor] * floats_at(factors + factor * stride + at);
        __builtin_memcpy(ret_values + at, &sum, sizeof(sum));
    }
    for (std::uint32_t at = whole; at < count; ++at) {
        float sum = 0;
        for (std::uint32_t factor = 0; factor < rank; ++factor) sum = sum + row[factor] * factors[factor * stride + at];
        ret_values[at] = sum;
    }
}

void expand(const float* row, std::uint32_t rank, const float* factors, std::size_t stride, std::uint32_t count,
            float* ret_values) {
    for (std::uint32_t first = 0; first < count; first += kPieceElements) {
        const std::uint32_t piece = count - first < kPieceElements ? count - first : kPieceElements;
        expand_piece(row, rank, factors + first, stride, piece, ret_values + first);
    }
}

void subtract(const float* row, std::uint32_t rank, const float* factors, std::size_t stride, std::uint32_t count,
              float* inout_values) {
    float sums[kPieceElements];
    for (std::uint32_t first = 0; first < count; first += kPieceElements) {
        const std::uint32_t piece = count - first < kPieceElements ? count - first : kPieceElements;
        float* values = inout_values + first;
        expand_piece(row, rank, factors + first, stride, piece, sums);
        for (std::uint32_t at = 0; at < piece; ++at) values[at] = cut(values[at] - sums[at], FLT_MAX);
    }
}

constexpr LowRankKernels kKernels = {
    .project = &project, .add_outer = &add_outer, .expand = &expand, .subtract = &subtract};

}  // namespace
}  // namespace gradsieve::codec
