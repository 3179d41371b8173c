// Which instructions the dense loops use. Every form gives the same bytes and the same state bits; they differ in speed
// only. Decided at run time, so that one binary serves every host. Any thread; plain values.
#pragma once

#include "base/status.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace gradsieve::codec {

enum class CpuForm : std::uint8_t { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

/// "scalar", "avx2", "avx512".
[[nodiscard]] std::string_view cpu_form_name(CpuForm form) noexcept;
/// All forms, slowest first, whether this CPU has them or not.
[[nodiscard]] std::span<const CpuForm> cpu_forms() noexcept;
/// Whether this CPU and operating system run the form (every extension its files are compiled for).
[[nodiscard]] bool is_cpu_form_supported(CpuForm form) noexcept;
[[nodiscard]] CpuForm fastest_cpu_form() noexcept;

/// `text`: a form's name, or empty for the fastest form.
/// Errors: kInvalidArgument (not a form's name, or not supported by this CPU).
[[nodiscard]] Result<CpuForm> parse_cpu_form(std::string_view text);
/// The form in use: the environment's GRADSIEVE_CPU_FORM, read once per process, or the fastest. Errors as above.
[[nodiscard]] const Result<CpuForm>& chosen_cpu_form();

}  // namespace gradsieve::codec
