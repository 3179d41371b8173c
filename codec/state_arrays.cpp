#include "codec/state_arrays.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::array<StateArray, 3> kArrays = {{{"residual", &StateView::residual, &has_residual},
                                                {"variance", &StateView::variance, &has_variance},
                                                {"momentum", &StateView::momentum, &has_momentum}}};

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

StateView state_from(const StateView& whole, ElementCount first) noexcept {
    StateView part;
    for (const StateArray& array : kArrays)
        if (whole.*array.values != nullptr) part.*array.values = whole.*array.values + first;
    return part;
}

}  // namespace gradsieve::codec
