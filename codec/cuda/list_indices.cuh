// The index section of a list payload, read by one block: sorted indices, and where each unit of the chunk begins in
// the list. False answers say that the payload is corrupt, and are the same in every thread.
#pragma once

#include "codec/cuda/list_block.cuh"

namespace gradsieve::codec::cuda {

/// Says that `element` lies in the unit of `index`; for at least the first element of each unit.
__device__ inline void mark_start(ListShared& shared, std::uint32_t index, std::uint32_t element) {
    atomicMin(&shared.starts[index / kUnitElements], element);
}

/// Before indices are read: no unit has begun.
__device__ inline void clear_starts(const DevicePayload& payload, ListShared& shared) {
    for (std::uint32_t unit = threadIdx.x; unit <= kUnitsPerChunk; unit += kListThreads)
        shared.starts[unit] = payload.count;
    __syncthreads();
}

/// After all were marked: a unit without elements begins where the next one does.
__device__ inline void fill_starts(ListShared& shared) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    std::uint32_t* own = shared.starts + kUnitsPerThread * threadIdx.x;
    std::uint32_t least = own[kUnitsPerThread - 1];
    for (std::uint32_t unit = kUnitsPerThread - 1; unit-- > 0;) least = own[unit] = min(own[unit], least);
    std::uint32_t here = least;  // the least of this lane and those behind it
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const std::uint32_t higher = __shfl_down_sync(~0U, here, distance);
        if (lane + distance < 32) here = min(here, higher);
    }
    if (lane == 0) shared.warp_counts[warp] = here;
    const std::uint32_t next_lane = __shfl_down_sync(~0U, here, 1);
    std::uint32_t behind = lane < 31 ? next_lane : ~0U;
    __syncthreads();
    for (unsigned other = warp + 1; other < kListWarps; ++other) behind = min(behind, shared.warp_counts[other]);
    for (std::uint32_t unit = 0; unit < kUnitsPerThread; ++unit) own[unit] = min(own[unit], behind);
    __syncthreads();
}

/// Fills indices from remainders and unary quotients: the j-th one stands at position (sum of quotients up to j) + j.
/// Each thread takes one word of the unary section. False if corrupt.
__device__ inline bool read_rice(const DevicePayload& payload, const std::byte* body, ListShared& shared,
                                 std::uint32_t* ret_indices, std::uint32_t& ret_used_bytes) {
    const std::uint32_t count = payload.count;
    const unsigned parameter = payload.index_parameter;
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
#pragma unroll 4
        for (std::uint32_t j = element; j < end; ++j) sum += remainders.read(j * parameter, parameter);
        std::uint64_t total_sum = 0;
        std::uint64_t remainder_sum = done_sum + scan_block(sum, shared.warp_sums, total_sum);
        std::uint32_t last_unit = ~0U;
#pragma unroll 4
        for (; element < end; ++element, word &= word - 1) {
            const std::uint32_t position = bit + __ffs(static_cast<int>(word)) - 1;
            remainder_sum += remainders.read(element * parameter, parameter);
            const std::uint64_t index =
                (static_cast<std::uint64_t>(position - element) << parameter) + remainder_sum + element;
            const auto index_bits = static_cast<std::uint32_t>(min(index, std::uint64_t{kChunkElements} - 1));
            is_bad |= index >= payload.chunk_elements;
            ret_indices[element] = index_bits;
            if (index_bits / kUnitElements != last_unit) mark_start(shared, index_bits, element);
            last_unit = index_bits / kUnitElements;
            if (element == count - 1) shared.used_bits = position + 1;
        }
        done += total;
        done_sum += total_sum;
    }
    if (__syncthreads_or(is_bad || done < count)) return false;
    ret_used_bytes = remainder_bytes + bytes_of(shared.used_bits);
    return has_clear_padding(unary, shared.used_bits);
}

/// Fills indices from lower fields and a bitmap of upper parts: the j-th one stands at position (index >> lower bits) +
/// j. Each thread takes one word of the bitmap. False if corrupt.
__device__ inline bool read_elias_fano(const DevicePayload& payload, const std::byte* body, ListShared& shared,
                                       std::uint32_t* ret_indices, std::uint32_t& ret_used_bytes) {
    const std::uint32_t count = payload.count;
    const unsigned low_bits = payload.index_parameter;
    const std::uint32_t high_bits = elias_fano_high_bits(payload.chunk_elements, count, low_bits);
    const std::uint32_t low_bytes = bytes_of(count * low_bits);
    const BitSection lows(body);
    const BitSection highs(body + low_bytes);
    std::uint32_t done = 0;
    bool is_bad = false;
    for (std::uint32_t first = 0; first < high_bits; first += 32 * kListThreads) {
        const std::uint32_t bit = first + 32 * threadIdx.x;
        std::uint32_t word = bit < high_bits ? highs.word_at(bit) : 0;
        if (bit < high_bits && high_bits - bit < 32) word &= (1U << (high_bits - bit)) - 1;
        const std::uint32_t ones = __popc(word);
        std::uint32_t total = 0;
        std::uint32_t element = done + scan_block(ones, shared.warp_counts, total);
        const std::uint32_t end = min(element + ones, count);
        std::uint32_t last_unit = ~0U;
#pragma unroll 1
        for (; element < end; ++element, word &= word - 1) {
            const std::uint32_t position = bit + __ffs(static_cast<int>(word)) - 1;
            const std::uint32_t low = lows.read(element * low_bits, low_bits);
            const std::uint32_t index = ((position - element) << low_bits) | low;
            // Right behind a one, the upper part is the same.
            if (element > 0 && highs.read(position - 1, 1) != 0)
                is_bad |= low <= lows.read((element - 1) * low_bits, low_bits);
            is_bad |= index >= payload.chunk_elements;
            const std::uint32_t safe_index = min(index, static_cast<std::uint32_t>(kChunkElements) - 1);
            ret_indices[element] = safe_index;
            if (safe_index / kUnitElements != last_unit) mark_start(shared, safe_index, element);
            last_unit = safe_index / kUnitElements;
        }
        done += total;
    }
    ret_used_bytes = low_bytes + bytes_of(high_bits);
    return !__syncthreads_or(is_bad || done != count) && has_clear_padding(highs, high_bits);
}

/// Position of the one behind `skipped` others from `bit` on; it exists.
__device__ inline std::uint32_t find_one(const BitSection& bits, std::uint32_t bit, std::uint32_t skipped) {
    std::uint32_t word = bits.word_at(bit);
    for (; static_cast<std::uint32_t>(__popc(word)) <= skipped; word = bits.word_at(bit)) {
        skipped -= static_cast<std::uint32_t>(__popc(word));
        bit += 32;
    }
    for (; skipped > 0; --skipped) word &= word - 1;
    return bit + __ffs(static_cast<int>(word)) - 1;
}

/// Reads indices of one bit for each element, of which there are `limit` at most and which end with the last one of
/// `payload.count`: counts the ones of each unit, a warp for each and a word for each lane. `used_bits` are those up to
/// the last one. Returns whether there are as many ones; `ret_total` is all ones below the limit.
__device__ inline bool read_bits(const DevicePayload& payload, const BitSection& bits, std::uint32_t limit,
                                 ListShared& shared, std::uint32_t& ret_total) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll 4
    for (std::uint32_t unit = threadIdx.x / 32; unit < kUnitsPerChunk; unit += kListWarps) {
        const std::uint32_t bit = unit * kUnitElements + 32 * lane;
        std::uint32_t word = bit < limit ? bits.word_at(bit) : 0;
        if (bit < limit && limit - bit < 32) word &= (1U << (limit - bit)) - 1;
        const std::uint32_t ones = __reduce_add_sync(~0U, static_cast<std::uint32_t>(__popc(word)));
        if (lane == 0) shared.starts[unit] = ones;
    }
    __syncthreads();
    std::uint32_t* own = shared.starts + kUnitsPerThread * threadIdx.x;
    std::uint32_t ones = 0;
    for (std::uint32_t unit = 0; unit < kUnitsPerThread; ++unit) ones += own[unit];
    std::uint32_t before = scan_block(ones, shared.warp_counts, ret_total);
    for (std::uint32_t unit = 0; unit < kUnitsPerThread; ++unit) {
        const std::uint32_t of_unit = own[unit];
        if (before < payload.count && before + of_unit >= payload.count)
            shared.used_bits =
                1 + find_one(bits, (kUnitsPerThread * threadIdx.x + unit) * kUnitElements, payload.count - 1 - before);
        own[unit] = min(before, payload.count);
        before += of_unit;
    }
    if (threadIdx.x == 0) shared.starts[kUnitsPerChunk] = payload.count;
    __syncthreads();
    return ret_total >= payload.count;
}

/// False if corrupt.
__device__ inline bool read_bitmap(const DevicePayload& payload, const std::byte* bits, ListShared& shared,
                                   std::uint32_t& ret_used_bytes) {
    std::uint32_t total = 0;
    ret_used_bytes = is_keyed(payload.index_form) ? key_bytes(payload.index_form) : bytes_of(payload.chunk_elements);
    return read_bits(payload, BitSection(bits), payload.chunk_elements, shared, total) && total == payload.count;
}

/// Rice of parameter 0. False if corrupt.
__device__ inline bool read_quotients(const DevicePayload& payload, const std::byte* body, ListShared& shared,
                                      std::uint32_t& ret_used_bytes) {
    const BitSection unary(body);
    std::uint32_t total = 0;  // with ones of the sections behind
    if (!read_bits(payload, unary, min(8 * payload.body_bytes, payload.chunk_elements), shared, total)) return false;
    ret_used_bytes = bytes_of(shared.used_bits);
    return has_clear_padding(unary, shared.used_bits);
}

/// Indices of 32 bits, or the paper's words. False if corrupt.
__device__ inline bool read_words(const DevicePayload& payload, const std::byte* body, ListShared& shared,
                                  std::uint32_t* ret_indices, std::uint32_t& ret_used_bytes) {
    const std::uint32_t mask = payload.is_paper_word ? kPaperWordIndexMask : ~0U;
    const BitSection words(body);
    bool is_bad = false;
#pragma unroll 4
    for (std::uint32_t element = threadIdx.x; element < payload.count; element += kListThreads) {
        const std::uint32_t index = words.word_at(32 * element) & mask;
        const std::uint32_t last = element > 0 ? words.word_at(32 * (element - 1)) & mask : 0;
        ret_indices[element] = index;
        if (index >= payload.chunk_elements || (element > 0 && index <= last))
            is_bad = true;
        else if (element == 0 || last / kUnitElements != index / kUnitElements)
            mark_start(shared, index, element);
    }
    ret_used_bytes = 4 * payload.count;
    return !__syncthreads_or(is_bad);
}

/// Every element: no bits.
__device__ inline bool read_every(const DevicePayload& payload, ListShared& shared, std::uint32_t& ret_used_bytes) {
    for (std::uint32_t unit = threadIdx.x; unit <= kUnitsPerChunk; unit += kListThreads)
        shared.starts[unit] = min(unit * kUnitElements, payload.count);
    ret_used_bytes = 0;
    __syncthreads();
    return true;
}

/// Reads the index section: `starts`, and the indices unless the payload is direct. False if corrupt.
__device__ inline bool read_indices(const DevicePayload& payload, const std::byte* body, const std::byte* bits,
                                    ListShared& shared, std::uint32_t* ret_indices, std::uint32_t& ret_used_bytes) {
    if (payload.index_form == IndexForm::kBitmap || is_keyed(payload.index_form))
        return read_bitmap(payload, bits, shared, ret_used_bytes);
    if (payload.index_form == IndexForm::kEvery) return read_every(payload, shared, ret_used_bytes);
    if (payload.is_direct) return read_quotients(payload, body, shared, ret_used_bytes);
    clear_starts(payload, shared);
    bool is_good = false;
    switch (payload.index_form) {
        case IndexForm::kRice: is_good = read_rice(payload, body, shared, ret_indices, ret_used_bytes); break;
        case IndexForm::kEliasFano:
            is_good = read_elias_fano(payload, body, shared, ret_indices, ret_used_bytes);
            break;
        default: is_good = read_words(payload, body, shared, ret_indices, ret_used_bytes);
    }
    if (is_good) fill_starts(shared);
    return is_good;
}

}  // namespace gradsieve::codec::cuda
