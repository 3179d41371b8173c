// What sending an element of a tile takes, whoever does it: the tile's scale, what receivers decode, its code in the
// tile's slot, r and v afterwards, and the sums that the index coder chooses its parameter by. Device code only.
#pragma once

#include "codec/cuda/dither_levels.cuh"
#include "codec/cuda/encode_plan.hpp"
#include "codec/element.hpp"
#include "codec/pipeline.hpp"
#include "codec/stages/two_mean.hpp"

namespace gradsieve::codec::cuda {

/// Where a tile's list and its state lie.
struct TileTarget {
    std::uint16_t* indices;
    std::byte* values;
    TileInfo* info;
    float* residual_out;  ///< of the tile's first element
    float* variance_out;
    std::uint32_t first;  ///< the tile's first element in the part
};

__device__ inline TileTarget tile_target(const EncodeRound& round, const TensorPlan& plan, std::uint32_t tile,
                                         std::uint32_t first) {
    TileTarget target;
    target.indices = round.slot_indices + std::size_t{tile} * kTile;
    target.values = round.slot_values + std::size_t{tile} * kTile * round.slot_value_bytes;
    target.info = round.tiles + tile;
    target.residual_out = plan.residual_out + first;
    target.variance_out = plan.has_variance != 0 ? plan.variance_out + first : nullptr;
    target.first = first;
    return target;
}

/// The dense pass counts top-k's candidates by all but the last 10 bits of their magnitude, from the floor's on: where
/// the k-th nearly always lies. Larger ones are not counted one by one.
inline constexpr unsigned kFineShift = 10;
__device__ inline std::uint32_t fine_base(const TensorPlan& plan) { return (plan.magnitude_limit + 1U) >> kFineShift; }

/// The magnitudes of a list added up in fp64: entry j adds to lane j % 32 in order, then lane l takes lane l + 16, 8,
/// 4, 2, 1. A whole warp.
template <typename ValueOf>
__device__ inline double sum_magnitudes(std::uint32_t count, ValueOf value_of) {
    double sum = 0;
#pragma unroll 4
    for (std::uint32_t at = threadIdx.x % 32; at < count; at += 32)
        sum = sum + static_cast<double>(element::magnitude(value_of(at)));
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum = sum + __shfl_down_sync(~0U, sum, lanes);
    return __shfl_sync(~0U, sum, 0);
}
/// Their mean. Nothing selected is zero: the variance test is strict, and top-k lists no zeros. A whole warp; no
/// entries: 0.
template <typename ValueOf>
__device__ inline float mean_magnitude(std::uint32_t count, ValueOf value_of) {
    if (count == 0) return 0.0F;
    return static_cast<float>(sum_magnitudes(count, value_of) / static_cast<double>(count));
}
/// The mean magnitude of each side of zero, in the same order, the other side's entries being 0. A whole warp.
template <typename ValueOf>
__device__ inline TwoMeans means_of_sides(std::uint32_t count, ValueOf value_of) {
    double sums[2] = {};
    std::uint32_t negatives = 0;
    for (std::uint32_t at = threadIdx.x % 32; at < count; at += 32) {
        const float value = value_of(at);
        const bool is_negative = value < 0.0F;
        negatives += is_negative ? 1U : 0U;
        sums[0] = sums[0] + static_cast<double>(is_negative ? 0.0F : element::magnitude(value));
        sums[1] = sums[1] + static_cast<double>(is_negative ? -value : 0.0F);
    }
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
        sums[0] = sums[0] + __shfl_down_sync(~0U, sums[0], lanes);
        sums[1] = sums[1] + __shfl_down_sync(~0U, sums[1], lanes);
    }
    negatives = __reduce_add_sync(~0U, negatives);
    return {{mean_of_side(__shfl_sync(~0U, sums[0], 0), count - negatives),
             mean_of_side(__shfl_sync(~0U, sums[1], 0), negatives)}};
}
/// The largest magnitude bits of a list. A whole warp.
template <typename ValueOf>
__device__ inline std::uint32_t largest_magnitude(std::uint32_t count, ValueOf value_of) {
    std::uint32_t largest = 0;
    for (std::uint32_t at = threadIdx.x % 32; at < count; at += 32)
        largest = max(largest, element::magnitude_bits(value_of(at)));
    return __reduce_max_sync(~0U, largest);
}

/// What all elements of a tile share.
struct TileScale {
    std::uint32_t top = 0;      ///< pow2: biased exponent
    std::uint32_t range = 0;    ///< pow2: octaves below it that have a code
    float scale = 0;            ///< signs; dither: of a level; exponential_dither: of the largest
    float to_levels = 0;        ///< dither; two means: the scale of negatives
    std::uint32_t written = 0;  ///< what the tile's info says
};

/// Whether the scale needs all values of a tile's list, not its largest alone.
__device__ inline bool needs_list(const TensorPlan& plan) {
    return has_tile_scales(static_cast<QuantizerKind>(plan.quantizer)) && !(plan.sign_scale > 0);
}
__device__ inline TileScale sign_scale(const TensorPlan& plan, float mean) {
    TileScale tile;
    if (plan.sign_scale > 0) {
        tile.scale = plan.sign_scale;
    } else {
        tile.written = element::bf16_bits(mean);
        tile.scale = element::float_of(tile.written << 16U);
    }
    return tile;
}
__device__ inline TileScale two_mean_scale(const TwoMeans& means) {
    TileScale tile;
    const std::uint32_t positive = element::bf16_bits(means.of[0]);
    const std::uint32_t negative = element::bf16_bits(means.of[1]);
    tile.scale = element::float_of(positive << 16U);
    tile.to_levels = element::float_of(negative << 16U);
    tile.written = positive | negative << 16U;
    return tile;
}
/// Dither's or exponential_dither's, of a whole list. A whole warp.
template <Draw kDraw, typename ValueOf>
__device__ inline TileScale dither_scale(const TensorPlan& plan, std::uint32_t count, ValueOf value_of) {
    TileScale tile;
    DitherTile measured;
    measured.count = count;
    measured.largest = element::float_of(largest_magnitude(count, value_of));
    if (needs_squares(dither_rule_of(plan, true))) measured.square_sum = sum_squares(count, value_of);
    if (count == 0) return tile;
    const DitherUnit unit = unit_of_tile<kDraw>(plan, true, measured);
    tile.scale = unit.scale;
    tile.to_levels = unit.to_levels;
    tile.written = element::bits_of(unit.scale) >> 16U;
    return tile;
}
/// `largest`: magnitude bits, of the tile or the tensor.
__device__ inline TileScale scale_of_largest(const TensorPlan& plan, std::uint32_t largest) {
    const auto quantizer = static_cast<QuantizerKind>(plan.quantizer);
    if (is_sign_bit(quantizer)) return sign_scale(plan, 0.0F);
    TileScale tile;
    if (!has_exponents(quantizer)) return tile;
    tile.top = largest >> 23U;
    tile.range = (1U << (plan.code_bits - 1U)) - 1U;
    tile.written = tile.top;
    return tile;
}

/// Of a tile whose list is known. A whole warp. kDraw: what plans may ask for.
template <Draw kDraw, typename ValueOf>
__device__ inline TileScale scale_of_list(const TensorPlan& plan, std::uint32_t count, ValueOf value_of) {
    if (!needs_list(plan)) return scale_of_largest(plan, largest_magnitude(count, value_of));
    if constexpr (kDraw != Draw::kNone)
        if (is_dithered(static_cast<QuantizerKind>(plan.quantizer))) return dither_scale<kDraw>(plan, count, value_of);
    if (scales_per_tile(static_cast<QuantizerKind>(plan.quantizer)) == 2)
        return two_mean_scale(means_of_sides(count, value_of));
    return sign_scale(plan, mean_magnitude(count, value_of));
}

/// How a quantizer that rounds without random numbers codes one element of a list: a specialization of each.
///   decoded: what receivers decode; zero: not sent
///   code: what the payload says of that
template <QuantizerKind kQuantizer>
struct ListForm;
template <>
struct ListForm<stages::F32::kFacts.kind> {
    static __device__ float decoded(const TileScale& /*tile*/, float value) { return value; }
    static __device__ std::uint32_t code(const TensorPlan& /*plan*/, const TileScale& /*tile*/, float decoded) {
        return element::bits_of(decoded);
    }
};
template <>
struct ListForm<stages::F16::kFacts.kind> {
    static __device__ float decoded(const TileScale& /*tile*/, float value) {
        return element::float_of(element::f16_value_bits(element::f16_bits(value)));
    }
    static __device__ std::uint32_t code(const TensorPlan& /*plan*/, const TileScale& /*tile*/, float decoded) {
        return element::f16_bits(decoded);
    }
};
template <>
struct ListForm<stages::Bf16::kFacts.kind> {
    static __device__ float decoded(const TileScale& /*tile*/, float value) {
        return element::float_of(element::bf16_bits(value) << 16U);
    }
    static __device__ std::uint32_t code(const TensorPlan& /*plan*/, const TileScale& /*tile*/, float decoded) {
        return element::bits_of(decoded) >> 16U;
    }
};
template <>
struct ListForm<stages::Pow2::kFacts.kind> {
    static __device__ float decoded(const TileScale& tile, float value) {
        return element::pow2_decoded(value, tile.top, tile.range);
    }
    static __device__ std::uint32_t code(const TensorPlan& plan, const TileScale& tile, float decoded) {
        return element::pow2_code(decoded, tile.top, plan.code_bits);
    }
};
struct SignCode {
    static __device__ std::uint32_t code(const TensorPlan& /*plan*/, const TileScale& /*tile*/, float decoded) {
        return element::bits_of(decoded) >> 31U;
    }
};
template <>
struct ListForm<stages::Sign::kFacts.kind> : SignCode {
    static __device__ float decoded(const TileScale& tile, float value) {
        if (!(tile.scale > 0.0F) || value == 0.0F) return 0.0F;
        return value < 0.0F ? -tile.scale : tile.scale;
    }
};
template <>
struct ListForm<stages::TwoMean::kFacts.kind> : SignCode {
    static __device__ float decoded(const TileScale& tile, float value) {
        const float size = value < 0.0F ? -tile.to_levels : tile.scale;
        return value == 0.0F || size == 0.0F ? 0.0F : size;
    }
};

/// Whether a list's elements are coded by a ListForm; those of others are drawn, or never in one.
template <typename Stage>
concept HasListForm = HasForm<Stage> && Stage::kFacts.sends_lists && !Stage::kFacts.is_random;
template <typename Stage>
__device__ inline bool decode_if(const TensorPlan& plan, const TileScale& tile, float value, float& ret_decoded) {
    if constexpr (HasListForm<Stage>) {
        if (static_cast<QuantizerKind>(plan.quantizer) != Stage::kFacts.kind) return false;
        ret_decoded = ListForm<Stage::kFacts.kind>::decoded(tile, value);
        return true;
    }
    return false;
}
template <typename... Stages>
__device__ inline float decoded_by(QuantizerList<Stages...> /*list*/, const TensorPlan& plan, const TileScale& tile,
                                   float value) {
    float decoded = 0.0F;
    static_cast<void>((decode_if<Stages>(plan, tile, value, decoded) || ...));
    return decoded;
}
template <typename Stage>
__device__ inline bool code_if(const TensorPlan& plan, const TileScale& tile, float decoded,
                               std::uint32_t& inout_code) {
    if constexpr (HasListForm<Stage>) {
        if (static_cast<QuantizerKind>(plan.quantizer) != Stage::kFacts.kind) return false;
        inout_code = ListForm<Stage::kFacts.kind>::code(plan, tile, decoded);
        return true;
    }
    return false;
}
template <typename... Stages>
__device__ inline std::uint32_t code_by(QuantizerList<Stages...> /*list*/, const TensorPlan& plan,
                                        const TileScale& tile, float decoded, std::uint32_t drawn) {
    static_cast<void>((code_if<Stages>(plan, tile, decoded, drawn) || ...));
    return drawn;
}

/// What receivers decode; zero: not sent.
__device__ inline float decoded_of(const TensorPlan& plan, const TileScale& tile, float value) {
    return decoded_by(Quantizers{}, plan, tile, value);
}
/// What the payload says of it. `drawn`: the code of what is coded one by one.
__device__ inline std::uint32_t code_of(const TensorPlan& plan, const TileScale& tile, float decoded,
                                        std::uint32_t drawn) {
    return code_by(Quantizers{}, plan, tile, decoded, drawn);
}
__device__ inline void store_code(const TensorPlan& plan, std::uint32_t code, std::byte* values, std::uint32_t at) {
    if (plan.value_bytes == 1)
        reinterpret_cast<std::uint8_t*>(values)[at] = static_cast<std::uint8_t>(code);
    else if (plan.value_bytes == 2)
        reinterpret_cast<std::uint16_t*>(values)[at] = static_cast<std::uint16_t>(code);
    else
        reinterpret_cast<std::uint32_t*>(values)[at] = code;
}

/// r and v of an element that is sent.
__device__ inline float residual_after(const TensorPlan& plan, float value, float decoded) {
    return plan.is_faithful != 0 ? 0.0F : value - decoded;
}
__device__ inline float variance_after(const TensorPlan& plan, float variance, float value, float decoded) {
    return plan.is_hybrid != 0 ? element::reduced_variance(variance, value, decoded) : 0.0F;
}

/// Sums of the gaps between a tile's sent elements, shifted by each Rice parameter; a part of them in each lane.
struct GapSums {
    std::uint32_t at[kRiceSums] = {};

    __device__ void add(std::uint32_t gap) {
#pragma unroll
        for (unsigned r = 0; r < kRiceSums; ++r) at[r] += gap >> r;
    }
    __device__ void write(TileInfo& info) const {
        const unsigned lane = threadIdx.x % 32;
        std::uint32_t own = 0;
#pragma unroll
        for (unsigned r = 0; r < kRiceSums; ++r) {
            const std::uint32_t sum = __reduce_add_sync(~0U, at[r]);
            own = lane == r ? sum : own;
        }
        if (lane < kRiceSums) info.quotients[lane] = own;
    }
};

/// One entry of a tile's list.
struct ListEntry {
    std::uint32_t index = 0;  ///< in the tile
    float value = 0;
    float variance = 0;  ///< before any decay; the hybrid's
};

/// Sends a list, whose order is the tile's: what has a code goes to the tile's slot, and the state of that, which was
/// written as if nothing were sent, is settled. A whole warp. `entry_of(j)`: asked once, before anything is written
/// behind entry j - 64; `keepers_of(entry, exists)`: lanes whose entry is sent if it has a code.
template <Draw kDraw, typename EntryOf, typename KeepersOf>
__device__ inline void send_list(const TensorPlan& plan, const TileTarget& target, const TileScale& tile,
                                 std::uint32_t count, EntryOf entry_of, KeepersOf keepers_of) {
    const unsigned lane = threadIdx.x % 32;
    std::uint32_t sent = 0;
    std::uint32_t first = 0;
    std::uint32_t end_before = 0;
    std::uint32_t largest = 0;  // integer: code
    GapSums gaps;
    ListEntry next;
    ListEntry after_next;
    if (lane < count) next = entry_of(lane);
    if (lane + 32 < count) after_next = entry_of(lane + 32);
    for (std::uint32_t begin = 0; begin < count; begin += 32) {
        const bool exists = begin + lane < count;
        const ListEntry entry = next;
        next = after_next;
        if (begin + 64 + lane < count) after_next = entry_of(begin + 64 + lane);
        const std::uint32_t keepers = keepers_of(entry, exists);
        const bool is_kept = ((keepers >> lane) & 1U) != 0;
        const bool is_drawn = kDraw != Draw::kNone && plan.draws != 0 && is_kept;
        std::uint32_t code = 0;
        float decoded = is_kept ? decoded_of(plan, tile, entry.value) : 0.0F;
        if (is_drawn) {
            const Drawn drawn =
                draw_at<kDraw>(plan, tile.to_levels, tile.scale, entry.value, target.first + entry.index);
            code = drawn.code;
            decoded = element::float_of(drawn.decoded_bits);
            if constexpr (kDraw == Draw::kExponential) largest = max(largest, code & kIntegerMagnitude);
        }
        const std::uint32_t senders = __ballot_sync(~0U, decoded != 0.0F);  // everyone has read by now
        const std::uint32_t lower = senders & ((1U << lane) - 1U);
        const std::uint32_t neighbour =
            __shfl_sync(~0U, entry.index, lower == 0 ? 0 : 31 - __clz(static_cast<int>(lower)));
        if (decoded != 0.0F) {
            const std::uint32_t at = sent + __popc(lower);
            target.indices[at] = static_cast<std::uint16_t>(entry.index);
            store_code(plan, code_of(plan, tile, decoded, code), target.values, at);
            target.residual_out[entry.index] = residual_after(plan, entry.value, decoded);
            if (target.variance_out != nullptr)
                target.variance_out[entry.index] = variance_after(plan, entry.variance, entry.value, decoded);
            if (at > 0) gaps.add(entry.index - (lower == 0 ? end_before : neighbour + 1U));
        }
        if (senders == 0) continue;
        if (sent == 0) first = __shfl_sync(~0U, entry.index, __ffs(static_cast<int>(senders)) - 1);
        end_before = __shfl_sync(~0U, entry.index, 31 - __clz(static_cast<int>(senders))) + 1U;
        sent += __popc(senders);
    }
    gaps.write(*target.info);
    std::uint32_t scale = tile.written;
    if constexpr (kDraw == Draw::kExponential)
        if (has_step(static_cast<QuantizerKind>(plan.quantizer))) scale = __reduce_max_sync(~0U, largest);
    if (lane != 0) return;
    target.info->count = sent;
    target.info->first = first;
    target.info->last = sent > 0 ? end_before - 1U : 0U;
    target.info->scale = scale;
}

}  // namespace gradsieve::codec::cuda
