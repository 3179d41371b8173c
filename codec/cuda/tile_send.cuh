// One warp turns a tile's list of selected elements into what is sent: quantizes each with the tile's scale, drops what
// has no code, leaves indices and codes in the tile's slot, and settles r and v of what is sent. In the order of the
// list throughout, so that the result depends on nothing else. Device code only.
#pragma once

#include "codec/cuda/dither_levels.cuh"
#include "codec/cuda/encode_plan.hpp"
#include "codec/element.hpp"
#include "codec/pipeline.hpp"

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

/// A list that this warp has just made: indices in the tile's slot, values in the residual, which was written as if
/// nothing were sent. Read past the first-level cache, which other lanes' writes may have passed by. May be overwritten
/// as it is read.
struct FreshList {
    const std::uint16_t* indices;
    const float* residual;
    const float* variances;  ///< before any decay, by position; read by the hybrid only
    std::uint32_t count;
    std::uint32_t largest;  ///< magnitude bits

    __device__ std::uint32_t index(std::uint32_t entry) const { return __ldcg(indices + entry); }
    __device__ float value(std::uint32_t, std::uint32_t index) const { return __ldcg(residual + index); }
    __device__ float variance(std::uint32_t entry) const { return __ldcg(variances + entry); }
    __device__ std::uint32_t largest_magnitude() const { return largest; }
};

/// A list in its slot, as it waits while the tensor is not decided. May be overwritten as it is read.
struct SlotList {
    const std::uint16_t* indices;
    const float* values;
    std::uint32_t count;

    __device__ std::uint32_t index(std::uint32_t entry) const { return indices[entry]; }
    __device__ float value(std::uint32_t entry, std::uint32_t) const { return values[entry]; }
    __device__ float variance(std::uint32_t) const { return 0.0F; }
    /// The same in every lane.
    __device__ std::uint32_t largest_magnitude() const {
        std::uint32_t largest = 0;
        for (std::uint32_t entry = threadIdx.x % 32; entry < count; entry += 32)
            largest = max(largest, element::magnitude_bits(values[entry]));
        return __reduce_max_sync(~0U, largest);
    }
};

/// The mean magnitude in fp64: entry j adds to lane j % 32 in order, then lane l takes lane l + 16, 8, 4, 2, 1. Nothing
/// selected is zero: the variance test is strict, and top-k lists no zeros.
template <typename List>
__device__ inline double mean_magnitude(const List& list) {
    double sum = 0;
    for (std::uint32_t entry = threadIdx.x % 32; entry < list.count; entry += 32)
        sum = sum + static_cast<double>(element::magnitude(list.value(entry, list.index(entry))));
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum = sum + __shfl_down_sync(~0U, sum, lanes);
    return __shfl_sync(~0U, sum, 0) / static_cast<double>(list.count);
}

/// What all elements of a tile share.
struct TileScale {
    std::uint32_t top = 0;      ///< pow2: biased exponent
    std::uint32_t range = 0;    ///< pow2: octaves below it that have a code
    float scale = 0;            ///< sign; dither: of a level
    float to_levels = 0;        ///< dither
    std::uint32_t written = 0;  ///< what the tile's info says
};

template <typename List>
__device__ inline TileScale scale_of(const TensorPlan& plan, const List& list, std::uint32_t tensor_largest) {
    TileScale tile;
    const auto quantizer = static_cast<QuantizerKind>(plan.quantizer);
    if (quantizer == QuantizerKind::kPow2) {
        tile.top = (plan.is_by_tensor != 0 ? tensor_largest : list.largest_magnitude()) >> 23U;
        tile.range = (1U << (plan.code_bits - 1U)) - 1U;
        tile.written = tile.top;
    } else if (quantizer == QuantizerKind::kSign && plan.sign_scale > 0) {
        tile.scale = plan.sign_scale;
    } else if (quantizer == QuantizerKind::kSign) {
        tile.written = element::bf16_bits(static_cast<float>(mean_magnitude(list)));
        tile.scale = element::float_of(tile.written << 16U);
    } else if (quantizer == QuantizerKind::kDither) {
        DitherTile measured;
        measured.count = list.count;
        measured.largest = element::float_of(list.largest_magnitude());
        if (needs_squares(plan))
            measured.square_sum =
                sum_squares(list.count, [&list](std::uint32_t at) { return list.value(at, list.index(at)); });
        const DitherUnit unit = dither_unit(dither_rule_of(plan, true), measured);
        tile.scale = unit.scale;
        tile.to_levels = unit.to_levels;
        tile.written = element::bits_of(unit.scale) >> 16U;
    }
    return tile;
}

/// What receivers decode; zero: not sent.
__device__ inline float decoded_of(const TensorPlan& plan, const TileScale& tile, float value) {
    switch (static_cast<QuantizerKind>(plan.quantizer)) {
        case QuantizerKind::kF32: return value;
        case QuantizerKind::kBf16: return element::float_of(element::bf16_bits(value) << 16U);
        case QuantizerKind::kPow2: return element::pow2_decoded(value, tile.top, tile.range);
        case QuantizerKind::kSign:
            if (!(tile.scale > 0.0F) || value == 0.0F) return 0.0F;
            return value < 0.0F ? -tile.scale : tile.scale;
        case QuantizerKind::kDither: break;  // by its code
    }
    return 0.0F;
}

/// `code`: dither's.
__device__ inline void store_code(const TensorPlan& plan, const TileScale& tile, float decoded, std::uint32_t code,
                                  std::byte* values, std::uint32_t at) {
    switch (static_cast<QuantizerKind>(plan.quantizer)) {
        case QuantizerKind::kF32: reinterpret_cast<float*>(values)[at] = decoded; return;
        case QuantizerKind::kBf16:
            reinterpret_cast<std::uint16_t*>(values)[at] = static_cast<std::uint16_t>(element::bits_of(decoded) >> 16U);
            return;
        case QuantizerKind::kPow2:
            reinterpret_cast<std::uint8_t*>(values)[at] =
                static_cast<std::uint8_t>(element::pow2_code(decoded, tile.top, plan.code_bits));
            return;
        case QuantizerKind::kSign:
            reinterpret_cast<std::uint8_t*>(values)[at] = static_cast<std::uint8_t>(element::bits_of(decoded) >> 31U);
            return;
        case QuantizerKind::kDither:
            reinterpret_cast<std::uint8_t*>(values)[at] = static_cast<std::uint8_t>(code);
            return;
    }
}

/// State of an element that is sent; it was written as if it were not.
__device__ inline void settle(const TensorPlan& plan, const TileTarget& target, std::uint32_t index, float value,
                              float variance, float decoded) {
    target.residual_out[index] = plan.is_faithful != 0 ? 0.0F : value - decoded;
    if (target.variance_out == nullptr) return;
    target.variance_out[index] = plan.is_hybrid != 0 ? element::reduced_variance(variance, value, decoded) : 0.0F;
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
#pragma unroll
        for (unsigned r = 0; r < kRiceSums; ++r) {
            const std::uint32_t sum = __reduce_add_sync(~0U, at[r]);
            if (lane == r) info.quotients[r] = sum;
        }
    }
};

/// Sends a tile's list. Called by a whole warp; `list` may lie in the target's own slot.
template <typename List>
__device__ inline void send_list(const TensorPlan& plan, const List& list, const TileTarget& target,
                                 std::uint32_t tensor_largest) {
    const unsigned lane = threadIdx.x % 32;
    const TileScale tile = scale_of(plan, list, tensor_largest);
    std::uint32_t sent = 0;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    GapSums gaps;
    for (std::uint32_t begin = 0; begin < list.count; begin += 32) {
        const std::uint32_t entry = begin + lane;
        const bool exists = entry < list.count;
        const std::uint32_t index = exists ? list.index(entry) : 0U;
        const float value = exists ? list.value(entry, index) : 0.0F;
        const float variance = exists && plan.is_hybrid != 0 ? list.variance(entry) : 0.0F;
        std::uint32_t code = 0;
        float decoded = 0;
        if (static_cast<QuantizerKind>(plan.quantizer) == QuantizerKind::kDither) {
            code = dither_code_at(plan, tile.to_levels, value, target.first + index);
            decoded = element::float_of(dither_decoded_bits(code, plan.code_bits, tile.scale));
        } else {
            decoded = decoded_of(plan, tile, value);
        }
        const std::uint32_t senders = __ballot_sync(~0U, exists && decoded != 0.0F);  // everyone has read by now
        const std::uint32_t below = senders & ((1U << lane) - 1U);
        const std::uint32_t neighbour = __shfl_sync(~0U, index, below == 0 ? 0 : 31 - __clz(below));
        if (((senders >> lane) & 1U) != 0) {
            const std::uint32_t at = sent + __popc(below);
            target.indices[at] = static_cast<std::uint16_t>(index);
            store_code(plan, tile, decoded, code, target.values, at);
            settle(plan, target, index, value, variance, decoded);
            if (at > 0) gaps.add(index - (below == 0 ? last : neighbour) - 1U);
        }
        if (senders == 0) continue;
        if (sent == 0) first = __shfl_sync(~0U, index, __ffs(senders) - 1);
        last = __shfl_sync(~0U, index, 31 - __clz(senders));
        sent += __popc(senders);
    }
    gaps.write(*target.info);
    if (lane == 0) {
        target.info->count = sent;
        target.info->first = first;
        target.info->last = last;
        target.info->scale = tile.written;
    }
    __syncwarp();
}

}  // namespace gradsieve::codec::cuda
