// Adding list payloads to a warp's sums, in node order. Elements of one list differ, so a list's lanes never meet;
// between lists the warp synchronizes.
#pragma once

#include "codec/cuda/list_values.cuh"
#include "codec/cuda/unit_sums.cuh"

namespace gradsieve::codec::cuda {

/// A list's elements in one unit: places in the list.
struct ListRange {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
};

__device__ inline ListRange range_of(const DecodeTables& tables, const DevicePayload& payload, const Unit& unit) {
    const std::uint32_t* starts = tables.list_tables + payload.table_offset + unit.place;
    const std::uint32_t first = starts[0];
    return {first, starts[1] - first};
}

__device__ inline void add_element(UnitShared& shared, std::uint32_t index, float product) {
    const std::uint32_t local = index % kUnitElements;
    float& sum = shared.elements()[local];
    sum = sum + product;
    atomicOr(&shared.touched[local / 32], 1U << (local % 32));
}

/// Up to 32 lists, one for each lane, as one sequence of elements: list after list in node order.
class PackedLists {
public:
    /// `count` lists from `first_payload` on; all lanes.
    __device__ PackedLists(const DecodeTables& tables, std::uint32_t first_payload, std::uint32_t count,
                           const Unit& unit)
        : tables_(tables) {
        ListRange range;
        std::uint32_t offset = 0;
        if (lane_of_thread() < count) {
            const DevicePayload& payload = tables.payloads[first_payload + lane_of_thread()];
            range = range_of(tables, payload, unit);
            offset = payload.entry_offset + range.first;
        }
        end_ = range.count;
        for (std::uint32_t distance = 1; distance < kLanes; distance *= 2) {
            const std::uint32_t lower = __shfl_up_sync(kAllLanes, end_, distance);
            if (lane_of_thread() >= distance) end_ += lower;
        }
        base_ = offset - (end_ - range.count);
        total_ = __shfl_sync(kAllLanes, end_, kLanes - 1);
    }
    [[nodiscard]] __device__ std::uint32_t total() const { return total_; }

    struct Element {
        std::uint32_t list = kLanes;  ///< none: behind the end
        std::uint32_t index = 0;
        float product = 0;
    };
    /// Element `place` of the sequence; all lanes, each its own place.
    [[nodiscard]] __device__ Element at(std::uint32_t place) const {
        std::uint32_t list = 0;  // how many lists end at or before it
#pragma unroll
        for (std::uint32_t step = kLanes / 2; step > 0; step /= 2)
            if (__shfl_sync(kAllLanes, end_, list + step - 1) <= place) list += step;
        const std::uint32_t entry = __shfl_sync(kAllLanes, base_, list) + place;
        if (place >= total_) return {};
        return {list, tables_.indices[entry], tables_.values[entry]};
    }

private:
    const DecodeTables& tables_;
    std::uint32_t end_ = 0;   ///< of this lane's list in the sequence
    std::uint32_t base_ = 0;  ///< entry = base + place in the sequence, mod 2^32
    std::uint32_t total_ = 0;
};

/// Adds 32 elements of the sequence, one for each lane, list after list.
__device__ inline void add_packed(const PackedLists::Element& element, UnitShared& shared) {
    const std::uint32_t last = __reduce_max_sync(kAllLanes, element.list == kLanes ? 0 : element.list);
    for (std::uint32_t list = __shfl_sync(kAllLanes, element.list, 0); list <= last; ++list) {
        if (element.list == list) add_element(shared, element.index, element.product);
        __syncwarp();
    }
}

/// Takes an element's touched bit; only one of those that touched it gets it, and adds it to the tally.
__device__ inline void tally_element(const DeviceChunk& chunk, const PackedLists::Element& element, UnitShared& shared,
                                     Tally& inout_tally) {
    if (element.list == kLanes) return;
    const std::uint32_t local = element.index % kUnitElements;
    const std::uint32_t bit = 1U << (local % 32);
    if ((atomicAnd(&shared.touched[local / 32], ~bit) & bit) == 0) return;
    inout_tally.digest += element_mix(chunk.digest_key, element.index, shared.elements()[local]);
    ++inout_tally.touched;
}

/// Sums and tally of a chunk whose payloads are all lists of elements. False, and nothing done, if none has an element
/// here.
__device__ inline bool sum_packed(const DecodeTables& tables, const DeviceChunk& chunk, const Unit& unit,
                                  UnitShared& shared, Tally& inout_tally) {
    bool is_touched = false;
    PackedLists::Element only;
    bool is_one_step = chunk.payloads <= kLanes;
    for (std::uint32_t first = 0; first < chunk.payloads; first += kLanes) {
        const PackedLists lists(tables, chunk.first_payload + first, min(kLanes, chunk.payloads - first), unit);
        is_one_step &= lists.total() <= kLanes;
        is_touched |= lists.total() > 0;
        for (std::uint32_t place = 0; place < lists.total(); place += kLanes) {
            only = lists.at(place + lane_of_thread());
            add_packed(only, shared);
        }
    }
    if (is_one_step) {
        tally_element(chunk, only, shared, inout_tally);
        return is_touched;
    }
    for (std::uint32_t first = 0; first < chunk.payloads; first += kLanes) {
        const PackedLists lists(tables, chunk.first_payload + first, min(kLanes, chunk.payloads - first), unit);
        for (std::uint32_t place = 0; place < lists.total(); place += kLanes)
            tally_element(chunk, lists.at(place + lane_of_thread()), shared, inout_tally);
    }
    return is_touched;
}

/// Adds the values of a list that is read in place, a word of 32 elements at a time. False if there are none here.
template <bool kMayBeExponential>
__device__ inline bool add_direct(const DecodeTables& tables, const DevicePayload& payload, const Unit& unit,
                                  UnitShared& shared, bool& inout_is_bad) {
    const std::uint32_t lane = lane_of_thread();
    const std::uint32_t* table = tables.list_tables + payload.table_offset;
    const std::uint32_t units = (payload.chunk_elements + kUnitElements - 1) / kUnitElements;
    const std::byte* body = tables.bytes + payload.body_offset;
    const std::uint32_t bits = table[units + 1];
    const BitSection values(body + table[units + 2]);
    const std::uint32_t scale = table[units + 3 + unit.place / kUnitsPerTile];
    const std::uint32_t first_bit = unit.place * kUnitElements + 32 * lane;
    std::uint32_t word = 0;
    if (first_bit < bits) {
        word = bits - first_bit < 32 ? (1U << (bits - first_bit)) - 1 : ~0U;
        if (payload.index_form != IndexForm::kEvery)
            word &= BitSection(index_bits_of(tables, payload)).word_at(first_bit);
    }
    std::uint32_t before = __popc(word);
    for (std::uint32_t distance = 1; distance < kLanes; distance *= 2) {
        const std::uint32_t lower = __shfl_up_sync(kAllLanes, before, distance);
        if (lane >= distance) before += lower;
    }
    before += table[unit.place] - __popc(word);  // elements of the list before this lane's word
    for (std::uint32_t place = 0; place < kLanes; ++place) {
        const std::uint32_t ones = __shfl_sync(kAllLanes, word, place);
        const std::uint32_t element = __shfl_sync(kAllLanes, before, place) + __popc(ones & ((1U << lane) - 1));
        if ((ones >> lane & 1U) == 0) continue;
        float& sum = shared.elements()[32 * place + lane];
        const std::uint32_t value = value_bits_of<kMayBeExponential>(payload, values, element, scale, inout_is_bad);
        sum = sum + payload.factor * __uint_as_float(value);
    }
    shared.touched[lane] |= word;
    return __any_sync(kAllLanes, word != 0);
}

/// Adds any one list. All lanes; the warp is synchronized before and after.
template <bool kMayBeExponential>
__device__ inline bool add_list(const DecodeTables& tables, std::uint32_t place, const Unit& unit, UnitShared& shared,
                                Tally& inout_tally) {
    const DevicePayload& payload = tables.payloads[place];
    bool is_bad = false;
    bool is_touched = true;
    if (payload.is_direct) {
        is_touched = add_direct<kMayBeExponential>(tables, payload, unit, shared, is_bad);
    } else {
        const ListRange range = range_of(tables, payload, unit);
        is_touched = range.count > 0;
        for (std::uint32_t element = lane_of_thread(); element < range.count; element += kLanes) {
            const std::uint32_t entry = payload.entry_offset + range.first + element;
            add_element(shared, tables.indices[entry], tables.values[entry]);
        }
    }
    if (is_bad) {
        tables.payload_faults[place] = 1;
        inout_tally.is_bad = true;
    }
    __syncwarp();
    return is_touched;
}

/// Sums and tally of a chunk with a bitmap among its lists.
template <bool kMayBeExponential>
__device__ inline bool sum_lists(const DecodeTables& tables, const DeviceChunk& chunk, const Unit& unit,
                                 UnitShared& shared, Tally& inout_tally) {
    bool is_touched = false;
    for (std::uint32_t source = 0; source < chunk.payloads; ++source)
        is_touched |= add_list<kMayBeExponential>(tables, chunk.first_payload + source, unit, shared, inout_tally);
    const std::uint32_t lane = lane_of_thread();
    const std::uint32_t own = shared.touched[lane];
    shared.touched[lane] = 0;
    inout_tally.touched += __popc(own);
    for (std::uint32_t place = 0; place < kLanes; ++place) {
        const std::uint32_t word = __shfl_sync(kAllLanes, own, place);
        const std::uint32_t local = 32 * place + lane;
        if ((word >> lane & 1U) != 0)
            inout_tally.digest +=
                element_mix(chunk.digest_key, unit.place * kUnitElements + local, shared.elements()[local]);
    }
    return is_touched;
}

}  // namespace gradsieve::codec::cuda
