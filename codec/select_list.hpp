// The list a selector makes: chunk by chunk, ascending (index, r, v) of the elements picked. Grows to its largest use
// and is then reused; cells are not initialised, since the dense pass writes before anyone reads. One thread.
#pragma once

#include "base/id.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gradsieve::codec {

/// An array that keeps its memory and does not initialise new cells.
template <typename T>
class ScratchArray {
public:
    /// Room for `count` cells; the first `kept` keep their values. Amortised: allocates only beyond the largest use so
    /// far.
    void ensure(std::size_t count, std::size_t kept = 0) {
        if (count <= capacity_) return;
        const std::size_t capacity = std::max(count, capacity_ + capacity_ / 2);
        auto cells = std::unique_ptr<T[], Free>(
            static_cast<T*>(::operator new[](capacity * sizeof(T), std::align_val_t{kAlignment})));
        std::copy_n(cells_.get(), kept, cells.get());
        cells_ = std::move(cells);
        capacity_ = capacity;
    }
    [[nodiscard]] T* data() noexcept { return cells_.get(); }
    [[nodiscard]] const T* data() const noexcept { return cells_.get(); }

private:
    static constexpr std::size_t kAlignment = 64;
    struct Free {
        void operator()(T* cells) const noexcept { ::operator delete[](cells, std::align_val_t{kAlignment}); }
    };
    std::unique_ptr<T[], Free> cells_;
    std::size_t capacity_ = 0;
};

/// Where the dense pass lists one span. Small and used again for each span, so that it stays in the first-level cache:
/// a list that grows through fresh memory holds up the pass's non-temporal stores (measured on AMD Zen 4).
struct SpanCells {
    ScratchArray<std::uint32_t> indices;
    ScratchArray<float> values;
    ScratchArray<float> variances;
    void ensure(std::size_t count) {
        indices.ensure(count);
        values.ensure(count);
        variances.ensure(count);
    }
};

class SelectionList {
public:
    enum class Fate : std::uint8_t { kDrop, kKeep, kDropAndTell };
    struct Chunk {
        std::uint32_t chunk_index = 0;
        std::size_t begin = 0;  ///< first cell; the chunk ends where the next begins
    };

    void clear() noexcept;
    /// Cells appended from now on belong to this chunk; ascending.
    void begin_chunk(std::uint32_t chunk_index);
    /// Appends the first `count` cells of a span.
    void append(const SpanCells& cells, std::size_t count, bool with_variances);
    /// Keeps the cells for whose values `decide(value)` says so, called once for each in order; chunks stay. Calls
    /// `tell(element, value, variance)` for those it is to tell about.
    template <typename Decide, typename Tell>
    void filter(Decide decide, Tell tell);

    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    [[nodiscard]] std::size_t chunk_count() const noexcept { return chunks_.size(); }
    [[nodiscard]] std::uint32_t chunk_index(std::size_t position) const noexcept {
        return chunks_[position].chunk_index;
    }
    [[nodiscard]] std::span<const std::uint32_t> indices(std::size_t position) const noexcept {
        return {indices_.data() + chunks_[position].begin, chunk_size(position)};
    }
    [[nodiscard]] std::span<const float> values(std::size_t position) const noexcept {
        return {values_.data() + chunks_[position].begin, chunk_size(position)};
    }
    [[nodiscard]] std::span<const float> variances(std::size_t position) const noexcept {
        return {variances_.data() + chunks_[position].begin, chunk_size(position)};
    }
    [[nodiscard]] std::span<const float> all_values() const noexcept { return {values_.data(), count_}; }

private:
    [[nodiscard]] std::size_t chunk_size(std::size_t position) const noexcept {
        const std::size_t end = position + 1 < chunks_.size() ? chunks_[position + 1].begin : count_;
        return end - chunks_[position].begin;
    }

    ScratchArray<std::uint32_t> indices_;
    ScratchArray<float> values_;
    ScratchArray<float> variances_;
    std::vector<Chunk> chunks_;
    std::size_t count_ = 0;
    bool has_variances_ = false;
};

template <typename Decide, typename Tell>
void SelectionList::filter(Decide decide, Tell tell) {
    std::size_t kept = 0;
    for (std::size_t position = 0; position < chunks_.size(); ++position) {
        const std::size_t end = chunks_[position].begin + chunk_size(position);
        std::size_t cell = chunks_[position].begin;
        chunks_[position].begin = kept;
        for (; cell < end; ++cell) {
            // Written and then kept or not: about half are kept, so a branch would be guessed wrong too often.
            const std::uint32_t index = indices_.data()[cell];
            const float value = values_.data()[cell];
            const float variance = has_variances_ ? variances_.data()[cell] : 0.0F;
            indices_.data()[kept] = index;
            values_.data()[kept] = value;
            if (has_variances_) variances_.data()[kept] = variance;
            const Fate fate = decide(value);
            kept += fate == Fate::kKeep ? 1U : 0U;
            if (fate == Fate::kDropAndTell)
                tell(chunks_[position].chunk_index * kChunkElements + index, value, variance);
        }
    }
    count_ = kept;
}

}  // namespace gradsieve::codec
