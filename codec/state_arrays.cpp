#include "codec/state_arrays.hpp"

#include "codec/sent_state.hpp"
#include "codec/stages/low_rank.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

ElementCount factor_elements(const Pipeline& pipeline, ElementCount elements) noexcept {
    return matrix_shape(pipeline, elements).right_elements();
}

/// 64 bits; of a tensor of one element, half of them.
ElementCount epoch_elements(const Pipeline&, ElementCount elements) noexcept {
    return std::min<ElementCount>(elements, 2);
}

/// Whoever shares out the averaging knows; no pipeline does.
bool is_of_no_pipeline(const Pipeline&) noexcept { return false; }

constexpr std::array<StateArray, 8> kArrays = {{{"residual", &StateView::residual, &has_residual},
                                                {"variance", &StateView::variance, &has_variance},
                                                {"momentum", &StateView::momentum, &has_momentum},
                                                {"factor", &StateView::factor, &has_factor, &factor_elements},
                                                {"average", &StateView::average, &has_delta, nullptr, false},
                                                {kEpochName, &StateView::epoch, &has_delta, &epoch_elements, false},
                                                {"down", &StateView::down, &is_of_no_pipeline, nullptr, false},
                                                {"sent", &StateView::sent, &has_reuse, &sent_floats}}};

}  // namespace

std::span<const StateArray> state_arrays() noexcept { return kArrays; }

const StateArray* find_state_array(std::string_view name) noexcept {
    const auto found = std::ranges::find(kArrays, name, &StateArray::name);
    return found == kArrays.end() ? nullptr : &*found;
}

unsigned kept_state_arrays(const Pipeline& pipeline) noexcept {
    return static_cast<unsigned>(
        std::ranges::count_if(kArrays, [&](const StateArray& array) { return array.is_kept(pipeline); }));
}

ByteCount kept_state_bytes(const Pipeline& pipeline, ElementCount elements) noexcept {
    constexpr ByteCount kGenerations = 2;
    ByteCount bytes = 0;
    for (const StateArray& array : kArrays)
        if (array.is_kept(pipeline)) bytes += kGenerations * size_of(array, pipeline, elements) * sizeof(float);
    return bytes;
}

StateView state_from(const StateView& whole, ElementCount first) noexcept {
    StateView part;
    for (const StateArray& array : kArrays)
        if (whole.*array.values != nullptr && array.size == nullptr) part.*array.values = whole.*array.values + first;
    return part;
}

}  // namespace gradsieve::codec
