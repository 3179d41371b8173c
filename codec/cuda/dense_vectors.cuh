// The quantizers whose codes need nothing but the element in the dense pass: f32, f16, bf16, natural, votes. Device
// code only.
#pragma once

#include "codec/cuda/dense_form.cuh"
#include "codec/cuda/dense_payload.cuh"

namespace gradsieve::codec::cuda {

struct StoreF32 {
    template <bool kDecodes>
    static __device__ void store(const TileWork& work, std::byte* values, unsigned number, Vector& r) {
        store_code_f32(work, values, number, r);
    }
};
template <>
struct DenseForm<stages::F32::kFacts.kind> : VectorForm<StoreF32> {
    static constexpr Leftover kLeftover = Leftover::kNobody;
};

template <bool kIsF16>
struct StoreHalves {
    template <bool kDecodes>
    static __device__ void store(const TileWork& work, std::byte* values, unsigned number, Vector& inout_r) {
        store_halves<kIsF16, kDecodes>(work, values, number, inout_r);
    }
};
template <>
struct DenseForm<stages::F16::kFacts.kind> : VectorForm<StoreHalves<true>> {
    static constexpr Leftover kLeftover = Leftover::kCallerIfKept;
};
template <>
struct DenseForm<stages::Bf16::kFacts.kind> : VectorForm<StoreHalves<false>> {
    static constexpr Leftover kLeftover = Leftover::kCallerIfKept;
};

struct StoreNatural {
    template <bool kDecodes>
    static __device__ void store(const TileWork& work, std::byte* values, unsigned number, Vector& inout_r) {
        store_natural<kDecodes>(work, values, number, inout_r);
    }
};
template <>
struct DenseForm<stages::Natural::kFacts.kind> : VectorForm<StoreNatural> {
    static constexpr Leftover kLeftover = Leftover::kCallerIfKept;
};

struct StoreVotes {
    template <bool kDecodes>
    static __device__ void store(const TileWork& work, std::byte* values, unsigned number, Vector& inout_r) {
        store_signs<kDecodes>(work, values, number, SignScales{1.0F, 1.0F}, inout_r);
    }
};
template <>
struct DenseForm<stages::Vote::kFacts.kind> : VectorForm<StoreVotes> {
    static constexpr Leftover kLeftover = Leftover::kNobody;
};

}  // namespace gradsieve::codec::cuda
