#include "exchange/density_controller.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace gradsieve::exchange {
namespace {

/// Where in the band [1 - kBand, 1] of the budget a move aims.
constexpr double kAim = 0.975;
constexpr double kBand = 0.05;
/// A change of direction says that the band is narrower than the noise: each one doubles band and window, up to these.
constexpr std::uint32_t kMostReversals = 3;
/// Costs beyond these shares of the budget are no noise: the link, or what gradients are like, has changed.
constexpr double kFarBelow = 0.6, kFarAbove = 1.5;
/// After so many windows without a move the noise may have gone: one doubling is taken back.
constexpr std::uint32_t kQuietWindows = 256;
/// Up at once by an octave at most: what is not known to be cheap is found out in steps.
constexpr std::int32_t kMostUp = kPlacesPerOctave;

/// 2^(n / 32), correctly rounded.
constexpr std::array<double, kPlacesPerOctave> kOctave = {
    0x1.0000000000000p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0, 0x1.172b83c7d517bp+0,
    0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0, 0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0,
    0x1.3dea64c123422p+0, 0x1.44e086061892dp+0, 0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0,
    0x1.6247eb03a5585p+0, 0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
    0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f090p+0, 0x1.a5503b23e255dp+0, 0x1.ae89f995ad3adp+0,
    0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0, 0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0,
    0x1.ea4afa2a490dap+0, 0x1.f50765b6e4540p+0};

}  // namespace

double density_at(std::int32_t place) noexcept {
    const auto octave = place >= 0 ? place / kPlacesPerOctave : -((kPlacesPerOctave - 1 - place) / kPlacesPerOctave);
    return std::ldexp(kOctave[static_cast<std::size_t>(place - octave * kPlacesPerOctave)], octave);
}

DensityController::DensityController(const DensityRange& range, const DensityPace& pace) noexcept
    : range_(range), pace_(pace) {
    pace_.window_steps = std::clamp(pace_.window_steps, 1U, kMostWindow);
    state_.place = std::clamp(0, range_.least, range_.most);
    if (pace_.takes_median) costs_.reserve(kMostWindow);
}

void DensityController::resume(const DensityState& state) noexcept {
    state_ = state;
    state_.place = std::clamp(state.place, range_.least, range_.most);
    state_.settling = std::min(state.settling, pace_.settle_steps);
    state_.reversals = std::min(state.reversals, kMostReversals);
    state_.direction = std::clamp(state.direction, -1, 1);
    state_.suspicion = std::clamp(state.suspicion, -1, 1);
    state_.quiet = std::min(state.quiet, kQuietWindows);
    const bool is_usable = std::isfinite(state.cost_sum) && std::isfinite(state.fixed_sum) &&
                           std::isfinite(state.budget) && state.seen < window() && !pace_.takes_median;
    if (is_usable) return;
    state_.seen = 0;
    state_.cost_sum = state_.fixed_sum = 0;
}

std::uint32_t DensityController::window() const noexcept {
    return std::min(pace_.window_steps << state_.reversals, kMostWindow);
}

void DensityController::on_step(double cost, double fixed, double budget) {
    if (budget != state_.budget) {
        state_.reversals = 0;
        state_.suspicion = 0;
    }
    state_.budget = budget;
    if (state_.settling > 0) {
        --state_.settling;
        return;
    }
    ++state_.seen;
    state_.cost_sum += cost;
    state_.fixed_sum += fixed;
    if (pace_.takes_median) costs_.push_back(cost);
    if (state_.seen < window()) return;
    const auto seen = static_cast<double>(state_.seen);
    const double judged = window_cost();
    const double judged_fixed = state_.fixed_sum / seen;
    state_.seen = 0;
    state_.cost_sum = state_.fixed_sum = 0;
    judge(judged, judged_fixed, budget);
}

double DensityController::window_cost() {
    if (!pace_.takes_median) return state_.cost_sum / static_cast<double>(state_.seen);
    const auto middle = costs_.begin() + static_cast<std::ptrdiff_t>(costs_.size() / 2);
    std::nth_element(costs_.begin(), middle, costs_.end());
    const double median = *middle;
    costs_.clear();
    return median;
}

/// A window that lies far off after changes of direction: the next one of the same size tells whether it is chance.
bool DensityController::is_noise(double cost, double budget) noexcept {
    const std::int32_t far = cost > kFarAbove * budget ? 1 : cost < kFarBelow * budget ? -1 : 0;
    const bool was_suspected = far == state_.suspicion;
    state_.suspicion = 0;
    if (far == 0) return false;
    if (state_.reversals > 0 && !was_suspected) {
        state_.suspicion = far;
        return true;
    }
    state_.reversals = 0;
    state_.direction = 0;
    return false;
}

void DensityController::judge(double cost, double fixed, double budget) {
    cost_ = cost;
    if (is_noise(cost, budget)) return;
    const double low = budget * (1 - kBand * static_cast<double>(1U << state_.reversals));
    const bool is_over = cost > budget;
    const bool is_at_end = is_over ? state_.place == range_.least : state_.place == range_.most;
    if ((!is_over && cost >= low) || is_at_end) {
        verdict_ = is_over     ? DensityVerdict::kOverAtLeast
                   : is_at_end ? DensityVerdict::kDensest
                               : DensityVerdict::kHolding;
        if (++state_.quiet < kQuietWindows) return;
        state_.quiet = 0;
        if (state_.reversals > 0) --state_.reversals;
        return;
    }
    verdict_ = DensityVerdict::kSearching;
    // As if what moves were in proportion to the density. Where it follows by less, that errs towards the place at
    // hand.
    const double moves = std::max(cost - fixed, 0.0);
    const double aim = kAim * budget - fixed;
    std::int32_t place = state_.place;
    if (is_over) {
        --place;
        while (place > range_.least && moves * density_at(place - state_.place) > aim) --place;
    } else {
        const auto most = std::min(range_.most, state_.place + kMostUp);
        ++place;
        while (place < most && moves * density_at(place + 1 - state_.place) <= aim) ++place;
        if (pace_.is_gradual) place = state_.place + std::max(1, (place - state_.place) / 2);
    }
    move_to(place);
}

void DensityController::move_to(std::int32_t place) noexcept {
    const std::int32_t direction = place > state_.place ? 1 : -1;
    if (direction == -state_.direction) state_.reversals = std::min(state_.reversals + 1, kMostReversals);
    state_.direction = direction;
    state_.place = std::clamp(place, range_.least, range_.most);
    state_.settling = pace_.settle_steps;
    state_.quiet = 0;
}

}  // namespace gradsieve::exchange
