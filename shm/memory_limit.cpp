#include "shm/memory_limit.hpp"

#include <sys/resource.h>

#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace gradsieve::shm {
namespace {

constexpr ByteCount kWithoutLimit = std::numeric_limits<ByteCount>::max();

std::optional<ByteCount> parse_number(std::string_view text) {
    ByteCount value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end == text.data()) return std::nullopt;
    return value;
}

std::optional<ByteCount> read_number(const std::string& path) {
    std::ifstream file(path);
    std::string word;
    if (!(file >> word)) return std::nullopt;
    return parse_number(word);  // "max" is no number, so no limit
}

/// Sum of the values behind `keys` in a file of "key value" lines.
ByteCount sum_of_keys(const std::string& path, std::initializer_list<std::string_view> keys) {
    std::ifstream file(path);
    ByteCount sum = 0;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string key;
        std::string value;
        if (!(words >> key >> value)) continue;
        for (const auto wanted : keys) {
            if (key == wanted) sum += parse_number(value).value_or(0);
        }
    }
    return sum;
}

void tighten(MemoryLimit& limit, ByteCount available_bytes, std::string reason) {
    if (available_bytes >= limit.available_bytes) return;
    limit.available_bytes = available_bytes;
    limit.reason = std::move(reason);
}

/// The path after "0::", which cgroup v2 gives this process; empty where there is none.
std::string own_cgroup(const std::string& proc_root) {
    std::ifstream file(proc_root + "/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("0::/")) return line.substr(3);
    }
    return {};
}

void tighten_by_cgroups(MemoryLimit& limit, const std::string& proc_root, const std::string& cgroup_root) {
    for (auto cgroup = own_cgroup(proc_root); cgroup.size() > 1; cgroup.resize(cgroup.rfind('/'))) {
        const auto folder = cgroup_root + cgroup;
        const auto max_bytes = read_number(folder + "/memory.max");
        const auto used_bytes = read_number(folder + "/memory.current");
        if (!max_bytes || !used_bytes) continue;
        // The page cache is charged too, but gives way: only what it cannot reclaim counts as in use.
        const auto cache_bytes = sum_of_keys(folder + "/memory.stat", {"active_file", "inactive_file"});
        const auto held_bytes = *used_bytes > cache_bytes ? *used_bytes - cache_bytes : 0;
        tighten(
            limit, *max_bytes > held_bytes ? *max_bytes - held_bytes : 0,
            "memory.max of cgroup " + cgroup + " (raise MemoryMax= of the service or the container's memory limit)");
    }
}

void tighten_by_resource(MemoryLimit& limit, __rlimit_resource resource, const char* reason) {
    rlimit value{};
    if (::getrlimit(resource, &value) != 0 || value.rlim_cur == RLIM_INFINITY) return;
    tighten(limit, value.rlim_cur, reason);
}

}  // namespace

MemoryLimit memory_limit_under(const std::string& proc_root, const std::string& cgroup_root) {
    MemoryLimit limit{kWithoutLimit, "nothing"};
    const auto kibibytes = sum_of_keys(proc_root + "/meminfo", {"MemAvailable:", "SwapFree:"});
    if (kibibytes != 0) tighten(limit, kibibytes * 1024, "the memory of this machine (use one with more)");
    tighten_by_cgroups(limit, proc_root, cgroup_root);
    tighten_by_resource(limit, RLIMIT_FSIZE, "RLIMIT_FSIZE (raise `ulimit -f` or LimitFSIZE=)");
    tighten_by_resource(limit, RLIMIT_AS, "RLIMIT_AS (raise `ulimit -v` or LimitAS=)");
    return limit;
}

MemoryLimit memory_limit() { return memory_limit_under("/proc", "/sys/fs/cgroup"); }

}  // namespace gradsieve::shm
