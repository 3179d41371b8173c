// The doctor's look at this host: memory that can be shared and sealed, limits, processor.
#include "base/unique_fd.hpp"
#include "cli/doctor.hpp"
#include "cli/human.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>

namespace gradsieve::cli {

namespace {

constexpr off_t kProbeBytes = 1 << 20U;
constexpr std::string_view kContainerAdvice =
    "needs Linux 5.1 or later, and a container or seccomp profile that allows memfd_create and fallocate";

/// The number after "name" at the start of a line.
std::optional<std::uint64_t> number_after(const std::string& text, const std::string& name) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind(name, 0) != 0) continue;
        std::istringstream rest(line.substr(name.size()));
        std::uint64_t number = 0;
        if (rest >> number) return number;
    }
    return std::nullopt;
}

}  // namespace

Finding check_sealed_memory() {
    const auto fail = [](std::string_view call) {
        return Finding{Grade::kFail, "shared memory", fmt::format("{}: {}", call, std::strerror(errno)),
                       std::string(kContainerAdvice)};
    };
    const UniqueFd memory(::memfd_create("gradsieve-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memory.is_open()) return fail("memfd_create");
    if (::fallocate(memory.get(), 0, 0, kProbeBytes) != 0) return fail("fallocate of 1 MiB");
    void* mapping = ::mmap(nullptr, kProbeBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (mapping == MAP_FAILED) return fail("mmap");
    const bool is_sealed = ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) == 0;
    const int seal_error = errno;
    ::munmap(mapping, kProbeBytes);
    errno = seal_error;
    if (!is_sealed) return fail("sealing");
    if (::ftruncate(memory.get(), 0) == 0)
        return {Grade::kFail, "shared memory", "a sealed memfd could be truncated", std::string(kContainerAdvice)};
    return {Grade::kOk, "shared memory", "memfds can be committed, mapped and sealed", ""};
}

Finding check_cpu() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0)
        return {Grade::kOk, "processor", "has AVX-512", ""};
    if (__builtin_cpu_supports("avx2") != 0) return {Grade::kOk, "processor", "has AVX2", ""};
    return {Grade::kWarn, "processor", "has neither AVX2 nor AVX-512",
            "coding works but is slower; results are the same"};
#else
    return {Grade::kWarn, "processor", "is not x86-64", "coding works but is slower; results are the same"};
#endif
}

Finding check_locked_memory(const std::string& limits_text) {
    constexpr std::string_view kName = "Max locked memory";
    constexpr std::uint64_t kEnoughBytes = std::uint64_t{64} << 20U;  // one job of 8 M parameters
    const auto bytes = number_after(limits_text, std::string(kName));
    if (!bytes && limits_text.find(std::string(kName) + "         unlimited") != std::string::npos)
        return {Grade::kOk, "locked memory", "is not limited", ""};
    if (!bytes) return {Grade::kWarn, "locked memory", "limit cannot be read", "look at 'ulimit -l'"};
    if (*bytes >= kEnoughBytes)
        return {Grade::kOk, "locked memory", fmt::format("limit is {}", memory_text(*bytes)), ""};
    return {Grade::kWarn, "locked memory", fmt::format("limit is {}", memory_text(*bytes)),
            "slabs may be swapped out under pressure; raise it: LimitMEMLOCK=infinity in the unit, or 'ulimit -l "
            "unlimited'"};
}

Finding check_memory(const std::string& meminfo_text, ByteCount limit_bytes) {
    const auto total_kib = number_after(meminfo_text, "MemTotal:");
    const auto available_kib = number_after(meminfo_text, "MemAvailable:");
    if (!total_kib || !available_kib)
        return {Grade::kWarn, "memory", "/proc/meminfo cannot be read", "look at 'free -h'"};
    const auto available = *available_kib * 1024;
    const auto limit = limit_bytes != 0 ? limit_bytes : *total_kib * 1024 / 2;
    const auto text = fmt::format("{} available, the daemon may take {}", memory_text(available), memory_text(limit));
    if (available >= limit) return {Grade::kOk, "memory", text, ""};
    return {Grade::kWarn, "memory", text,
            "large jobs may be refused or swap; free some, or lower memory_limit_mib in [daemon]"};
}

}  // namespace gradsieve::cli
