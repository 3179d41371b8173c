// First kernel of decoding: one block reads one list payload, checks every bit of it and leaves its elements as sorted
// indices, products factor * value, and the first element of each tile. What it finds corrupt is marked before any
// average is written. Reads only sections whose length the host has checked; never trusts what the bits say.
#include "codec/cuda/bit_section.cuh"
#include "codec/cuda/decode_tables.hpp"

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kWarps = kListThreads / 32;
/// Tile exponents are read in windows of this many bits; more than any code takes, and all that a sender makes.
constexpr std::uint32_t kWindowBits = 4096;
constexpr std::uint16_t kOutside = 0xFFFF;  ///< of a window
constexpr std::uint32_t kLongestCodeZeros = 254;
static_assert(kListThreads > kMaximumTiles, "one thread for each tile and one for the end");

struct ListShared {
    std::uint32_t warp_counts[kWarps];
    std::uint64_t warp_sums[kWarps];
    std::uint32_t used_bits;
    std::uint32_t starts[kStartsPerList];
    std::uint32_t rank[kMaximumTiles];        ///< tiles before this one that hold elements
    std::uint32_t tile_scale[kMaximumTiles];  ///< by rank: pow2 biased exponent, sign fp32 bits of the scale
    std::uint16_t next[kWindowBits];          ///< where a code that starts here ends
    std::uint16_t code_at[kMaximumTiles + 1];
};

/// Sum over the threads before this one; `ret_total` over all. Every thread of the block.
template <typename Number>
__device__ Number scan_block(Number value, Number* warp_sums, Number& ret_total) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    Number sum = value;
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const Number lower = __shfl_up_sync(~0U, sum, distance);
        if (lane >= distance) sum += lower;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    Number before = 0;
    Number total = 0;
    for (unsigned other = 0; other < kWarps; ++other) {
        const Number of_warp = warp_sums[other];
        before += other < warp ? of_warp : 0;
        total += of_warp;
    }
    __syncthreads();
    ret_total = total;
    return before + sum - value;
}

__device__ std::uint32_t bytes_of(std::uint32_t bits) { return bits / 8 + (bits % 8 != 0 ? 1 : 0); }

/// Whether the bits behind the first `used_bits` of a section's last byte are clear.
__device__ bool has_clear_padding(const BitSection& section, std::uint32_t used_bits) {
    return used_bits % 8 == 0 || section.read(used_bits, 8 - used_bits % 8) == 0;
}

/// Fills indices from remainders and unary quotients: the j-th one stands at position (sum of quotients up to j) + j.
/// Each thread takes one word of the unary section. False if corrupt.
__device__ bool read_rice(const DevicePayload& payload, const std::byte* body, ListShared& shared,
                          std::uint32_t* ret_indices, std::uint32_t& ret_used_bytes) {
    const std::uint32_t count = payload.count;
    const unsigned parameter = payload.rice_parameter;
    const std::uint32_t remainder_bytes = bytes_of(count * parameter);
    const BitSection remainders(body);
    const BitSection unary(body + remainder_bytes);
    // Quotients of indices inside the chunk sum up to no more.
    const std::uint32_t limit =
        min(8 * (payload.body_bytes - remainder_bytes), count + ((payload.chunk_elements - count) >> parameter));
    std::uint32_t done = 0;
    std::uint64_t done_sum = 0;
    bool is_bad = false;
    for (std::uint32_t first = 0; first < limit && done < count; first += 32 * kListThreads) {
        const std::uint32_t bit = first + 32 * threadIdx.x;
        std::uint32_t word = bit < limit ? unary.word_at(bit) : 0;
        if (bit < limit && limit - bit < 32) word &= (1U << (limit - bit)) - 1;
        const std::uint32_t ones = __popc(word);
        std::uint32_t total = 0;
        std::uint32_t element = done + scan_block(ones, shared.warp_counts, total);
        const std::uint32_t end = min(element + ones, count);
        std::uint64_t sum = 0;
        for (std::uint32_t j = element; j < end; ++j) sum += remainders.read(j * parameter, parameter);
        std::uint64_t total_sum = 0;
        std::uint64_t remainder_sum = done_sum + scan_block(sum, shared.warp_sums, total_sum);
        for (; element < end; ++element, word &= word - 1) {
            const std::uint32_t position = bit + __ffs(static_cast<int>(word)) - 1;
            remainder_sum += remainders.read(element * parameter, parameter);
            const std::uint64_t index =
                (static_cast<std::uint64_t>(position - element) << parameter) + remainder_sum + element;
            is_bad |= index >= payload.chunk_elements;
            ret_indices[element] = static_cast<std::uint32_t>(index);
            if (element == count - 1) shared.used_bits = position + 1;
        }
        done += total;
        done_sum += total_sum;
    }
    if (__syncthreads_or(is_bad || done < count)) return false;
    ret_used_bytes = remainder_bytes + bytes_of(shared.used_bits);
    return has_clear_padding(unary, shared.used_bits);
}

__device__ bool read_bitmap(const DevicePayload& payload, const std::byte* body, ListShared& shared,
                            std::uint32_t* ret_indices, std::uint32_t& ret_used_bytes) {
    const std::uint32_t elements = payload.chunk_elements;
    const BitSection bitmap(body);
    std::uint32_t done = 0;
    for (std::uint32_t first = 0; first < elements; first += 32 * kListThreads) {
        const std::uint32_t bit = first + 32 * threadIdx.x;
        std::uint32_t word = bit < elements ? bitmap.word_at(bit) : 0;
        if (bit < elements && elements - bit < 32) word &= (1U << (elements - bit)) - 1;
        std::uint32_t total = 0;
        std::uint32_t element = done + scan_block(static_cast<std::uint32_t>(__popc(word)), shared.warp_counts, total);
        for (; word != 0 && element < payload.count; ++element, word &= word - 1)
            ret_indices[element] = bit + __ffs(static_cast<int>(word)) - 1;
        done += total;
    }
    ret_used_bytes = bytes_of(elements);
    __syncthreads();
    return done == payload.count;
}

__device__ bool read_words(const DevicePayload& payload, const std::byte* body, std::uint32_t* ret_indices,
                           std::uint32_t& ret_used_bytes) {
    const std::uint32_t mask = payload.is_paper_word ? kPaperWordIndexMask : ~0U;
    const BitSection words(body);
    bool is_bad = false;
    for (std::uint32_t element = threadIdx.x; element < payload.count; element += kListThreads) {
        const std::uint32_t index = words.word_at(32 * element) & mask;
        is_bad |= index >= payload.chunk_elements;
        is_bad |= element > 0 && index <= (words.word_at(32 * (element - 1)) & mask);
        ret_indices[element] = index;
    }
    ret_used_bytes = 4 * payload.count;
    return !__syncthreads_or(is_bad);
}

__device__ bool read_indices(const DevicePayload& payload, const std::byte* body, ListShared& shared,
                             std::uint32_t* ret_indices, std::uint32_t& ret_used_bytes) {
    switch (payload.index_form) {
        case IndexForm::kRice: return read_rice(payload, body, shared, ret_indices, ret_used_bytes);
        case IndexForm::kBitmap: return read_bitmap(payload, body, shared, ret_indices, ret_used_bytes);
        case IndexForm::kRaw32: return read_words(payload, body, ret_indices, ret_used_bytes);
        case IndexForm::kEvery: break;
    }
    for (std::uint32_t element = threadIdx.x; element < payload.count; element += kListThreads)
        ret_indices[element] = element;
    ret_used_bytes = 0;
    __syncthreads();
    return true;
}

/// First element of each tile, and each tile's rank among those with elements. Returns how many those are.
__device__ std::uint32_t find_tiles(const DevicePayload& payload, const std::uint32_t* indices, ListShared& shared) {
    constexpr std::uint32_t kTile = static_cast<std::uint32_t>(kTileElements);
    for (std::uint32_t element = threadIdx.x; element < payload.count; element += kListThreads) {
        const std::uint32_t tile = indices[element] / kTile;
        for (std::uint32_t begun = element == 0 ? 0 : indices[element - 1] / kTile + 1; begun <= tile; ++begun)
            shared.starts[begun] = element;
        if (element + 1 < payload.count) continue;
        for (std::uint32_t rest = tile + 1; rest < kStartsPerList; ++rest) shared.starts[rest] = payload.count;
    }
    __syncthreads();
    const std::uint32_t tile = threadIdx.x;
    const bool is_present = tile < kMaximumTiles && shared.starts[tile] < shared.starts[tile + 1];
    std::uint32_t tiles = 0;
    const std::uint32_t rank = scan_block(is_present ? 1U : 0U, shared.warp_counts, tiles);
    if (tile < kMaximumTiles) shared.rank[tile] = rank;
    return tiles;
}

/// Where the exponent code that starts at `bit` of a window ends, in the window.
__device__ std::uint16_t code_end(const BitSection& section, std::uint32_t window, std::uint32_t window_bits,
                                  std::uint32_t bit, unsigned parameter) {
    std::uint32_t zeros = 0;
    while (bit + zeros < window_bits && zeros <= kLongestCodeZeros) {
        const std::uint32_t word = section.word_at(window + bit + zeros);
        if (word == 0) {
            zeros += 32;
            continue;
        }
        zeros += __ffs(static_cast<int>(word)) - 1;
        const std::uint32_t end = bit + zeros + 1 + parameter;
        return end <= window_bits ? static_cast<std::uint16_t>(end) : kOutside;
    }
    return kOutside;
}

/// code_at[i] = start of the i-th code from the window's start, i <= `codes`, by doubling the length of the jumps.
__device__ void follow_codes(ListShared& shared, std::uint32_t window_bits, std::uint32_t codes) {
    constexpr std::uint32_t kBitsPerThread = kWindowBits / kListThreads;
    const auto jump = [&](std::uint16_t from) { return from < window_bits ? shared.next[from] : kOutside; };
    if (threadIdx.x == 0) shared.code_at[0] = 0;
    __syncthreads();
    for (std::uint32_t known = 1; known <= codes; known *= 2) {
        const std::uint32_t code = known + threadIdx.x;
        if (threadIdx.x < known && code <= codes) shared.code_at[code] = jump(shared.code_at[threadIdx.x]);
        std::uint16_t doubled[kBitsPerThread];
#pragma unroll
        for (std::uint32_t part = 0; part < kBitsPerThread; ++part) {
            const std::uint32_t bit = part * kListThreads + threadIdx.x;
            doubled[part] = bit < window_bits ? jump(shared.next[bit]) : kOutside;
        }
        __syncthreads();
#pragma unroll
        for (std::uint32_t part = 0; part < kBitsPerThread; ++part)
            shared.next[part * kListThreads + threadIdx.x] = doubled[part];
        __syncthreads();
    }
}

/// The tile exponents, by rank. False if corrupt.
__device__ bool read_exponents(const DevicePayload& payload, const BitSection& section, std::uint32_t available_bytes,
                               std::uint32_t tiles, ListShared& shared, std::uint32_t& ret_used_bytes) {
    const unsigned parameter = payload.exponent_parameter;
    std::uint32_t window = 0;
    std::uint32_t done = 0;
    while (done < tiles) {
        const std::uint32_t bits = min(kWindowBits, 8 * available_bytes - window);
        for (std::uint32_t bit = threadIdx.x; bit < bits; bit += kListThreads)
            shared.next[bit] = code_end(section, window, bits, bit, parameter);
        __syncthreads();
        follow_codes(shared, bits, tiles - done);
        const std::uint32_t code = threadIdx.x;
        const bool is_whole = code < tiles - done && shared.code_at[code + 1] != kOutside;
        bool is_bad = false;
        if (is_whole) {
            const std::uint32_t end = shared.code_at[code + 1];
            const std::uint32_t quotient = end - shared.code_at[code] - 1 - parameter;
            const std::uint32_t octaves = (quotient << parameter) + section.read(window + end - parameter, parameter);
            is_bad = octaves >= payload.base_exponent;
            shared.tile_scale[done + code] = payload.base_exponent - octaves;
        }
        const auto whole = static_cast<std::uint32_t>(__syncthreads_count(is_whole));
        if (__syncthreads_or(is_bad) || whole == 0) return false;
        window += shared.code_at[whole];
        done += whole;
        __syncthreads();
    }
    ret_used_bytes = bytes_of(window);
    return has_clear_padding(section, window);
}

/// bf16 tile scales, by rank. False if corrupt.
__device__ bool read_scales(const BitSection& section, std::uint32_t tiles, ListShared& shared) {
    bool is_bad = false;
    if (threadIdx.x < tiles) {
        const std::uint32_t bits = section.read(16 * threadIdx.x, 16) << 16U;
        is_bad = bits >= 0x7F800000U;  // infinite, not a number, or negative
        shared.tile_scale[threadIdx.x] = bits;
    }
    return !__syncthreads_or(is_bad);
}

/// The section between indices and values; `inout_used_bytes` of the body are read so far. False if corrupt.
__device__ bool read_tile_scales(const DevicePayload& payload, const std::byte* body, std::uint32_t tiles,
                                 ListShared& shared, std::uint32_t& inout_used_bytes) {
    const std::uint32_t available = payload.body_bytes - inout_used_bytes;
    const BitSection section(body + inout_used_bytes);
    if (payload.quantizer == QuantizerKind::kPow2) {
        if (payload.exponent_parameter == kNoTileExponents) {
            if (threadIdx.x < kMaximumTiles) shared.tile_scale[threadIdx.x] = payload.base_exponent;
            __syncthreads();
            return true;
        }
        std::uint32_t used = 0;
        if (!read_exponents(payload, section, available, tiles, shared, used)) return false;
        inout_used_bytes += used;
        return true;
    }
    if (payload.quantizer != QuantizerKind::kSign) return true;
    if (payload.has_chunk_scale) {
        if (threadIdx.x < kMaximumTiles) shared.tile_scale[threadIdx.x] = __float_as_uint(payload.chunk_scale);
        __syncthreads();
        return true;
    }
    if (available < 2 * tiles || !read_scales(section, tiles, shared)) return false;
    inout_used_bytes += 2 * tiles;
    return true;
}

/// The fp32 bits of one element's value; `inout_is_bad` if there is no such value.
__device__ std::uint32_t value_bits(const DevicePayload& payload, const BitSection& values, const BitSection& words,
                                    std::uint32_t element, std::uint32_t tile_scale, bool& inout_is_bad) {
    if (payload.quantizer == QuantizerKind::kPow2) {
        const unsigned width = payload.pow2_bits;
        const std::uint32_t code = payload.is_paper_word ? words.word_at(32 * element) >> kPaperWordCodeShift
                                                         : values.read(element * width, width);
        const std::uint32_t octaves = code & ((1U << (width - 1)) - 1);
        inout_is_bad |= octaves >= tile_scale;
        return ((code >> (width - 1)) << 31U) | ((tile_scale - octaves) << 23U);
    }
    if (payload.quantizer == QuantizerKind::kSign) return tile_scale | (values.read(element, 1) << 31U);
    const std::uint32_t bits =
        payload.quantizer == QuantizerKind::kF32 ? values.word_at(32 * element) : values.read(16 * element, 16) << 16U;
    inout_is_bad |= (bits & 0x7F800000U) == 0x7F800000U;
    return bits;
}

__device__ bool read_values(const DevicePayload& payload, const std::byte* body, std::uint32_t used_bytes,
                            const std::uint32_t* indices, const ListShared& shared, float* ret_values) {
    const std::uint32_t bits = payload.count * payload.value_bits;
    const BitSection values(body + used_bytes);
    if (payload.body_bytes - used_bytes != bytes_of(bits) || !has_clear_padding(values, bits)) return false;
    const BitSection words(body);
    bool is_bad = false;
    for (std::uint32_t element = threadIdx.x; element < payload.count; element += kListThreads) {
        const std::uint32_t tile = indices[element] / static_cast<std::uint32_t>(kTileElements);
        const std::uint32_t scale = shared.tile_scale[shared.rank[tile]];
        ret_values[element] =
            payload.factor * __uint_as_float(value_bits(payload, values, words, element, scale, is_bad));
    }
    return !__syncthreads_or(is_bad);
}

/// Everything about one list. The same answer in every thread of the block.
__device__ bool read_list(const DevicePayload& payload, const DecodeTables& tables, ListShared& shared) {
    const std::byte* body = tables.bytes + payload.body_offset;
    std::uint32_t* indices = tables.indices + payload.entry_offset;
    std::uint32_t used_bytes = 0;
    if (!read_indices(payload, body, shared, indices, used_bytes)) return false;
    const std::uint32_t tiles = find_tiles(payload, indices, shared);
    if (!read_tile_scales(payload, body, tiles, shared, used_bytes)) return false;
    return read_values(payload, body, used_bytes, indices, shared, tables.values + payload.entry_offset);
}

__global__ void __launch_bounds__(kListThreads) decode_lists(DecodeTables tables, std::uint32_t first_payload) {
    __shared__ ListShared shared;
    const std::uint32_t place = first_payload + blockIdx.x;
    const DevicePayload payload = tables.payloads[place];
    if (!payload.is_list) return;
    if (!read_list(payload, tables, shared)) {
        if (threadIdx.x == 0) {
            tables.payload_faults[place] = 1;
            tables.reports[payload.tensor].has_bad_list = 1;
        }
        return;
    }
    std::uint32_t* starts = tables.starts + static_cast<std::size_t>(payload.list) * kStartsPerList;
    for (std::uint32_t tile = threadIdx.x; tile < kStartsPerList; tile += kListThreads)
        starts[tile] = shared.starts[tile];
}

}  // namespace

int launch_decode_lists(const DecodeTables& tables, const DecodeRound& round, void* stream) {
    decode_lists<<<round.payloads, kListThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, round.first_payload);
    return cudaGetLastError();
}

}  // namespace gradsieve::codec::cuda
