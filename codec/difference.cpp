#include "codec/difference.hpp"

#include "codec/payload.hpp"
#include "codec/state_arrays.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kExponent = 0x7F800000U;

/// Of a run; whether all sums are finite.
bool add_to(const float* base, std::span<float> inout_values) noexcept {
    std::uint32_t largest = 0;
    for (std::size_t element = 0; element < inout_values.size(); ++element) {
        const float sum = base[element] + inout_values[element];
        inout_values[element] = sum;
        largest = std::max(largest, std::bit_cast<std::uint32_t>(sum) & kExponent);
    }
    return largest != kExponent;
}

ElementCount first_non_finite(std::span<const float> values) noexcept {
    const auto found = std::ranges::find_if(
        values, [](float value) { return (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent; });
    return static_cast<ElementCount>(found - values.begin());
}

}  // namespace

Result<EncodeResult> follow_sent(const EncodeRequest& request, EncodeResult sent, ResultTensor& own) {
    if (sent.non_finite || request.elements == 0) return sent;
    const std::span<float> values(request.out.residual, request.elements);
    if (sent.chunks.empty()) {
        std::copy_n(request.in.residual, request.elements, request.out.residual);
        return sent;
    }
    own.move_to(request.tensor, request.out.residual, request.elements);
    std::vector<ChunkView> views;
    views.reserve(sent.chunks.size());
    for (const ChunkPayload& chunk : sent.chunks) views.push_back({chunk.chunk_index, chunk.bytes});
    const Contribution contribution{1.0F, views};
    GRADSIEVE_TRY(own.decode_average(request.step, {&contribution, 1}).status());
    if (add_to(request.in.residual, values)) return sent;
    sent.non_finite = NonFinite{0, first_non_finite(values)};
    sent.chunks.clear();
    sent.kept_elements = 0;
    return sent;
}

Result<DecodeResult> decode_differences(Step step, std::span<const Contribution> contributions, const float* in,
                                        float* out, ResultTensor& inout_result) {
    GRADSIEVE_TRY(inout_result.decode_average(step, contributions).status());
    bool is_finite = true;
    const auto decoded = inout_result.write_all(step, [&](ElementCount first, std::span<float> inout_values) {
        is_finite &= add_to(in + first, inout_values);
        std::ranges::copy(inout_values, out + first);
    });
    if (!is_finite) return not_a_finite_sum();
    return decoded;
}

Status not_a_finite_sum() { return corrupt_payload("sum of differences", "not finite", "any finite number"); }

void keep_state(const Pipeline& pipeline, ElementCount elements, const StateView& in, const StateView& out) noexcept {
    for (const StateArray& array : state_arrays())
        if (array.is_of_encoding && array.is_kept(pipeline))
            std::copy_n(in.*array.values, size_of(array, pipeline, elements), out.*array.values);
}

}  // namespace gradsieve::codec
