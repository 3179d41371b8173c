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

/// The cutoff that keeps exactly k of `values`, 1 <= k <= values.size(); radix select, O(n), allocates nothing.
[[nodiscard]] TopKCutoff find_top_k_cutoff(std::span<const float> values, std::size_t k) noexcept;

/// Candidates of one tensor in ascending order, never more than a small multiple of k: once the list is full it keeps
/// its k best and raises the floor, since a later element that only equals the k-th best loses the tie.
class TopKCollector {
public:
    /// Starts a tensor. `floor`: least magnitude bits worth listing, a guess; 1 takes every non-zero element.
    void begin(SelectionList& list, std::size_t k, std::uint32_t floor) noexcept;
    [[nodiscard]] std::uint32_t floor() const noexcept { return floor_; }
    /// Room for one more span of `elements` candidates (and the pass's slack).
    void make_room(std::size_t elements, std::size_t slack);
    /// Whether the guess let enough through; if not, begin again with floor 1.
    [[nodiscard]] bool has_enough() const noexcept { return list_->count() >= k_ || !was_guess_; }
    /// Keeps the k best; returns the k-th magnitude, or 0 if there are fewer than k candidates.
    std::uint32_t finish();

private:
    TopKCutoff keep_best();

    SelectionList* list_ = nullptr;
    std::size_t k_ = 0;
    std::size_t limit_ = 0;
    std::uint32_t floor_ = 1;
    bool was_guess_ = false;
};

}  // namespace gradsieve::codec
