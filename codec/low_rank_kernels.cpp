// The kernels of lowrank for any CPU, and the choice between the forms.
#include "codec/low_rank_kernels.hpp"

#include "codec/low_rank_kernels.inl"

namespace gradsieve::codec {

const LowRankKernels kLowRankKernelsScalar = kKernels;

const LowRankKernels* low_rank_kernels_of(CpuForm form) noexcept {
    if (!is_cpu_form_supported(form)) return nullptr;
    switch (form) {
        case CpuForm::kScalar: return &kLowRankKernelsScalar;
#if defined(__x86_64__)
        case CpuForm::kAvx2: return &kLowRankKernelsAvx2;
        case CpuForm::kAvx512: return &kLowRankKernelsAvx512;
#else
        case CpuForm::kAvx2:
        case CpuForm::kAvx512: break;
#endif
    }
    return nullptr;
}

const LowRankKernels& low_rank_kernels() noexcept {
    static const LowRankKernels& chosen = *low_rank_kernels_of(chosen_cpu_form().value_or(fastest_cpu_form()));
    return chosen;
}

}  // namespace gradsieve::codec
