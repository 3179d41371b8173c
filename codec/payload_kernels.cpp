// The payload kernels for any CPU, and the choice between the forms.
#include "codec/payload_kernels.inl"

namespace gradsieve::codec {

const PayloadKernels kPayloadKernelsBaseline = kKernels;

const PayloadKernels* payload_kernels_of(InstructionSet set) noexcept {
    if (set == InstructionSet::kBaseline) return &kPayloadKernelsBaseline;
#if defined(__x86_64__)
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                          __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("fma");
    if (set == InstructionSet::kAvx2 && has_avx2) return &kPayloadKernelsAvx2;
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512vbmi2");
    if (set == InstructionSet::kAvx512 && has_avx512) return &kPayloadKernelsAvx512;
#endif
    return nullptr;
}

const PayloadKernels& payload_kernels() noexcept {
    static const PayloadKernels& fastest = []() -> const PayloadKernels& {
        if (const auto* kernels = payload_kernels_of(InstructionSet::kAvx512)) return *kernels;
        if (const auto* kernels = payload_kernels_of(InstructionSet::kAvx2)) return *kernels;
        return kPayloadKernelsBaseline;
    }();
    return fastest;
}

}  // namespace gradsieve::codec
