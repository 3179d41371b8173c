// The list of quantizers. A row is all that a new one has here, beside its number; what the format, the kernels and the
// parser ask of quantizers is found by way of this list. Any thread; constants.
#pragma once

#include "codec/element.hpp"
#include "codec/stages/bf16.hpp"
#include "codec/stages/dither.hpp"
#include "codec/stages/exponential_dither.hpp"
#include "codec/stages/f16.hpp"
#include "codec/stages/f32.hpp"
#include "codec/stages/integer.hpp"
#include "codec/stages/minmax.hpp"
#include "codec/stages/natural.hpp"
#include "codec/stages/pow2.hpp"
#include "codec/stages/rounding.hpp"
#include "codec/stages/sign.hpp"
#include "codec/stages/ternary.hpp"
#include "codec/stages/two_mean.hpp"
#include "codec/stages/vote.hpp"

#include <array>

namespace gradsieve::codec {

/// Of those that have a form of their own on the wire, kFacts and kCoder; of those that have a name, kStage.
template <typename... Stages>
struct QuantizerList {};

/// In the order in which users read them.
using Quantizers = QuantizerList<stages::F32, stages::F16, stages::Bf16, stages::Pow2, stages::Sign, stages::TwoMean,
                                 stages::Vote, stages::Natural, stages::Dither, stages::Ternary,
                                 stages::ExponentialDither, stages::Rounding, stages::MinMax, stages::Integer>;

template <typename Stage>
concept HasForm = requires {
    Stage::kFacts;
};

/// Calls `function(Stage{})` with each that has a form.
template <typename... Stages, typename Function>
constexpr void for_each_form(QuantizerList<Stages...> /*list*/, Function function) {
    (
        [&] {
            if constexpr (HasForm<Stages>) function(Stages{});
        }(),
        ...);
}

/// Quantizers, a bit for each number: questions about a fact are one shift, in kernels too.
using QuantizerSet = std::uint32_t;
template <typename... Stages, typename Predicate>
[[nodiscard]] constexpr QuantizerSet set_of(QuantizerList<Stages...> /*list*/, Predicate predicate) noexcept {
    QuantizerSet set = 0;
    const auto add = [&]<typename Stage>(Stage) {
        if constexpr (HasForm<Stage>)
            if (predicate(Stage::kFacts)) set |= QuantizerSet{1} << static_cast<unsigned>(Stage::kFacts.kind);
    };
    (add(Stages{}), ...);
    return set;
}
template <typename Predicate>
[[nodiscard]] constexpr QuantizerSet quantizers_with(Predicate predicate) noexcept {
    return set_of(Quantizers{}, predicate);
}
GRADSIEVE_HOST_DEVICE constexpr bool is_in(QuantizerSet set, QuantizerKind quantizer) noexcept {
    return ((set >> static_cast<unsigned>(quantizer)) & 1U) != 0;
}

/// All numbers that are taken.
inline constexpr QuantizerSet kQuantizers = quantizers_with([](const QuantizerFacts&) { return true; });
/// Numbers of the format are smaller.
inline constexpr std::size_t kMostQuantizers = 31;

/// Of a number that is taken.
[[nodiscard]] const QuantizerFacts& facts_of(QuantizerKind quantizer) noexcept;

}  // namespace gradsieve::codec
