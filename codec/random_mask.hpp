// Random selectors on the host: a pipeline's rule for each chunk, and the positions that a rule stands for, as the CPU
// draws them. Any thread; plain values, and memory of the caller's.
#pragma once

#include "base/id.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/pipeline.hpp"
#include "codec/random_selection.hpp"

#include <cstdint>

namespace gradsieve::codec {

/// Whether a random selector sends a fixed number of elements.
[[nodiscard]] bool is_subset(const Selector& selector) noexcept;
/// The least word that is above a probability's share of 2^32, minus one: elements whose word is at most that are sent.
/// `probability`: (0, 1].
[[nodiscard]] std::uint32_t selection_limit(double probability) noexcept;
/// What a limit stands for.
[[nodiscard]] constexpr double limit_probability(std::uint32_t limit) noexcept {
    return (static_cast<double>(limit) + 1) * 0x1p-32;
}
/// With feedback=none: what values are multiplied by, the reciprocal of their probability; else 1. For a tensor of so
/// many elements.
[[nodiscard]] float raise_factor(const Selector& selector, ElementCount elements) noexcept;

/// The selection of a tensor in a step. `seed`: EncodeRequest::selection_seed. Selector: is_keyed.
class SelectionPlan {
public:
    SelectionPlan() = default;  ///< of no selection: has no rules
    SelectionPlan(const Selector& selector, std::uint64_t seed, TensorId tensor, Step step, ElementCount elements);
    /// Of chunk `chunk` of the tensor.
    [[nodiscard]] SelectionRule rule(std::uint32_t chunk) const;

private:
    [[nodiscard]] ElementCount share_before(ElementCount first) const;
    [[nodiscard]] std::uint32_t limit_of_tile(std::uint64_t tile) const;

    std::uint64_t key_ = 0;
    ElementCount elements_ = 0;
    bool is_subset_ = false;
    ElementCount keep_count_ = 0;
    ElementCount offset_ = 0;
    std::uint32_t first_limit_ = 0;
    std::uint32_t last_limit_ = 0;
};

/// Draws which of a chunk's elements are sent: their indices, ascending. Returns how many they are; if they are more
/// than `most`, another number above that, and `ret_indices` means nothing. `ret_indices`: `most` and kIndexSlack. A
/// rule of a subset has a count of at most `elements`; `elements`: 1 .. kChunkElements.
[[nodiscard]] std::uint32_t draw_indices(const SelectionRule& rule, ElementCount elements, std::uint32_t most,
                                         const PayloadKernels& kernels, std::uint32_t* ret_indices);

}  // namespace gradsieve::codec
