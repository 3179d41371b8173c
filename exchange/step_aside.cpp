#include "exchange/step_aside.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// Plain is tried where its bytes alone would take less than this share of what coded steps take, and stays where all
/// of it takes at most the other one. In between is what plain still has to code.
constexpr double kTriedBelow = 0.75, kKeptBelow = 0.9;
/// A trial ends at once when so many steps running take so many times what coded ones took.
constexpr double kHopeless = 2;
constexpr std::uint32_t kHopelessSteps = 2;
/// Windows running that a link has to be slower, or faster, before that counts: one may be chance.
constexpr std::uint32_t kSureWindows = 2;
/// A link that is so much faster is worth a trial before the rest is over, but not before this part of it.
constexpr double kMuchFaster = 0.5;
constexpr std::uint32_t kEarlyPart = 8;

template <typename Of>
double median_of(const std::array<AsideStep, kAsideWindow>& steps, const Of& of) noexcept {
    std::array<double, kAsideWindow> values{};
    std::ranges::transform(steps, values.begin(), of);
    const auto middle = values.begin() + kAsideWindow / 2;
    std::ranges::nth_element(values, middle);
    return *middle;
}

double link_ms(const AsideStep& step) noexcept { return step.bytes * step.link_ms_per_byte; }
double cost_of(const AsideStep& step) noexcept { return step.coding_ms + link_ms(step); }

}  // namespace

StepAside::Look StepAside::look() const noexcept {
    return {.cost = median_of(window_, cost_of),
            .coding = median_of(window_, [](const AsideStep& step) { return step.coding_ms; }),
            .link = median_of(window_, link_ms),
            .rate = median_of(window_, [](const AsideStep& step) { return step.link_ms_per_byte; })};
}

double StepAside::coded_ms() const noexcept {
    // What was sent coded would take longer, or less long, as the link has become.
    if (verdict_ != AsideVerdict::kPlain || plain_rate_ == 0) return coded_.cost;
    return coded_.coding + coded_.link * (plain_.rate / plain_rate_);
}

void StepAside::on_step(const AsideStep& step) noexcept {
    if (step.was_plain != is_plain_ || step.link_ms_per_byte <= 0) return;
    if (!is_plain_ && rested_ < kMostAsideRest) ++rested_;
    if (verdict_ == AsideVerdict::kTrying && is_hopeless(cost_of(step))) {
        plain_ = {
            .cost = cost_of(step), .coding = step.coding_ms, .link = link_ms(step), .rate = step.link_ms_per_byte};
        return end_trial();
    }
    if (since_ < kAsideSettling) {
        ++since_;
        return;
    }
    window_[seen_++] = step;
    if (seen_ < kAsideWindow) return;
    seen_ = 0;
    if (is_plain_) return judge_plain(look());
    judge_coded(look(), step.best_ms_per_byte);
}

bool StepAside::is_hopeless(double cost) noexcept {
    over_ = cost > kHopeless * coded_.cost ? over_ + 1 : 0;
    return over_ == kHopelessSteps;
}

void StepAside::judge_coded(const Look& now, double best_ms_per_byte) noexcept {
    coded_ = now;
    faster_windows_ = now.rate < kMuchFaster * failed_rate_ ? faster_windows_ + 1 : 0;
    const bool is_early = faster_windows_ >= kSureWindows && rested_ >= resting_ / kEarlyPart;
    if (rested_ < resting_ && !is_early) return;
    // Small payloads are mostly waited for: then the best is nearer to what the link can.
    const double rate = best_ms_per_byte > 0 ? std::min(best_ms_per_byte, now.rate) : now.rate;
    plain_ = {.cost = plain_bytes_ * rate, .coding = 0, .link = plain_bytes_ * rate, .rate = rate};
    verdict_ = AsideVerdict::kLinkSlower;
    if (plain_.cost >= kTriedBelow * now.cost) return;
    verdict_ = AsideVerdict::kTrying;
    over_ = 0;
    set_plain(true);
}

void StepAside::judge_plain(const Look& now) noexcept {
    plain_ = now;
    if (verdict_ == AsideVerdict::kTrying) {
        if (now.cost > kKeptBelow * coded_.cost) return end_trial();
        verdict_ = AsideVerdict::kPlain;
        plain_rate_ = now.rate;
        slower_windows_ = plain_steps_ = 0;
        return;
    }
    plain_steps_ += kAsideWindow;
    if (plain_steps_ >= next_rest_) next_rest_ = kLeastAsideRest;  // the trial has paid
    slower_windows_ = coded_ms() < kKeptBelow * now.cost ? slower_windows_ + 1 : 0;
    if (slower_windows_ == kSureWindows) {
        coded_.cost = coded_ms();
        verdict_ = AsideVerdict::kTriedSlower;
        most_plain_steps_ = kLeastPlainSteps;
        // A trial is worth it sooner than after one that failed: plain was faster once.
        return rest(next_rest_ / kEarlyPart);
    }
    if (plain_steps_ < most_plain_steps_) return;
    most_plain_steps_ = std::min(2 * most_plain_steps_, kMostAsideRest);
    coded_.cost = coded_ms();
    verdict_ = AsideVerdict::kUnknown;
    resting_ = 0;
    set_plain(false);
}

void StepAside::end_trial() noexcept {
    verdict_ = AsideVerdict::kTriedSlower;
    most_plain_steps_ = kLeastPlainSteps;
    rest(next_rest_);
}

void StepAside::rest(std::uint32_t steps) noexcept {
    resting_ = steps;
    rested_ = 0;
    next_rest_ = std::min(2 * next_rest_, kMostAsideRest);
    failed_rate_ = coded_.rate;
    faster_windows_ = 0;
    set_plain(false);
}

void StepAside::set_plain(bool is_plain) noexcept {
    is_plain_ = is_plain;
    since_ = seen_ = 0;
    ++moves_;
}

}  // namespace gradsieve::exchange
