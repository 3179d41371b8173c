// The loops of sketch that touch every element, in one form per instruction set. All forms give the same bits: each
// cell is a sum of its elements in order. Any thread; no state.
#pragma once

#include "codec/cpu_form.hpp"
#include "codec/random_rounds.hpp"

#include <cstddef>
#include <cstdint>

namespace gradsieve::codec {

inline constexpr std::uint32_t kMostSketchRows = 7;
/// Elements whose signs are drawn together: those of eight counters of Philox in each row.
inline constexpr std::uint32_t kSketchPieceElements = 1024;
/// What the words of the key are for, in the counter's upper half of the second word: signs.
inline constexpr std::uint32_t kSketchSignPurpose = 9U << 24U;
/// And offsets.
inline constexpr std::uint32_t kSketchOffsetPurpose = 10U << 24U;
/// Elements are cut off at that magnitude on their way into a cell, so that no sum of a tensor's overflows.
inline constexpr float kSketchLimit = 0x1p96F;

/// Where a block of elements stands: for each row its first cell, and a bit for each element, set where the element's
/// sign in that row is minus.
struct SketchRun {
    float* cells[kMostSketchRows] = {};
    const std::uint32_t* signs[kMostSketchRows] = {};
};

struct SketchKernels {
    /// Signs of elements 1024 `piece` .. 1024 `piece` + 1023 in the row of `random`: 32 words. Bit i % 32 of word
    /// i / 32 % 4 of counter i / 128 is the sign of element i.
    void (*draw_signs)(const RandomRounds& random, std::uint64_t piece, std::uint32_t* ret_words);
    /// cells[row][i] = fl(cells[row][i] + sign values[i]), values cut off. rows: 1, 3, 5 or 7.
    void (*insert)(const SketchRun& run, std::uint32_t rows, const float* values, std::uint32_t count);
    /// ret_values[i]: the median over rows of sign cells[row][i].
    void (*estimate)(const SketchRun& run, std::uint32_t rows, std::uint32_t count, float* ret_values);
};

/// The form in use, as payload_kernels.
[[nodiscard]] const SketchKernels& sketch_kernels() noexcept;
/// One form, or null where the CPU or the build lacks it.
[[nodiscard]] const SketchKernels* sketch_kernels_of(CpuForm form) noexcept;

extern const SketchKernels kSketchKernelsScalar;
#if defined(__x86_64__)
extern const SketchKernels kSketchKernelsAvx2;
extern const SketchKernels kSketchKernelsAvx512;
#endif

}  // namespace gradsieve::codec
