#include "codec/cpu_form.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <string>

namespace gradsieve::codec {
namespace {

constexpr std::array kForms = {CpuForm::kScalar, CpuForm::kAvx2, CpuForm::kAvx512};

std::string supported_names() {
    std::string names;
    for (const CpuForm form : kForms) {
        if (!is_cpu_form_supported(form)) continue;
        if (!names.empty()) names += ", ";
        names += cpu_form_name(form);
    }
    return names;
}

#if defined(__x86_64__)
/// clang 14's __builtin_cpu_supports does not know the name.
bool has_lzcnt() noexcept {
    constexpr unsigned kExtendedFeatures = 0x80000001U;
    constexpr unsigned kLzcntBit = 1U << 5U;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __get_cpuid(kExtendedFeatures, &a, &b, &c, &d) != 0 && (c & kLzcntBit) != 0;
}
#endif

}  // namespace

std::string_view cpu_form_name(CpuForm form) noexcept {
    switch (form) {
        case CpuForm::kScalar: return "scalar";
        case CpuForm::kAvx2: return "avx2";
        case CpuForm::kAvx512: return "avx512";
    }
    return "unknown";
}

std::span<const CpuForm> cpu_forms() noexcept { return kForms; }

bool is_cpu_form_supported(CpuForm form) noexcept {
#if defined(__x86_64__)
    // The lists follow the compile options of *_avx2.cpp and *_avx512.cpp; the built-in also asks whether the operating
    // system saves the wide registers.
    const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi2") != 0 &&
                          __builtin_cpu_supports("popcnt") != 0 && __builtin_cpu_supports("fma") != 0 && has_lzcnt();
    switch (form) {
        case CpuForm::kScalar: return true;
        case CpuForm::kAvx2: return has_avx2;
        case CpuForm::kAvx512:
            return has_avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                   __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                   __builtin_cpu_supports("avx512vbmi2") != 0;
    }
    return false;
#else
    return form == CpuForm::kScalar;
#endif
}

CpuForm fastest_cpu_form() noexcept {
    if (is_cpu_form_supported(CpuForm::kAvx512)) return CpuForm::kAvx512;
    if (is_cpu_form_supported(CpuForm::kAvx2)) return CpuForm::kAvx2;
    return CpuForm::kScalar;
}

Result<CpuForm> parse_cpu_form(std::string_view text) {
    if (text.empty()) return fastest_cpu_form();
    for (const CpuForm form : kForms) {
        if (text == cpu_form_name(form) && is_cpu_form_supported(form)) return form;
    }
    return Status(StatusCode::kInvalidArgument, "CPU form '" + std::string(text) + "' is not available: this CPU has " +
                                                    supported_names() +
                                                    "; set GRADSIEVE_CPU_FORM to one of them, or unset it");
}

const Result<CpuForm>& chosen_cpu_form() {
    static const Result<CpuForm> form = [] {
        const char* text = std::getenv("GRADSIEVE_CPU_FORM");
        return parse_cpu_form(text == nullptr ? std::string_view{} : std::string_view(text));
    }();
    return form;
}

}  // namespace gradsieve::codec
