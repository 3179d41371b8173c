#include "codec/pipeline_front.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::string_view kMomentumName = "momentum";
constexpr std::array<std::string_view, 1> kFrontNames = {kMomentumName};
constexpr std::array<std::string_view, 2> kNoYes = {"no", "yes"};
/// Above, u remembers longer than fp32 sums can tell.
constexpr NumberRange kMomentum = {1e-6, 0.9999, false, "[1e-6, 0.9999]"};

}  // namespace

std::span<const std::string_view> front_names() noexcept { return kFrontNames; }

bool is_front(std::string_view name) noexcept {
    return std::find(kFrontNames.begin(), kFrontNames.end(), name) != kFrontNames.end();
}

Status read_front(const StageText& text, Front& ret_front) {
    ArgumentReader arguments(text);
    ret_front.kind = FrontKind::kMomentum;
    ret_front.factor = arguments.number("m", 0.9, kMomentum);
    ret_front.is_nesterov = arguments.word("nesterov", 0, kNoYes) == 1;
    return arguments.finish();
}

std::string front_text(const Front& front) {
    if (front.kind == FrontKind::kNone) return {};
    return std::string(kMomentumName) + "(m=" + number_text(front.factor) +
           ", nesterov=" + std::string(kNoYes[front.is_nesterov ? 1 : 0]) + ") | ";
}

Status check_front(const Pipeline& pipeline) {
    if (!has_momentum(pipeline) || !has_variance(pipeline)) return {};
    return bad_text("codec stage before a variance test", kMomentumName, "none",
                    "v measures how much gradients vary, and what momentum adds up varies more: select with topk "
                    "without a gate, block_topk, threshold or all, or leave momentum to the optimizer");
}

}  // namespace gradsieve::codec
