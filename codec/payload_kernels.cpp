// The payload kernels for any CPU, and the choice between the forms.
#include "codec/payload_kernels.hpp"

#include "codec/payload_kernels.inl"

namespace gradsieve::codec {

const PayloadKernels kPayloadKernelsScalar = kKernels;

const PayloadKernels* payload_kernels_of(CpuForm form) noexcept {
    if (!is_cpu_form_supported(form)) return nullptr;
    switch (form) {
        case CpuForm::kScalar: return &kPayloadKernelsScalar;
#if defined(__x86_64__)
        case CpuForm::kAvx2: return &kPayloadKernelsAvx2;
        case CpuForm::kAvx512: return &kPayloadKernelsAvx512;
#else
        case CpuForm::kAvx2:
        case CpuForm::kAvx512: break;
#endif
    }
    return nullptr;
}

const PayloadKernels& payload_kernels() noexcept {
    static const PayloadKernels& chosen = *payload_kernels_of(chosen_cpu_form().value_or(fastest_cpu_form()));
    return chosen;
}

}  // namespace gradsieve::codec
