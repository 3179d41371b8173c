#include "daemon/pinned_snapshots.hpp"

#include "exchange/job_machine.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

namespace gradsieve::daemon {

namespace {

constexpr std::uint64_t kSecondsPerDay = 86'400;
constexpr std::string_view kChoiceSuffix = "choice";
constexpr std::size_t kChoiceLineLimitBytes = 1024;

/// A second name for the file; what had that name goes at the same moment.
Status link_as(const std::string& folder, const std::string& from, const std::string& to) {
    const auto beside = folder + "/." + to;
    ::unlink(beside.c_str());
    if (::link((folder + "/" + from).c_str(), beside.c_str()) != 0)
        return snapshot_call_failed(folder + "/" + from, "link", errno);
    if (::rename(beside.c_str(), (folder + "/" + to).c_str()) != 0)
        return snapshot_call_failed(folder + "/" + to, "rename", errno);
    ::unlink(beside.c_str());  // rename does nothing if both were names of one file already
    return sync_snapshot_folder(folder);
}

std::string mebibytes(ByteCount bytes) { return std::to_string((bytes + (1U << 20U) - 1) >> 20U); }

std::string choice_path(const std::string& folder, const exchange::JobKey& key) {
    return folder + "/" + snapshot_prefix(key) + std::string(kChoiceSuffix);
}

}  // namespace

std::string pinned_name(const exchange::JobKey& key, std::uint32_t group, Step step) {
    return fmt::format("{}{}-{}{}", snapshot_prefix(key), group, step, kPinnedSuffix);
}

std::vector<FoundSnapshot> find_pinned(const std::string& folder) {
    return find_snapshot_files(folder, "", kPinnedSuffix);
}

std::vector<FoundSnapshot> find_pinned(const std::string& folder, const exchange::JobKey& key) {
    return find_snapshot_files(folder, snapshot_prefix(key), kPinnedSuffix);
}

Status check_pinned_room(const std::string& folder, const exchange::JobKey& key, std::uint32_t group, ByteCount bytes,
                         const PinnedLimits& limits) {
    ByteCount used = 0;
    std::size_t of_group = 0;
    const auto prefix = fmt::format("{}{}-", snapshot_prefix(key), group);
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        const auto name = entry.path().filename().string();
        if (!name.ends_with(kPinnedSuffix) || name.starts_with('.')) continue;
        const auto file_bytes = entry.file_size(ignored);
        used += ignored ? 0 : file_bytes;
        of_group += name.starts_with(prefix) ? 1 : 0;
    }
    if (of_group >= kPinnedLimit)
        return {StatusCode::kResourceExhausted,
                fmt::format(
                    "job '{}': {} pinned snapshots of this group lie in {}: allowed are {}; release some (gradsieve "
                    "state release), and look why newer ones do not get complete on every node",
                    key.name, of_group, folder, kPinnedLimit)};
    if (limits.limit_bytes > 0 && (bytes > limits.limit_bytes || used > limits.limit_bytes - bytes))
        return {StatusCode::kResourceExhausted,
                fmt::format("job '{}': a pinned snapshot of {} MiB beside {} MiB in {}: allowed are {} MiB "
                            "(state.pinned_limit_mib); release some (gradsieve state release), or raise it",
                            key.name, mebibytes(bytes), mebibytes(used), folder, mebibytes(limits.limit_bytes))};
    return {};
}

Status pin_snapshot(const std::string& folder, const exchange::JobKey& key, std::uint32_t group, Step step) {
    return link_as(folder, snapshot_name(key, group, step), pinned_name(key, group, step));
}

Status add_interval_name(const std::string& folder, const exchange::JobKey& key, std::uint32_t group, Step step) {
    return link_as(folder, pinned_name(key, group, step), snapshot_name(key, group, step));
}

void remove_older_pinned(const std::string& folder, const exchange::JobKey& key, std::uint32_t group, Step step,
                         std::size_t kept) {
    std::size_t seen = 0;
    for (const auto& found : find_pinned(folder, key)) {  // newest first
        if (!found.head.is_ok() || found.head->group != group || found.head->step > step) continue;
        if (++seen > kept) ::unlink(found.path.c_str());
    }
}

std::vector<FoundSnapshot> remove_aged_pinned(const std::string& folder, std::uint64_t keep_days) {
    std::vector<FoundSnapshot> gone;
    if (keep_days == 0) return gone;
    const auto now = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count());
    for (auto& found : find_pinned(folder)) {
        if (!found.head.is_ok() || found.head->saved_unix_s + keep_days * kSecondsPerDay >= now) continue;
        ::unlink(found.path.c_str());
        gone.push_back(std::move(found));
    }
    return gone;
}

Result<SnapshotHead> take_in_pinned(const std::string& folder, int fd, const exchange::JobKey& key, std::uint32_t owner,
                                    const PinnedLimits& limits) {
    const std::string name = "that was handed over";
    constexpr int kNeeded = F_SEAL_WRITE | F_SEAL_SHRINK;
    const auto seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & kNeeded) != kNeeded)
        return Status(StatusCode::kInvalidArgument,
                      "a snapshot that was handed over in a file that can change: allowed is a memfd sealed against "
                      "writing and shrinking; use the library's call, or gradsieve state load");
    if (::lseek(fd, 0, SEEK_SET) != 0) return snapshot_call_failed(name, "lseek", errno);
    GRADSIEVE_ASSIGN(auto head, read_snapshot_head(fd, name));
    if (head.table.job_name != key.name || head.table.run_id != key.run_id)
        return Status(StatusCode::kInvalidArgument,
                      "a snapshot of job '" + head.table.job_name + "', run '" + head.table.run_id +
                          "' was handed over: allowed is one of job '" + key.name + "', run '" + key.run_id +
                          "'; give the job that name and run id");
    GRADSIEVE_TRY(check_pinned_room(folder, key, head.group, snapshot_bytes(head), limits));
    std::vector<std::vector<float>> values;
    SnapshotArrays arrays;
    try {
        for (const auto elements : array_elements(head)) values.emplace_back(elements);
    } catch (const std::bad_alloc&) {
        return Status(StatusCode::kResourceExhausted,
                      "a snapshot of " + mebibytes(snapshot_bytes(head)) +
                          " MiB was handed over: no memory for it: free some, and try again");
    }
    for (auto& array : values) arrays.emplace_back(array);
    GRADSIEVE_TRY(read_snapshot_values(fd, name, arrays));
    head.table.owner = owner;
    GRADSIEVE_TRY(write_snapshot_as(folder, pinned_name(key, head.group, head.step), head, arrays));
    return head;
}

Status write_resume_choice(const std::string& folder, const exchange::JobKey& key, const ResumeChoice& choice) {
    const auto path = choice_path(folder, key);
    if (choice.empty()) {
        if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
        return snapshot_call_failed(path, "unlink", errno);
    }
    const auto beside = path + ".new";
    std::ofstream file(beside, std::ios::trunc);
    for (const auto& [group, step] : choice) file << step << '\t' << group << '\n';
    file.close();
    if (!file || ::rename(beside.c_str(), path.c_str()) != 0) return snapshot_call_failed(path, "write", errno);
    return sync_snapshot_folder(folder);
}

ResumeChoice read_resume_choice(const std::string& folder, const exchange::JobKey& key) {
    ResumeChoice choice;
    std::ifstream file(choice_path(folder, key));
    for (std::string line; std::getline(file, line);) {
        const auto tab = line.find('\t');
        if (tab == std::string::npos || line.size() > kChoiceLineLimitBytes) return {};
        Step step = 0;
        for (const char digit : line.substr(0, tab)) {
            if (digit < '0' || digit > '9' || step > shm::kStateLastStep / 10) return {};
            step = step * 10 + static_cast<Step>(digit - '0');
        }
        if (step == 0) return {};
        choice[line.substr(tab + 1)] = step;
    }
    return choice;
}

}  // namespace gradsieve::daemon
