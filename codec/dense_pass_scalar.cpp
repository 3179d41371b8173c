// Scalar form of the dense pass: a vector is one float. Runs on every CPU.
#include "codec/dense_pass_kernel.hpp"

namespace gradsieve::codec {
namespace {

struct ScalarIsa {
    static constexpr unsigned kWidth = 1;
    static constexpr unsigned kListedBlocks = 1;
    using Vec = float;

    static std::uint32_t bits(Vec a) { return __builtin_bit_cast(std::uint32_t, a); }

    static Vec load(const float* address) { return *address; }
    static Vec load_first(const float* address, unsigned lanes) { return lanes == 0 ? 0.0F : *address; }
    static void hide(Vec& value) { asm volatile("" : "+m"(value)); }
    static void store(float* address, Vec value) { *address = value; }
    static void stream(float* address, Vec value) { *address = value; }
    static void store_first(float* address, unsigned lanes, Vec value) {
        if (lanes != 0) *address = value;
    }
    static Vec broadcast(float value) { return value; }
    static Vec add(Vec a, Vec b) { return a + b; }
    static Vec sub(Vec a, Vec b) { return a - b; }
    static Vec mul(Vec a, Vec b) { return a * b; }
    static Vec min(Vec a, Vec b) { return a < b ? a : b; }
    static Vec max(Vec a, Vec b) { return a > b ? a : b; }
    static Vec magnitude(Vec a) { return __builtin_bit_cast(float, bits(a) & 0x7FFFFFFFU); }
    static std::uint32_t greater(Vec a, Vec b) { return a > b ? 1U : 0U; }
    static std::uint32_t magnitude_at_least(Vec a, std::uint32_t floor) {
        return (bits(a) & 0x7FFFFFFFU) >= floor ? 1U : 0U;
    }
    static std::uint32_t non_finite(Vec a) { return (bits(a) & 0x7F800000U) == 0x7F800000U ? 1U : 0U; }
    static Vec keep_where(Vec a, std::uint32_t mask) { return (mask & 1U) != 0 ? a : 0.0F; }
    static Vec add_and_mask_bits(Vec a, std::uint32_t add, std::uint32_t keep) {
        return __builtin_bit_cast(float, (bits(a) + add) & keep);
    }
    static float fold(Vec a) { return a; }
    static Vec round_bf16(Vec a) {
        const std::uint32_t rounded = (bits(a) + 0x7FFFU + ((bits(a) >> 16U) & 1U)) & 0xFFFF0000U;
        const bool is_infinite = (rounded & 0x7FFF0000U) == 0x7F800000U;
        return __builtin_bit_cast(float, rounded - (is_infinite ? 0x00010000U : 0U));
    }
    template <bool kStreams>
    static void store_halves(std::uint16_t* target, const Vec (&block)[kPooledElements]) {
        for (unsigned lane = 0; lane < kPooledElements; ++lane)
            target[lane] = static_cast<std::uint16_t>(bits(block[lane]) >> 16U);
    }
    using Doubles = double;
    static void add_magnitudes(Doubles& sum, Vec a) { sum += static_cast<double>(magnitude(a)); }
    static void store_doubles(double* target, Doubles sum) { *target = sum; }
    static void compress(float* target, Vec a, std::uint32_t) { *target = a; }
    static void compress_indices(std::uint32_t* target, std::uint32_t first, std::uint32_t) { *target = first; }
};

}  // namespace

DensePass find_dense_pass_scalar(DenseRule rule, VarianceSource source) noexcept {
    return find_form<ScalarIsa>(rule, source);
}

}  // namespace gradsieve::codec
