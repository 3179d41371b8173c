// Ascending indices of one chunk as bits: Rice with split streams, bitmap, 32-bit words, Elias-Fano. Sizes are known
// before a byte is written, so that the smallest form is chosen without coding thrice. Any thread; the caller owns
// every array.
#pragma once

#include "codec/payload.hpp"
#include "codec/payload_kernels.hpp"
#include "codec/random_mask.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec {

struct RicePlan {
    unsigned parameter = 0;
    std::uint64_t unary_bits = 0;  ///< count + sum of quotients
};
/// Fills `ret_gaps` with the gaps minus one (the first element's index itself) and finds the parameter of the fewest
/// bits, the lower one on a tie. Golomb 1966; Rice and Plaunt 1971; quotients and remainders apart, gaps restarting per
/// chunk.
[[nodiscard]] RicePlan plan_rice(std::span<const std::uint32_t> indices, const PayloadKernels& kernels,
                                 std::vector<std::uint32_t>& ret_gaps);

/// Each writes its section at `out` and returns the byte behind it. `out` needs PayloadPool::kSlackBytes writable bytes
/// beyond the section. build_low_fields: of Rice the remainders of the gaps.
[[nodiscard]] std::byte* build_low_fields(std::span<const std::uint32_t> numbers, unsigned width,
                                          const PayloadKernels& kernels, std::byte* out);
[[nodiscard]] std::byte* build_rice_quotients(std::span<const std::uint32_t> gaps, unsigned parameter, std::byte* out);
[[nodiscard]] std::byte* build_bitmap(std::span<const std::uint32_t> indices, ElementCount elements, std::byte* out);
/// The upper parts; the lower `low_bits` of each index are build_low_fields.
[[nodiscard]] std::byte* build_elias_fano_highs(std::span<const std::uint32_t> indices, ElementCount elements,
                                                unsigned low_bits, std::byte* out);

/// The form of a rule's positions.
[[nodiscard]] constexpr IndexForm index_form_of(const SelectionRule& rule) noexcept {
    return rule.is_subset != 0 ? IndexForm::kSubset : IndexForm::kBernoulli;
}
/// The index section of a keyed form, of key_bytes; as the ones above.
[[nodiscard]] std::byte* build_key(const SelectionRule& rule, std::byte* out);
/// And back; `section` has key_bytes.
[[nodiscard]] SelectionRule read_key(IndexForm form, std::uint32_t count, const std::byte* section) noexcept;

/// Reads the index section of a list (of the paper's words: the words, codes included, are left in `ret_indices`).
/// Fills `ret_indices` (header.count of them, kIndexSlack of room behind) and checks everything about them. Errors:
/// kCorrupt. `body`: everything behind the header; `ret_used_bytes`: what the section took.
[[nodiscard]] Status parse_indices(const PayloadHeader& header, ByteView body, ElementCount elements,
                                   std::uint32_t* ret_indices, std::size_t& ret_used_bytes);

}  // namespace gradsieve::codec
