// Exact top-k over a list of candidates: order by bits of |r| descending, then index ascending. Integer work only, so
// that the answer is the same everywhere and for every route by which the candidates were found. One thread.
#pragma once

#include "codec/select_list.hpp"

namespace gradsieve::codec {

/// What is kept: all magnitudes above `magnitude`, and the first `ties_kept` of those equal to it.
struct TopKCutoff {
    std::uint32_t magnitude = 0;
    std::size_t ties_kept = 0;
};

/// max(1, floor(ratio n)), at most n; 0 for n = 0.
[[nodiscard]] std::size_t top_k_count(double ratio, ElementCount elements) noexcept;

/// Most that a collector's list of candidates takes, without variances.
[[nodiscard]] ByteCount top_k_list_bytes(std::size_t k) noexcept;

/// What a tensor remembers from step to step, in the word that its owner keeps (0: nothing): the last k-th magnitude
/// and how far below it the next one may lie. Error feedback piles elements up just below the threshold, so each margin
/// too wide lists many more than k; each one too narrow costs a second look at everything. The margin follows what the
/// threshold did: four times its last fall, and at most half as wide from one step to the next.
class TopKHint {
public:
    TopKHint() = default;
    explicit TopKHint(std::uint32_t word) noexcept;
    [[nodiscard]] std::uint32_t word() const noexcept { return threshold_ | margin_log2_; }
    [[nodiscard]] bool is_known() const noexcept { return threshold_ != 0; }
    /// Least magnitude bits worth listing.
    [[nodiscard]] std::uint32_t floor() const noexcept { return threshold_ - (std::uint32_t{1} << margin_log2_); }
    /// Least magnitude bits of what is likely to be sent.
    [[nodiscard]] std::uint32_t threshold() const noexcept { return threshold_; }
    /// After a step whose k-th magnitude was `magnitude` (0: there were fewer).
    [[nodiscard]] TopKHint next(std::uint32_t magnitude) const noexcept;

private:
    std::uint32_t threshold_ = 0;  ///< its low kMarginBits are zero
    std::uint32_t margin_log2_ = 0;
};

/// The cutoff that keeps exactly k of the values of all lists, 1 <= k <= their number; radix select, O(n), allocates
/// nothing. Ties count from the first list on.
[[nodiscard]] TopKCutoff find_top_k_cutoff(std::span<const std::span<const float>> lists, std::size_t k) noexcept;
/// The same of one list.
[[nodiscard]] TopKCutoff find_top_k_cutoff(std::span<const float> values, std::size_t k) noexcept;

/// A candidate that did not make it.
struct DroppedCell {
    ElementCount element = 0;  ///< in the tensor
    float value = 0;
    float variance = 0;
};

/// Candidates of one tensor in ascending order, never more than a small multiple of k: once the list is full it keeps
/// its k best and raises the floor, since a later element that only equals the k-th best loses the tie.
class TopKCollector {
public:
    /// Starts a tensor. `floor`: least magnitude bits worth listing, a guess; 1 takes every non-zero element.
    /// `drops_from`: least magnitude bits of what `dropped()` is to remember; 2^32 - 1 for nothing.
    void begin(SelectionList& list, std::size_t k, std::uint32_t floor, std::uint32_t drops_from = ~0U) noexcept;
    [[nodiscard]] std::uint32_t floor() const noexcept { return floor_; }
    /// Between two spans: cuts a list that has grown too long, which raises the floor.
    void raise_floor();
    /// Whether the guess let enough through; if not, begin again with floor 1.
    [[nodiscard]] bool has_enough() const noexcept { return list_->count() >= k_ || !was_guess_; }
    /// Keeps the k best; returns the k-th magnitude, or 0 if there are fewer than k candidates.
    std::uint32_t finish();
    /// In place of `finish`: keeps what a cutoff of this list and others leaves of this one.
    void finish_with(const TopKCutoff& cutoff);
    /// Cells of at least `drops_from` that were listed and are not among the k best.
    [[nodiscard]] std::span<const DroppedCell> dropped() const noexcept { return dropped_; }

private:
    TopKCutoff keep_best();

    SelectionList* list_ = nullptr;
    std::vector<DroppedCell> dropped_;
    std::uint32_t drops_from_ = ~0U;
    std::size_t k_ = 0;
    std::size_t limit_ = 0;
    std::uint32_t floor_ = 1;
    bool was_guess_ = false;
};

/// What top-k knows of a tensor between its dense pass and its payloads.
struct TopKCandidates {
    SelectionList list;
    TopKCollector top_k;
    ScratchArray<std::uint32_t> gate_words;  ///< one bit per element: passed the gate
};

}  // namespace gradsieve::codec
