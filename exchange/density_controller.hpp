// Finds the densest setting of an encoder whose cost stays within a budget, from what each step cost: a place on a
// scale of thirty-second octaves, moved up and down without swinging. Knows no clock, no codec and no randomness: the
// same costs give the same places on every machine, so a budget in bytes is as reproducible as the payloads. Costs and
// budget have one unit, whichever. Plain values; one thread. docs/decisions/0021-budgets.md says why it is built so.
#pragma once

#include <cstdint>
#include <vector>

namespace gradsieve::exchange {

/// Places of an octave: neighbours differ by 2.2 %, so one of them lies in any band of 5 %.
inline constexpr std::int32_t kPlacesPerOctave = 32;
/// What a place stands for, a factor on what was written in the codec: 2^(place / 32), exact in every build.
[[nodiscard]] double density_at(std::int32_t place) noexcept;

/// Places that still change something, least to most; 0, the codec as written, need not be the middle.
struct DensityRange {
    std::int32_t least = 0;
    std::int32_t most = 0;
    bool operator==(const DensityRange&) const = default;
};
/// How fast costs follow a move.
struct DensityPace {
    std::uint32_t settle_steps = 0;  ///< that are not looked at after one; they cost what the old place left behind
    std::uint32_t window_steps = 1;  ///< that are looked at together, 1..kMostWindow
    bool takes_median = false;       ///< of them, where single steps may lie (times); the mean otherwise (bytes)
    bool is_gradual = false;         ///< costs overshoot what a move should give: go up by half of the way
};
inline constexpr std::uint32_t kMostWindow = 64;

enum class DensityVerdict : std::uint8_t {
    kSearching = 0,
    kHolding = 1,      ///< within the budget, and as near to it as noise lets it be
    kDensest = 2,      ///< within the budget at the most that there is
    kOverAtLeast = 3,  ///< above the budget at the least that there is
};

/// All that outlives a step, and what a restart has to bring back.
struct DensityState {
    std::int32_t place = 0;
    std::uint32_t settling = 0;   ///< steps still to be left out
    std::uint32_t reversals = 0;  ///< changes of direction since costs last moved by themselves
    std::int32_t direction = 0;   ///< of the last move: -1, 0 or 1
    std::int32_t suspicion = 0;   ///< the last window was far below (-1) or above (1) what it should be, once
    std::uint32_t quiet = 0;      ///< windows without a move, in a row
    std::uint32_t seen = 0;       ///< steps in the window
    double cost_sum = 0;          ///< of those
    double fixed_sum = 0;
    double budget = 0;  ///< of the last step
    bool operator==(const DensityState&) const = default;
};

class DensityController {
public:
    DensityController(const DensityRange& range, const DensityPace& pace) noexcept;

    /// After a step in which everything that it steers was encoded at `state().place`. `cost`: all of the step's;
    /// `fixed`: the part of it that no place changes; both finite and >= 0, `fixed` <= `cost`. `budget` > 0.
    void on_step(double cost, double fixed, double budget);
    /// As it was when another one's state() was taken; what does not fit the range is cut off.
    void resume(const DensityState& state) noexcept;

    [[nodiscard]] const DensityState& state() const noexcept { return state_; }
    [[nodiscard]] double density() const noexcept { return density_at(state_.place); }
    [[nodiscard]] DensityVerdict verdict() const noexcept { return verdict_; }
    /// Of the last window that was judged; 0 before.
    [[nodiscard]] double cost() const noexcept { return cost_; }

private:
    [[nodiscard]] std::uint32_t window() const noexcept;
    [[nodiscard]] double window_cost();
    void judge(double cost, double fixed, double budget);
    [[nodiscard]] bool is_noise(double cost, double budget) noexcept;
    void move_to(std::int32_t place) noexcept;

    DensityRange range_;
    DensityPace pace_;
    DensityState state_;
    DensityVerdict verdict_ = DensityVerdict::kSearching;
    double cost_ = 0;
    std::vector<double> costs_;  ///< of the window, where a median is taken; room for all from the start
};

}  // namespace gradsieve::exchange
