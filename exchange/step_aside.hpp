// Decides for one tensor whether it is coded or sent plain, from what its steps took on this node: coding, and its
// bytes at the speed that the link showed. Plain is tried only where the link alone speaks for it, stays only where it
// was measured to be faster, and is given up when the link becomes slower. Knows no clock, no codec and no randomness.
// Costs are milliseconds. Plain values; one thread. docs/decisions/0023-step-aside.md says why it is built so.
#pragma once

#include <array>
#include <cstdint>

namespace gradsieve::exchange {

/// Steps whose medians are looked at together, and those before them after a change: they clear what the other form
/// left in residual and caches.
inline constexpr std::uint32_t kAsideWindow = 9, kAsideSettling = 2;
/// From a trial that failed to the next one: at first, and at most; it doubles.
inline constexpr std::uint32_t kLeastAsideRest = 512, kMostAsideRest = 65'536;
/// What coding took is looked at anew after so many plain steps; it doubles up to kMostAsideRest.
inline constexpr std::uint32_t kLeastPlainSteps = 4096;

/// How a tensor is sent, and why.
enum class AsideVerdict : std::uint8_t {
    kUnknown = 0,      ///< coded: not enough has been measured
    kLinkSlower = 1,   ///< coded: what plain bytes take on the link alone speaks against them
    kTriedSlower = 2,  ///< coded: plain was tried, and was not faster
    kTrying = 3,       ///< plain, to measure it
    kPlain = 4,        ///< plain: it was measured to be faster
};

/// What a tensor's step took.
struct AsideStep {
    bool was_plain = false;
    double coding_ms = 0;         ///< encoding, and decoding all that came for the tensor
    double bytes = 0;             ///< of its payload
    double link_ms_per_byte = 0;  ///< of a payload byte for every other node; 0 = not known
    double best_ms_per_byte = 0;  ///< the least of that lately, of large payloads; 0 = not known
};

class StepAside {
public:
    /// `plain_bytes` > 0: what the tensor's payload takes when it is plain.
    explicit StepAside(double plain_bytes) noexcept : plain_bytes_(plain_bytes) {}

    /// After a step that was committed. One that was not sent as is_plain() says counts for nothing.
    void on_step(const AsideStep& step) noexcept;

    [[nodiscard]] bool is_plain() const noexcept { return is_plain_; }
    [[nodiscard]] AsideVerdict verdict() const noexcept { return verdict_; }
    /// What a step takes coded, and plain; where it goes the other way, as it was measured last, or for plain what the
    /// link alone would take. 0 = not known.
    [[nodiscard]] double coded_ms() const noexcept;
    [[nodiscard]] double plain_ms() const noexcept { return plain_.cost; }
    /// Changes of form so far.
    [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

private:
    /// Medians of a window.
    struct Look {
        double cost = 0, coding = 0, link = 0;
        double rate = 0;  ///< milliseconds per byte
    };
    [[nodiscard]] Look look() const noexcept;
    void judge_coded(const Look& now, double best_ms_per_byte) noexcept;
    void judge_plain(const Look& now) noexcept;
    [[nodiscard]] bool is_hopeless(double cost) noexcept;
    void set_plain(bool is_plain) noexcept;
    void end_trial() noexcept;
    void rest(std::uint32_t steps) noexcept;

    double plain_bytes_;
    bool is_plain_ = false;
    AsideVerdict verdict_ = AsideVerdict::kUnknown;
    std::uint64_t moves_ = 0;
    std::uint32_t since_ = 0;  ///< steps since the last change of form; stops at kAsideSettling
    std::array<AsideStep, kAsideWindow> window_{};
    std::uint32_t seen_ = 0;  ///< steps in the window
    Look coded_, plain_;      ///< of the last windows of either form
    // coded
    std::uint32_t rested_ = 0, resting_ = 0;     ///< steps since the last trial, and how many there have to be
    std::uint32_t next_rest_ = kLeastAsideRest;  ///< after the next trial that fails
    double failed_rate_ = 0;                     ///< of the link, coded, when the last trial began
    std::uint32_t faster_windows_ = 0;           ///< in which the link was much faster than then, in a row
    // plain
    std::uint32_t over_ = 0;  ///< a trial's steps that cost far more than coded ones, in a row
    double plain_rate_ = 0;   ///< of the link when plain was found to be faster
    std::uint32_t slower_windows_ = 0;
    std::uint32_t plain_steps_ = 0;
    std::uint32_t most_plain_steps_ = kLeastPlainSteps;
};

}  // namespace gradsieve::exchange
