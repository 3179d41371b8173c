// Body of the kernels of sketch, compiled once per instruction set; internal linkage, as in payload_kernels.inl.
#include "codec/random_kernel.inl"
#include "codec/sketch_kernels.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kSignBit = 0x80000000U;

void draw_signs(const RandomRounds& shared_random, std::uint64_t piece, std::uint32_t* ret_words) {
    constexpr std::uint64_t kCounters = kSketchPieceElements / 128;
    const RandomRounds random = shared_random;
    for (std::uint64_t counter = 0; counter < kCounters; counter += kLongLanes) {
        Longs block;
        for (unsigned lane = 0; lane < kLongLanes; ++lane) block[lane] = piece * kCounters + counter + lane;
        const PhiloxLanes lanes = philox_lanes<kSketchSignPurpose>(block, random);
        for (unsigned lane = 0; lane < kLongLanes; ++lane)
            for (unsigned word = 0; word < 4; ++word)
                ret_words[4 * (counter + lane) + word] = static_cast<std::uint32_t>(lanes.words[word][lane]);
    }
}

[[gnu::always_inline]] inline Floats sketch_floats_at(const float* address) {
    Floats values;
    __builtin_memcpy(&values, address, sizeof(values));
    return values;
}

/// Signs of kLanes elements, those from bit `first` of the word on.
[[gnu::always_inline]] inline Words signs_of(std::uint32_t word, unsigned first) {
#if defined(__AVX2__)
    return ((Words{} + word) << (31U - first - lane_numbers())) & kSignBit;
#else  // has no shift by a number for each lane
    Words bit;
    for (unsigned lane = 0; lane < kLanes; ++lane) bit[lane] = 1U << (first + lane);
    return reinterpret_cast<Words>(((Words{} + word) & bit) == bit) & kSignBit;
#endif
}
[[gnu::always_inline]] inline Floats with_sign(Floats values, std::uint32_t word, unsigned first) {
    return reinterpret_cast<Floats>(reinterpret_cast<Words>(values) ^ signs_of(word, first));
}
[[gnu::always_inline]] inline float with_sign(float value, std::uint32_t word, unsigned bit) {
    return float_of(bits_of(value) ^ (word << (31U - bit) & kSignBit));
}

[[gnu::always_inline]] inline Floats cut_off(Floats values) {
    const Floats most = kSketchLimit - Floats{};
    values = values > most ? most : values;
    return values < -most ? -most : values;
}
[[gnu::always_inline]] inline float cut_off(float value) {
    return value > kSketchLimit ? kSketchLimit : value < -kSketchLimit ? -kSketchLimit : value;
}

template <unsigned kRows>
void insert_rows(const SketchRun& shared_run, const float* values, std::uint32_t count) {
    const SketchRun run = shared_run;
    const std::uint32_t whole = count / kRunElements * kRunElements;
    for (std::uint32_t at = 0; at < whole; at += kRunElements)
#pragma GCC unroll 8
        for (unsigned vector = 0; vector < kRunVectors; ++vector) {
            const std::uint32_t first = at + vector * kLanes;
            const Floats value = cut_off(sketch_floats_at(values + first));
#pragma GCC unroll 8
            for (unsigned row = 0; row < kRows; ++row) {
                float* cells = run.cells[row] + first;
                const Floats sum =
                    sketch_floats_at(cells) + with_sign(value, run.signs[row][at / kRunElements], vector * kLanes);
                __builtin_memcpy(cells, &sum, sizeof(sum));
            }
        }
    for (std::uint32_t at = whole; at < count; ++at)
        for (unsigned row = 0; row < kRows; ++row)
            run.cells[row][at] = run.cells[row][at] +
                                 with_sign(cut_off(values[at]), run.signs[row][at / kRunElements], at % kRunElements);
}

template <typename T>
[[gnu::always_inline]] inline T lesser(T a, T b) {
    return a < b ? a : b;
}
template <typename T>
[[gnu::always_inline]] inline T greater(T a, T b) {
    return a < b ? b : a;
}
template <typename T>
[[gnu::always_inline]] inline T median_of_three(T a, T b, T c) {
    return greater(lesser(a, b), lesser(greater(a, b), c));
}

template <unsigned kRows, typename T>
[[gnu::always_inline]] inline T median(T (&values)[kRows]) {
    if constexpr (kRows == 1) {
        return values[0];
    } else if constexpr (kRows == 3) {
        return median_of_three(values[0], values[1], values[2]);
    } else if constexpr (kRows == 5) {
        // Of four, neither the least nor the largest is the median of five.
        return median_of_three(greater(lesser(values[0], values[1]), lesser(values[2], values[3])),
                               lesser(greater(values[0], values[1]), greater(values[2], values[3])), values[4]);
    } else {
#pragma GCC unroll 8
        for (unsigned largest = kRows - 1; largest >= kRows / 2; --largest)
#pragma GCC unroll 8
            for (unsigned at = 0; at < largest; ++at) {
                const T low = lesser(values[at], values[at + 1]);
                values[at + 1] = greater(values[at], values[at + 1]);
                values[at] = low;
            }
        return values[kRows / 2];
    }
}

template <unsigned kRows>
void estimate_rows(const SketchRun& shared_run, std::uint32_t count, float* ret_values) {
    const SketchRun run = shared_run;
    const std::uint32_t whole = count / kRunElements * kRunElements;
    for (std::uint32_t at = 0; at < whole; at += kRunElements)
#pragma GCC unroll 8
        for (unsigned vector = 0; vector < kRunVectors; ++vector) {
            const std::uint32_t first = at + vector * kLanes;
            Floats estimates[kRows];
#pragma GCC unroll 8
            for (unsigned row = 0; row < kRows; ++row)
                estimates[row] = with_sign(sketch_floats_at(run.cells[row] + first), run.signs[row][at / kRunElements],
                                           vector * kLanes);
            const Floats value = median(estimates);
            __builtin_memcpy(ret_values + first, &value, sizeof(value));
        }
    for (std::uint32_t at = whole; at < count; ++at) {
        float estimates[kRows];
        for (unsigned row = 0; row < kRows; ++row)
            estimates[row] = with_sign(run.cells[row][at], run.signs[row][at / kRunElements], at % kRunElements);
        ret_values[at] = median(estimates);
    }
}

void insert(const SketchRun& run, std::uint32_t rows, const float* values, std::uint32_t count) {
    switch (rows) {
        case 1: return insert_rows<1>(run, values, count);
        case 3: return insert_rows<3>(run, values, count);
        case 5: return insert_rows<5>(run, values, count);
        default: return insert_rows<7>(run, values, count);
    }
}
void estimate(const SketchRun& run, std::uint32_t rows, std::uint32_t count, float* ret_values) {
    switch (rows) {
        case 1: return estimate_rows<1>(run, count, ret_values);
        case 3: return estimate_rows<3>(run, count, ret_values);
        case 5: return estimate_rows<5>(run, count, ret_values);
        default: return estimate_rows<7>(run, count, ret_values);
    }
}

constexpr SketchKernels kKernels = {&draw_signs, &insert, &estimate};

}  // namespace
}  // namespace gradsieve::codec
