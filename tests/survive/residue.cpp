#include "tests/survive/residue.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace gradsieve::survive {

namespace fs = std::filesystem;

std::set<std::string> names_in(const std::string& folder) {
    std::set<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) names.insert(entry.path().filename());
    return names;
}

std::vector<std::string> strangers(const std::string& folder, const std::set<std::string>& allowed) {
    std::vector<std::string> found;
    for (const auto& name : names_in(folder))
        if (allowed.count(name) == 0) found.push_back("file " + folder + "/" + name);
    return found;
}

std::vector<std::string> processes_with(const std::string& text) {
    std::vector<std::string> found;
    for (const auto& name : names_in("/proc")) {
        if (name.find_first_not_of("0123456789") != std::string::npos || name == std::to_string(::getpid())) continue;
        std::ifstream file("/proc/" + name + "/cmdline");
        std::string line((std::istreambuf_iterator<char>(file)), {});
        std::ranges::replace(line, '\0', ' ');
        if (line.find(text) != std::string::npos) found.push_back("process " + name + ": " + line);
    }
    return found;
}

Holdings holdings_of(pid_t pid) {
    Holdings found;
    const auto folder = "/proc/" + std::to_string(pid);
    found.descriptors = names_in(folder + "/fd").size();
    std::ifstream maps(folder + "/maps");
    for (std::string line; std::getline(maps, line); ++found.mappings)
        if (line.find("/memfd:") != std::string::npos) ++found.memory_mappings;
    std::ifstream pages(folder + "/statm");
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
    pages >> all >> resident;
    found.resident_bytes = resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return found;
}

namespace {

Kept read_pinned(const fs::path& path) {
    constexpr std::size_t kFixed = 48;
    constexpr std::size_t kRestAt = 32;
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::uint64_t rest = 0;
    if (bytes.size() >= kFixed) std::memcpy(&rest, bytes.data() + kRestAt, sizeof(rest));
    if (bytes.size() < kFixed + sizeof(rest) || rest > bytes.size() - kFixed - sizeof(rest))
        throw std::runtime_error(path.string() + " is not a whole snapshot");
    Kept kept{path.filename(), 0, 0};
    const auto end = bytes.size() - sizeof(kept.digest);
    std::memcpy(&kept.digest, bytes.data() + end, sizeof(kept.digest));
    for (auto at = kFixed + rest; at + sizeof(float) <= end; at += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, bytes.data() + at, sizeof(value));
        kept.sum += static_cast<double>(value);
    }
    return kept;
}

}  // namespace

std::vector<Kept> pinned_in(const std::string& folder) {
    std::vector<Kept> found;
    for (const auto& name : names_in(folder))
        if (name.ends_with(".pinned")) found.push_back(read_pinned(fs::path(folder) / name));
    return found;
}

}  // namespace gradsieve::survive
