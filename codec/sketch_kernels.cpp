// The kernels of sketch for any CPU, and the choice between the forms.
#include "codec/sketch_kernels.hpp"

#include "codec/sketch_kernels.inl"

namespace gradsieve::codec {

const SketchKernels kSketchKernelsScalar = kKernels;

const SketchKernels* sketch_kernels_of(CpuForm form) noexcept {
    if (!is_cpu_form_supported(form)) return nullptr;
    switch (form) {
        case CpuForm::kScalar: return &kSketchKernelsScalar;
#if defined(__x86_64__)
        case CpuForm::kAvx2: return &kSketchKernelsAvx2;
        case CpuForm::kAvx512: return &kSketchKernelsAvx512;
#else
        case CpuForm::kAvx2:
        case CpuForm::kAvx512: break;
#endif
    }
    return nullptr;
}

const SketchKernels& sketch_kernels() noexcept {
    static const SketchKernels& chosen = *sketch_kernels_of(chosen_cpu_form().value_or(fastest_cpu_form()));
    return chosen;
}

}  // namespace gradsieve::codec
