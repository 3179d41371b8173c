#include "codec/dense_pass.hpp"

#include <algorithm>
#include <bit>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradsieve::codec {
namespace {

bool is_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7F800000U) != 0x7F800000U; }

float load_once(const float* address) { return *static_cast<const volatile float*>(address); }

/// A second moment belongs to a rank, and ranks have equally many samples as a rule: its first sample stands for it.
std::uint32_t first_sample_of_moment(const DensePlan& plan, std::size_t moment) {
    return static_cast<std::uint32_t>(
        std::min(moment * plan.sample_count / plan.second_moment_count, plan.sample_count - 1));
}

/// The trouble with one element: the sample, or sample 0 if the inputs are finite and the sum is not; nothing if it is.
std::optional<std::uint32_t> find_trouble(const DensePlan& plan, ElementCount element) {
    float mean = 0;
    for (std::size_t sample = 0; sample < plan.sample_count; ++sample) {
        const float value = load_once(plan.samples[sample] + element);
        if (!is_finite(value)) return static_cast<std::uint32_t>(sample);
        mean += plan.weights[sample] * value;
    }
    for (std::size_t moment = 0; moment < plan.second_moment_count; ++moment) {
        if (!is_finite(load_once(plan.second_moments[moment] + element))) return first_sample_of_moment(plan, moment);
    }
    const float residual = !has_residual(plan.rule) ? mean : plan.rescale * plan.in.residual[element] + mean;
    if (!is_finite(residual)) return 0U;
    return std::nullopt;
}

}  // namespace

DensePass find_dense_pass(CpuForm form, const DensePlan& plan) noexcept {
    switch (form) {
        case CpuForm::kScalar: return find_dense_pass_scalar(plan.rule, plan.variance.source);
#if defined(__x86_64__)
        case CpuForm::kAvx2: return find_dense_pass_avx2(plan.rule, plan.variance.source);
        case CpuForm::kAvx512: return find_dense_pass_avx512(plan.rule, plan.variance.source);
#else
        case CpuForm::kAvx2:
        case CpuForm::kAvx512: break;
#endif
    }
    return nullptr;
}

void finish_dense_pass([[maybe_unused]] const DensePlan& plan) noexcept {
#if defined(__x86_64__)
    if (plan.streams) _mm_sfence();
#endif
}

NonFinite locate_non_finite(const DensePlan& plan, ElementCount block, ElementCount elements) noexcept {
    const ElementCount end = std::min<ElementCount>(block + kPooledElements, elements);
    for (ElementCount element = block; element < end; ++element) {
        if (const auto sample = find_trouble(plan, element)) return {*sample, element};
    }
    return {0, block};  // the samples were changed since: the step fails all the same
}

}  // namespace gradsieve::codec
