// Second kernel of decoding: each block walks consecutive tiles, adds all nodes' values in node order, writes the
// average to every result and sums the digest. Products and sums are rounded one by one, starting from +0, exactly as
// payload_kernels.inl does. Leaves tensors alone whose lists were corrupt; marks values that are not finite.
#include "codec/cuda/decode_tables.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {
namespace {

constexpr std::uint32_t kTile = static_cast<std::uint32_t>(kTileElements);
/// Elements of a tile in groups of four: thread t has groups t, t + kTileThreads, ...
constexpr std::uint32_t kGroups = kTile / 4;
constexpr std::uint32_t kGroupsPerThread = kGroups / kTileThreads;
static_assert(kGroups % kTileThreads == 0);

struct TileShared {
    float4 sums[kGroups];  ///< zero between tiles
    /// The last payload of the chunk that touched the element; means nothing unless one did. Never cleared: whoever
    /// reads an entry has written it in the same tile.
    std::uint16_t owner[kTile];
};

/// What this thread has seen of one tensor.
struct Tally {
    unsigned long long digest = 0;
    unsigned long long touched = 0;
    bool is_bad = false;
};

struct Groups {
    float4 of[kGroupsPerThread];
};

// Must equal mix64 in base/id.hpp (gradsieve-gpu-check compares digests).
__device__ std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 30U;
    value *= 0xBF58476D1CE4E5B9ULL;
    value ^= value >> 27U;
    value *= 0x94D049BB133111EBULL;
    return value ^ (value >> 31U);
}

__device__ std::uint64_t element_mix(std::uint64_t key, std::uint32_t index, float result) {
    return mix(key + ((static_cast<std::uint64_t>(index) << 32U) | __float_as_uint(result)));
}

/// One tile of the chunk in hand.
struct Place {
    std::uint32_t tile = 0;   ///< in the chunk
    std::uint32_t count = 0;  ///< elements
};

__device__ std::uint32_t group_of(std::uint32_t part) { return threadIdx.x + part * kTileThreads; }

__device__ float& part_of(float4& group, std::uint32_t part) { return (&group.x)[part]; }

/// Four values that lie one after the other, as fp32 bits; marks what is not finite among the first `valid`.
__device__ void add_four(float4& inout_sum, const std::uint32_t (&bits)[4], float factor, std::uint32_t valid,
                         bool& inout_is_bad) {
#pragma unroll
    for (std::uint32_t part = 0; part < 4; ++part) {
        inout_is_bad |= part < valid && (bits[part] & 0x7F800000U) == 0x7F800000U;
        part_of(inout_sum, part) = part_of(inout_sum, part) + factor * __uint_as_float(bits[part]);
    }
}

__device__ std::uint32_t valid_of(const Place& place, std::uint32_t part) {
    const std::uint32_t first = 4 * group_of(part);
    return place.count > first ? place.count - first : 0;
}

__device__ void add_f32(const DevicePayload& payload, const std::byte* bytes, const Place& place, Groups& inout_sums,
                        bool& inout_is_bad) {
    const auto* values = reinterpret_cast<const uint4*>(bytes + payload.body_offset) + place.tile * kGroups;
    uint4 loaded[kGroupsPerThread];
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part)
        loaded[part] = valid_of(place, part) > 0 ? __ldcs(values + group_of(part)) : uint4{};
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) {
        const std::uint32_t bits[4] = {loaded[part].x, loaded[part].y, loaded[part].z, loaded[part].w};
        add_four(inout_sums.of[part], bits, payload.factor, valid_of(place, part), inout_is_bad);
    }
}

__device__ void add_bf16(const DevicePayload& payload, const std::byte* bytes, const Place& place, Groups& inout_sums,
                         bool& inout_is_bad) {
    const auto* values = reinterpret_cast<const uint2*>(bytes + payload.body_offset) + place.tile * kGroups;
    uint2 loaded[kGroupsPerThread];
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part)
        loaded[part] = valid_of(place, part) > 0 ? __ldcs(values + group_of(part)) : uint2{};
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) {
        const std::uint32_t bits[4] = {loaded[part].x << 16U, loaded[part].x & 0xFFFF0000U, loaded[part].y << 16U,
                                       loaded[part].y & 0xFFFF0000U};
        add_four(inout_sums.of[part], bits, payload.factor, valid_of(place, part), inout_is_bad);
    }
}

__device__ void add_sign(const DevicePayload& payload, const std::byte* bytes, const Place& place, Groups& inout_sums) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(bytes + payload.body_offset) + place.tile * (kTile / 32);
    const float scale = payload.has_chunk_scale
                            ? payload.chunk_scale
                            : __ldg(reinterpret_cast<const float*>(bytes + payload.scale_offset) + place.tile);
    const std::uint32_t magnitude = __float_as_uint(payload.factor * scale);
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) {
        const std::uint32_t group = group_of(part);
        const std::uint32_t word = valid_of(place, part) > 0 ? __ldg(words + group / 8) >> (4 * (group % 8)) : 0;
#pragma unroll
        for (std::uint32_t element = 0; element < 4; ++element) {
            float& sum = part_of(inout_sums.of[part], element);
            sum = sum + __uint_as_float(magnitude ^ ((word << (31 - element)) & 0x80000000U));
        }
    }
}

/// A list's elements of one tile.
struct Entries {
    const std::uint32_t* indices = nullptr;
    const float* values = nullptr;
    std::uint32_t count = 0;
};

__device__ Entries entries_of(const DecodeTables& tables, const DevicePayload& payload, std::uint32_t tile) {
    const std::uint32_t* starts = tables.starts + static_cast<std::size_t>(payload.list) * kStartsPerList + tile;
    const std::uint32_t first = starts[0];
    return {tables.indices + payload.entry_offset + first, tables.values + payload.entry_offset + first,
            starts[1] - first};
}

__device__ void add_entries(const Entries& entries, std::uint32_t source, TileShared& shared) {
    auto* sums = reinterpret_cast<float*>(shared.sums);
    for (std::uint32_t entry = threadIdx.x; entry < entries.count; entry += kTileThreads) {
        const std::uint32_t local = entries.indices[entry] % kTile;
        sums[local] = sums[local] + entries.values[entry];
        shared.owner[local] = static_cast<std::uint16_t>(source);
    }
}

/// Sums of a chunk that has lists alone, in shared memory; adds the digest. False, and nothing done, if no list has an
/// element here.
__device__ bool sum_lists(const DecodeTables& tables, const DeviceChunk& chunk, const Place& place, TileShared& shared,
                          Tally& inout_tally) {
    bool is_touched = false;
    for (std::uint32_t source = 0; source < chunk.payloads; ++source) {
        const Entries entries = entries_of(tables, tables.payloads[chunk.first_payload + source], place.tile);
        if (entries.count == 0) continue;
        is_touched = true;
        add_entries(entries, source, shared);
        __syncthreads();
    }
    if (!is_touched) return false;
    const auto* sums = reinterpret_cast<const float*>(shared.sums);
    for (std::uint32_t source = 0; source < chunk.payloads; ++source) {
        const Entries entries = entries_of(tables, tables.payloads[chunk.first_payload + source], place.tile);
        for (std::uint32_t entry = threadIdx.x; entry < entries.count; entry += kTileThreads) {
            const std::uint32_t index = entries.indices[entry];
            if (shared.owner[index % kTile] != source) continue;
            inout_tally.digest += element_mix(chunk.digest_key, index, sums[index % kTile]);
            ++inout_tally.touched;
        }
    }
    __syncthreads();
    return true;
}

/// Takes the tile's sums out of shared memory, which is zero afterwards.
__device__ void take_sums(TileShared& shared, Groups& ret_sums) {
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) {
        ret_sums.of[part] = shared.sums[group_of(part)];
        shared.sums[group_of(part)] = float4{};
    }
}

/// Sums of a chunk with a dense payload: in registers, by way of shared memory for a list among them.
__device__ void sum_all(const DecodeTables& tables, const DeviceChunk& chunk, const Place& place, TileShared& shared,
                        Groups& inout_sums, Tally& inout_tally) {
    for (std::uint32_t source = 0; source < chunk.payloads; ++source) {
        const DevicePayload& payload = tables.payloads[chunk.first_payload + source];
        if (payload.is_list) {
            const Entries entries = entries_of(tables, payload, place.tile);
            if (entries.count == 0) continue;
#pragma unroll
            for (std::uint32_t part = 0; part < kGroupsPerThread; ++part)
                shared.sums[group_of(part)] = inout_sums.of[part];
            __syncthreads();
            add_entries(entries, source, shared);
            __syncthreads();
            take_sums(shared, inout_sums);
            __syncthreads();
            continue;
        }
        bool is_bad = false;
        if (payload.quantizer == QuantizerKind::kF32)
            add_f32(payload, tables.bytes, place, inout_sums, is_bad);
        else if (payload.quantizer == QuantizerKind::kBf16)
            add_bf16(payload, tables.bytes, place, inout_sums, is_bad);
        else
            add_sign(payload, tables.bytes, place, inout_sums);
        if (!is_bad) continue;
        tables.payload_faults[chunk.first_payload + source] = 1;
        inout_tally.is_bad = true;
    }
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) {
        const std::uint32_t index = place.tile * kTile + 4 * group_of(part);
#pragma unroll
        for (std::uint32_t element = 0; element < 4; ++element)
            if (element < valid_of(place, part))
                inout_tally.digest +=
                    element_mix(chunk.digest_key, index + element, part_of(inout_sums.of[part], element));
    }
    if (threadIdx.x == 0) inout_tally.touched += place.count;
}

__device__ std::uint32_t pair_of(__half low, __half high) {
    return __half_as_ushort(low) | (static_cast<std::uint32_t>(__half_as_ushort(high)) << 16U);
}
__device__ std::uint32_t pair_of(__nv_bfloat16 low, __nv_bfloat16 high) {
    return __bfloat16_as_ushort(low) | (static_cast<std::uint32_t>(__bfloat16_as_ushort(high)) << 16U);
}

/// `convert` rounds one fp32 number to `Half`.
template <typename Half, typename Convert>
__device__ void write_halves(Half* result, const Groups& sums, const Place& place, Convert convert) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(result) % sizeof(uint2) == 0;
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) {
        const std::uint32_t valid = valid_of(place, part);
        const float4& sum = sums.of[part];
        const Half halves[4] = {convert(sum.x), convert(sum.y), convert(sum.z), convert(sum.w)};
        if (is_aligned && valid >= 4) {
            reinterpret_cast<uint2*>(result)[group_of(part)] = {pair_of(halves[0], halves[1]),
                                                                pair_of(halves[2], halves[3])};
            continue;
        }
#pragma unroll
        for (std::uint32_t element = 0; element < 4; ++element)
            if (element < valid) result[4 * group_of(part) + element] = halves[element];
    }
}

__device__ void write_floats(float* result, const Groups& sums, const Place& place) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(result) % sizeof(float4) == 0;
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) {
        const std::uint32_t valid = valid_of(place, part);
        const float4& sum = sums.of[part];
        if (is_aligned && valid >= 4) {
            reinterpret_cast<float4*>(result)[group_of(part)] = sum;
            continue;
        }
        const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (std::uint32_t element = 0; element < 4; ++element)
            if (element < valid) result[4 * group_of(part) + element] = values[element];
    }
}

/// Writes the tile to every result but those that hold it already (`is_unchanged`: untouched now and in the last step).
__device__ void write_results(const DecodeTables& tables, const DeviceTensor& tensor, std::uint64_t first_element,
                              const Place& place, const Groups& sums, bool is_unchanged) {
    for (std::uint32_t place_of = 0; place_of < tensor.results; ++place_of) {
        const DeviceResult result = tables.results[tensor.first_result + place_of];
        if (is_unchanged && result.holds_last) continue;
        switch (result.type) {
            case ElementType::kF32: write_floats(static_cast<float*>(result.data) + first_element, sums, place); break;
            case ElementType::kF16:
                write_halves(static_cast<__half*>(result.data) + first_element, sums, place,
                             [](float value) { return __float2half_rn(value); });
                break;
            case ElementType::kBf16:
                write_halves(static_cast<__nv_bfloat16*>(result.data) + first_element, sums, place,
                             [](float value) { return __float2bfloat16_rn(value); });
                break;
        }
    }
}

__device__ void average_tile(const DecodeTables& tables, const DeviceChunk& chunk, const Place& place,
                             TileShared& shared, Tally& inout_tally) {
    const DeviceTensor tensor = tables.tensors[chunk.tensor];
    Groups sums{};
    bool is_touched = chunk.has_dense;
    if (chunk.has_dense) {
        sum_all(tables, chunk, place, shared, sums, inout_tally);
    } else if (chunk.payloads > 0 && sum_lists(tables, chunk, place, shared, inout_tally)) {
        is_touched = true;
        take_sums(shared, sums);
        __syncthreads();
    }
    const auto tile = static_cast<std::uint32_t>(chunk.first_element / kTile) + place.tile;
    const std::uint32_t word = tensor.first_word + tile / 32;
    const std::uint32_t bit = 1U << (tile % 32);
    if (is_touched && threadIdx.x == 0) atomicOr(tables.touched + word, bit);
    const bool is_unchanged = !is_touched && tensor.knows_last && (tables.last_touched[word] & bit) == 0;
    write_results(tables, tensor, chunk.first_element + place.tile * kTile, place, sums, is_unchanged);
}

/// Adds what the block saw of a tensor to its report, and starts anew.
__device__ void flush(TensorReport& report, Tally& inout_tally) {
    unsigned long long digest = inout_tally.digest;
    unsigned long long touched = inout_tally.touched;
    for (unsigned distance = 16; distance > 0; distance /= 2) {
        digest += __shfl_down_sync(~0U, digest, distance);
        touched += __shfl_down_sync(~0U, touched, distance);
    }
    const bool is_bad = __any_sync(~0U, inout_tally.is_bad);
    if (threadIdx.x % 32 == 0) {
        if (touched != 0 || digest != 0) {
            atomicAdd(&report.digest, digest);
            atomicAdd(&report.touched_elements, touched);
        }
        if (is_bad) report.has_bad_value = 1;
    }
    inout_tally = {};
}

/// The chunk among [first, first + count) that holds `tile`.
__device__ std::uint32_t find_chunk(const DeviceChunk* chunks, std::uint32_t first, std::uint32_t count,
                                    std::uint32_t tile) {
    std::uint32_t end = first + count;
    while (end - first > 1) {
        const std::uint32_t middle = first + (end - first) / 2;
        (chunks[middle].first_tile <= tile ? first : end) = middle;
    }
    return first;
}

__global__ void __launch_bounds__(kTileThreads, 4) average_tiles(DecodeTables tables, DecodeRound round) {
    __shared__ TileShared shared;
#pragma unroll
    for (std::uint32_t part = 0; part < kGroupsPerThread; ++part) shared.sums[group_of(part)] = float4{};
    __syncthreads();
    const auto share = [&](std::uint64_t block) {
        return round.first_tile + static_cast<std::uint32_t>(block * round.tiles / gridDim.x);
    };
    std::uint32_t tile = share(blockIdx.x);
    const std::uint32_t end = share(blockIdx.x + 1ULL);
    if (tile >= end) return;
    std::uint32_t place_of_chunk = find_chunk(tables.chunks, round.first_chunk, round.chunks, tile);
    Tally tally;
    while (tile < end) {
        const DeviceChunk chunk = tables.chunks[place_of_chunk++];
        const std::uint32_t chunk_end = min(end, chunk.first_tile + chunk.tiles);
        if (tables.reports[chunk.tensor].has_bad_list == 0) {
            for (; tile < chunk_end; ++tile) {
                const std::uint32_t in_chunk = tile - chunk.first_tile;
                average_tile(tables, chunk, {in_chunk, min(kTile, chunk.elements - in_chunk * kTile)}, shared, tally);
            }
        }
        tile = chunk_end;
        flush(tables.reports[chunk.tensor], tally);
    }
}

}  // namespace

int launch_average_tiles(const DecodeTables& tables, const DecodeRound& round, unsigned blocks, void* stream) {
    const unsigned used = round.tiles < blocks ? round.tiles : blocks;
    average_tiles<<<used, kTileThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, round);
    return cudaGetLastError();
}

int average_tiles_blocks(unsigned& ret_blocks) {
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
    int processors = 0;
    int per_processor = 0;
    if (const cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
        error != cudaSuccess)
        return error;
    if (const cudaError_t error =
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, average_tiles, kTileThreads, 0);
        error != cudaSuccess)
        return error;
    ret_blocks = static_cast<unsigned>(processors * per_processor);
    return cudaSuccess;
}

}  // namespace gradsieve::codec::cuda
