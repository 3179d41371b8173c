// Payload kernels of the rotation (rotation.hpp). Part of payload_kernels.inl.
#pragma once

#include "codec/payload_kernels.hpp"
#include "codec/vector_types.inl"

namespace gradsieve::codec {
namespace {

/// Blocks from this order on are worked on in vectors.
inline constexpr std::uint32_t kLeastVectorOrder = 8 * kLanes;
inline constexpr std::uint32_t kLargestOrder = 4096;

/// A lane takes the other one of its pair, or less itself where it is the second of the two.
template <unsigned kHalf>
[[gnu::always_inline]] inline Floats butterfly(Floats value, Floats partner) {
    const Words second = (lane_numbers() & kHalf) * (0x80000000U / kHalf);
    return partner + reinterpret_cast<Floats>(reinterpret_cast<Words>(value) ^ second);
}
/// The stages of pairs inside a vector.
[[gnu::always_inline]] inline Floats lane_stages(Floats v) {
#if defined(__AVX512F__)
    v = butterfly<1>(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    v = butterfly<2>(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    v = butterfly<4>(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    return butterfly<8>(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
#elif defined(__AVX2__)
    v = butterfly<1>(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
    v = butterfly<2>(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    return butterfly<4>(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
#else
    v = butterfly<1>(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
    return butterfly<2>(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
#endif
}

/// The stages of pairs among vectors in hand, a power of two of them.
template <unsigned kVectors>
[[gnu::always_inline]] inline void vector_stages(Floats (&inout_vectors)[kVectors]) {
    for (unsigned half = 1; half < kVectors; half *= 2)
        for (unsigned at = 0; at < kVectors; ++at) {
            if ((at & half) != 0) continue;
            const Floats first = inout_vectors[at];
            const Floats second = inout_vectors[at + half];
            inout_vectors[at] = first + second;
            inout_vectors[at + half] = first - second;
        }
}

/// The signs of kLanes elements from `element` on, a multiple of kLanes, in place.
[[gnu::always_inline]] inline Words signs_at(const std::uint32_t* signs, std::uint32_t element) {
    return ((Words{} + (signs[element / 32] >> (element % 32))) >> lane_numbers()) << 31U;
}

/// Stages of kVectors vectors that lie `stride` elements apart.
template <unsigned kVectors>
[[gnu::always_inline]] inline void strided_stages(float* inout_values, std::uint32_t order, std::uint32_t stride) {
    for (std::uint32_t group = 0; group < order; group += kVectors * stride)
        for (std::uint32_t at = group; at < group + stride; at += kLanes) {
            Floats vectors[kVectors];
            for (unsigned i = 0; i < kVectors; ++i)
                __builtin_memcpy(&vectors[i], inout_values + at + i * stride, sizeof(Floats));
            vector_stages(vectors);
            for (unsigned i = 0; i < kVectors; ++i)
                __builtin_memcpy(inout_values + at + i * stride, &vectors[i], sizeof(Floats));
        }
}

/// A block of at least kLeastVectorOrder elements: H (s x) with signs, H x without.
template <bool kHasSigns>
void transform_vectors(const std::uint32_t* signs, std::uint32_t first, const float* values, std::uint32_t order,
                       float scale, float* ret_values) {
    for (std::uint32_t at = 0; at < order; at += kLeastVectorOrder) {
        Floats vectors[8];
        for (unsigned i = 0; i < 8; ++i) {
            __builtin_memcpy(&vectors[i], values + at + i * kLanes, sizeof(Floats));
            vectors[i] = vectors[i] * scale;
            if constexpr (kHasSigns)
                vectors[i] = reinterpret_cast<Floats>(reinterpret_cast<Words>(vectors[i]) ^
                                                      signs_at(signs, first + at + i * kLanes));
            vectors[i] = lane_stages(vectors[i]);
        }
        vector_stages(vectors);
        for (unsigned i = 0; i < 8; ++i) __builtin_memcpy(ret_values + at + i * kLanes, &vectors[i], sizeof(Floats));
    }
    std::uint32_t stride = kLeastVectorOrder;
    for (; order / stride >= 8; stride *= 8) strided_stages<8>(ret_values, order, stride);
    if (order / stride == 4) strided_stages<4>(ret_values, order, stride);
    if (order / stride == 2) strided_stages<2>(ret_values, order, stride);
}

[[gnu::always_inline]] inline std::uint32_t sign_at(const std::uint32_t* signs, std::uint32_t element) {
    return (signs[element / 32] >> (element % 32)) << 31U;
}

/// The same of a small block, at the end of a tensor.
template <bool kHasSigns>
void transform_scalar(const std::uint32_t* signs, std::uint32_t first, const float* values, std::uint32_t order,
                      float scale, float* ret_values) {
    for (std::uint32_t i = 0; i < order; ++i) {
        const float value = values[i] * scale;
        ret_values[i] = kHasSigns ? float_of(bits_of(value) ^ sign_at(signs, first + i)) : value;
    }
    for (std::uint32_t half = 1; half < order; half *= 2)
        for (std::uint32_t i = 0; i < order; ++i) {
            if ((i & half) != 0) continue;
            const float a = ret_values[i];
            const float b = ret_values[i + half];
            ret_values[i] = a + b;
            ret_values[i + half] = a - b;
        }
}

/// Block by block, see rotation_order and rotation_scale.
template <bool kHasSigns>
[[gnu::always_inline]] inline void transform(const std::uint32_t* signs, const float* values, std::uint32_t count,
                                             float* ret_values) {
    std::uint32_t order = kLargestOrder;
    float scale = 1.0F / 64;
    for (std::uint32_t first = 0; first < count;) {
        for (; order > count - first; order /= 4) scale *= 2;
        if (order >= kLeastVectorOrder)
            transform_vectors<kHasSigns>(signs, first, values + first, order, scale, ret_values + first);
        else
            transform_scalar<kHasSigns>(signs, first, values + first, order, scale, ret_values + first);
        first += order;
    }
}

void rotate(const std::uint32_t* signs, const float* values, std::uint32_t count, float* ret_rotated) {
    transform<true>(signs, values, count, ret_rotated);
}

void rotate_back(const std::uint32_t* signs, const float* rotated, std::uint32_t count, float* ret_values) {
    transform<false>(nullptr, rotated, count, ret_values);
    const std::uint32_t whole = count / kLanes * kLanes;
    for (std::uint32_t at = 0; at < whole; at += kLanes) {
        Floats value;
        __builtin_memcpy(&value, ret_values + at, sizeof(value));
        value = reinterpret_cast<Floats>(reinterpret_cast<Words>(value) ^ signs_at(signs, at)) + 0.0F;
        __builtin_memcpy(ret_values + at, &value, sizeof(value));
    }
    for (std::uint32_t at = whole; at < count; ++at)
        ret_values[at] = float_of(bits_of(ret_values[at]) ^ sign_at(signs, at)) + 0.0F;
}

}  // namespace
}  // namespace gradsieve::codec
