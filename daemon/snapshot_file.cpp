#include "daemon/snapshot_file.hpp"

#include "exchange/job_machine.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL  // the hash's state on the stack, and no library to find at run time
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

namespace gradsieve::daemon {

ByteCount snapshot_bytes(const SnapshotHead& head) noexcept {
    ByteCount bytes = 0;
    for (const auto& tensor : head.table.tensors)
        for (const auto& array : tensor.arrays) bytes += array.bytes;
    return bytes;
}

namespace {

constexpr std::size_t kFixedBytes = 48;            // magic to head checksum
constexpr ByteCount kHeadLimitBytes = 64U << 20U;  // a table of 65,536 tensors with long names is below this
constexpr ByteCount kPieceBytes = 8U << 20U;

Status refused(const std::string& path, const std::string& what, const std::string& allowed) {
    return {StatusCode::kCorrupt, "snapshot " + path + ": " + what + ": allowed is " + allowed + "; it is not used"};
}
Status write_all(int fd, ByteView bytes, const std::string& path) {
    while (!bytes.empty()) {
        const auto count = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), kPieceBytes));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return snapshot_call_failed(path, "write", count < 0 ? errno : ENOSPC);
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return {};
}
Status read_all(int fd, std::span<std::byte> ret_bytes, const std::string& path) {
    while (!ret_bytes.empty()) {
        const auto count = ::read(fd, ret_bytes.data(), std::min<std::size_t>(ret_bytes.size(), kPieceBytes));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return snapshot_call_failed(path, "read", errno);
        if (count == 0) return refused(path, "it ends early", "a whole file");
        ret_bytes = ret_bytes.subspan(static_cast<std::size_t>(count));
    }
    return {};
}

Bytes build_head(const SnapshotHead& head) {
    Bytes body;
    ByteWriter writer(body);
    writer.write(head.group);
    writer.write(head.saved_unix_s);
    writer.write_varint(head.ranks.size());
    for (const auto rank : head.ranks) writer.write_varint(rank);
    for (const auto scale : head.scales) writer.write(scale);
    writer.write_bytes(shm::build_state_description(head.table));
    Bytes bytes;
    ByteWriter fixed(bytes);
    fixed.write(kSnapshotMagic);
    fixed.write(kSnapshotVersion);
    fixed.write(shm::kStateAbi);
    fixed.write(head.step);
    fixed.write(std::uint64_t{head.scales.size()});
    fixed.write(std::uint64_t{body.size()});
    Bytes hashed = bytes;
    hashed.insert(hashed.end(), body.begin(), body.end());
    fixed.write(shm::state_checksum(hashed));
    bytes.insert(bytes.end(), body.begin(), body.end());
    return bytes;
}

Status check_head(const std::string& path, const SnapshotHead& head) {
    const auto& table = head.table;
    if (table.groups.size() != 1 || table.job_name.empty() || table.world_size == 0 || head.ranks.empty())
        return refused(path, "a table without job, world, ranks or group", "those of one group");
    if (head.step == 0 || head.step > shm::kStateLastStep)
        return refused(path, "step " + std::to_string(head.step), "1 to 2^62");
    for (std::size_t index = 0; index < table.tensors.size(); ++index) {
        const auto& tensor = table.tensors[index];
        if (!std::isfinite(head.scales[index]) || head.scales[index] < 0)
            return refused(path, "tensor '" + tensor.name + "' with scale " + std::to_string(head.scales[index]),
                           "a number from 0");
        for (const auto& array : tensor.arrays)
            if (!has_sound_size(tensor, array) || array.bytes > (1ULL << 50U))
                return refused(path,
                               "array '" + array.name + "' of tensor '" + tensor.name + "' of " +
                                   std::to_string(array.bytes) + " bytes",
                               "4 for each element, or behind the first array up to twice that and 64 KiB");
    }
    return {};
}

Result<SnapshotHead> parse_head(const std::string& path, ByteView bytes) {
    ByteReader fixed(bytes.first(kFixedBytes));
    SnapshotHead head;
    const auto magic = fixed.read<std::uint64_t>();
    const auto version = fixed.read<std::uint32_t>();
    const auto abi = fixed.read<std::uint32_t>();
    head.step = fixed.read<std::uint64_t>();
    const auto tensors = fixed.read<std::uint64_t>();
    static_cast<void>(fixed.read<std::uint64_t>());
    const auto checksum = fixed.read<std::uint64_t>();
    if (magic != kSnapshotMagic) return refused(path, "magic " + std::to_string(magic), "a snapshot's");
    if (version != kSnapshotVersion || abi != shm::kStateAbi)
        return Status(StatusCode::kVersionMismatch,
                      fmt::format("snapshot {}: format {}.{}: this version reads {}.{}; it is not used", path, version,
                                  abi, kSnapshotVersion, shm::kStateAbi));
    Bytes hashed(bytes.begin(), bytes.begin() + kFixedBytes - 8);
    hashed.insert(hashed.end(), bytes.begin() + kFixedBytes, bytes.end());
    if (shm::state_checksum(hashed) != checksum)
        return refused(path, "a head whose checksum differs", "an undamaged file");
    ByteReader reader(bytes.subspan(kFixedBytes));
    head.group = reader.read<std::uint32_t>();
    head.saved_unix_s = reader.read<std::uint64_t>();
    const auto ranks = reader.read_varint();
    for (std::uint64_t index = 0; index < ranks && reader.is_ok(); ++index)
        head.ranks.push_back(static_cast<Rank>(reader.read_varint()));
    for (std::uint64_t index = 0; index < tensors && reader.is_ok(); ++index)
        head.scales.push_back(reader.read<double>());
    if (!reader.is_ok()) return refused(path, "a head that ends early", "an undamaged file");
    GRADSIEVE_ASSIGN(head.table, shm::parse_state_description(reader.read_bytes(reader.remaining_bytes())));
    if (head.table.tensors.size() != head.scales.size())
        return refused(path, std::to_string(head.scales.size()) + " scales", "one for each tensor");
    GRADSIEVE_TRY(check_head(path, head));
    return head;
}

/// The last eight bytes, where the checksum of the values stands; the descriptor stays where it is.
Result<std::uint64_t> read_digest(int fd, ByteCount file_bytes, const std::string& path) {
    std::uint64_t digest = 0;
    const auto count = ::pread(fd, &digest, sizeof(digest), static_cast<off_t>(file_bytes - sizeof(digest)));
    if (count != static_cast<ssize_t>(sizeof(digest))) return refused(path, "it ends early", "a whole file");
    return digest;
}

/// Where the values begin, so many bytes are those of an array; the descriptor stays where it is.
Result<KeptEpoch> read_epoch(int fd, ByteCount values_at, const SnapshotHead& head, const std::string& path) {
    const auto place = find_epoch(head.table, 0);
    if (!place) return KeptEpoch(Epoch{0});
    auto offset = values_at;
    for (std::size_t tensor = 0; tensor <= place->tensor; ++tensor) {
        const auto& arrays = head.table.tensors[tensor].arrays;
        const auto count = tensor < place->tensor ? arrays.size() : place->array;
        for (std::size_t array = 0; array < count; ++array) offset += arrays[array].bytes;
    }
    Bytes bytes(place->bytes);
    const auto count = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count != static_cast<ssize_t>(bytes.size())) return refused(path, "it ends early", "a whole file");
    return parse_epoch(bytes);
}

Result<UniqueFd> open_file(const std::string& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.is_open()) return snapshot_call_failed(path, "open", errno);
    return fd;
}

}  // namespace

Status snapshot_call_failed(const std::string& path, const char* call, int error) {
    const auto code = error == ENOENT   ? StatusCode::kNotFound
                      : error == EACCES ? StatusCode::kPermissionDenied
                      : error == ENOSPC ? StatusCode::kResourceExhausted
                                        : StatusCode::kUnavailable;
    return {code, fmt::format("snapshot {}: {}: {}: needed is a folder that gradsieved can write to, with room; see "
                              "daemon.state_directory",
                              path, call, std::strerror(error))};
}

Status sync_snapshot_folder(const std::string& folder) {
    const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.is_open() && ::fsync(directory.get()) != 0) return snapshot_call_failed(folder, "fsync", errno);
    return {};
}

Result<SnapshotHead> read_snapshot_head(int fd, const std::string& path) {
    struct stat seen {};
    if (::fstat(fd, &seen) != 0 || !S_ISREG(seen.st_mode)) return refused(path, "no regular file", "a file");
    const auto file_bytes = static_cast<ByteCount>(seen.st_size);
    Bytes bytes(kFixedBytes);
    GRADSIEVE_TRY(read_all(fd, bytes, path));
    std::uint64_t body_bytes = 0;
    std::memcpy(&body_bytes, bytes.data() + 32, sizeof(body_bytes));
    if (body_bytes > kHeadLimitBytes || body_bytes > file_bytes - kFixedBytes)
        return refused(path, "a head of " + std::to_string(body_bytes) + " bytes", "what the file has");
    bytes.resize(kFixedBytes + body_bytes);
    GRADSIEVE_TRY(read_all(fd, std::span(bytes).subspan(kFixedBytes), path));
    GRADSIEVE_ASSIGN(auto head, parse_head(path, bytes));
    const auto expected = bytes.size() + snapshot_bytes(head) + sizeof(std::uint64_t);
    if (file_bytes != expected)
        return refused(path, std::to_string(file_bytes) + " bytes", std::to_string(expected) + " by its head");
    GRADSIEVE_ASSIGN(head.digest, read_digest(fd, file_bytes, path));
    GRADSIEVE_ASSIGN(head.epoch, read_epoch(fd, bytes.size(), head, path));
    return head;
}

std::string snapshot_prefix(const exchange::JobKey& key) { return fmt::format("{:016x}-", exchange::job_hash(key)); }

std::vector<FoundSnapshot> find_snapshot_files(const std::string& folder, const std::string& prefix,
                                               std::string_view suffix) {
    std::vector<FoundSnapshot> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        const auto name = entry.path().filename().string();
        if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.starts_with('.')) continue;
        found.push_back({entry.path().string(), read_snapshot_head(entry.path().string())});
    }
    const auto order = [](const FoundSnapshot& one) {
        if (!one.head.is_ok()) return std::make_tuple(std::string(), std::string(), 0U, Step{0});
        return std::make_tuple(one.head->table.job_name, one.head->table.run_id, one.head->group, ~one.head->step);
    };
    std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
    return found;
}

CommittedGroup committed_group(shm::StateSegment& state, std::uint32_t group, Step step) {
    const auto& whole = state.table();
    CommittedGroup made;
    auto& head = made.head;
    head.table.job_name = whole.job_name;
    head.table.run_id = whole.run_id;
    head.table.owner = whole.owner;
    head.table.world_size = whole.world_size;
    head.table.spec = whole.spec;
    head.table.groups = {whole.groups[group]};
    head.group = group;
    head.step = step;
    head.ranks = state.ranks();
    head.saved_unix_s = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count());
    for (std::size_t number = 0; number < whole.tensors.size(); ++number) {
        if (whole.tensors[number].group != group) continue;
        const auto live = state.live_generation(number, head.step).value_or(0);
        head.table.tensors.push_back(whole.tensors[number]);
        head.table.tensors.back().group = 0;
        for (auto& array : head.table.tensors.back().arrays) array.part = shm::kHostPart;  // a file has no other
        head.scales.push_back(state.generation(number, live).scale);
        const auto& arrays = whole.tensors[number].arrays;
        for (std::size_t index = 0; index < arrays.size(); ++index) {
            if (is_on_devices(arrays[index])) {
                made.on_devices.push_back({made.arrays.size(), number, index, live});
                made.arrays.emplace_back();
            } else {
                made.arrays.emplace_back(state.values(arrays[index], live), arrays[index].bytes / sizeof(float));
            }
        }
    }
    return made;
}

std::vector<ElementCount> array_elements(const SnapshotHead& head) {
    std::vector<ElementCount> elements;
    for (const auto& tensor : head.table.tensors)
        for (const auto& array : tensor.arrays) elements.push_back(array.bytes / sizeof(float));
    return elements;
}

std::string snapshot_name(const exchange::JobKey& key, std::uint32_t group, Step step) {
    return fmt::format("{}{}-{}{}", snapshot_prefix(key), group, step, kSnapshotSuffix);
}

std::uint64_t snapshot_digest(std::span<const std::span<float>> arrays) noexcept {
    alignas(64) XXH3_state_t hash{};
    XXH3_64bits_reset(&hash);
    for (const auto& array : arrays) XXH3_64bits_update(&hash, array.data(), array.size_bytes());
    return XXH3_64bits_digest(&hash);
}

Status write_snapshot(const std::string& folder, const SnapshotHead& head, std::span<const std::span<float>> arrays) {
    return write_snapshot_as(folder, snapshot_name({head.table.job_name, head.table.run_id}, head.group, head.step),
                             head, arrays);
}

Status write_snapshot_as(const std::string& folder, const std::string& name, const SnapshotHead& head,
                         std::span<const std::span<float>> arrays) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const auto path = folder + "/" + name;
    const auto beside = folder + "/." + name;
    UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.is_open()) return snapshot_call_failed(beside, "open", errno);
    const auto fill = [&]() -> Status {
        GRADSIEVE_TRY(write_all(fd.get(), build_head(head), path));
        alignas(64) XXH3_state_t hash{};
        XXH3_64bits_reset(&hash);
        for (const auto& array : arrays) {
            XXH3_64bits_update(&hash, array.data(), array.size_bytes());
            GRADSIEVE_TRY(write_all(fd.get(), std::as_bytes(array), path));
        }
        const std::uint64_t checksum = XXH3_64bits_digest(&hash);
        GRADSIEVE_TRY(write_all(fd.get(), std::as_bytes(std::span(&checksum, 1)), path));
        if (::fsync(fd.get()) != 0) return snapshot_call_failed(path, "fsync", errno);
        if (::rename(beside.c_str(), path.c_str()) != 0) return snapshot_call_failed(path, "rename", errno);
        return {};
    };
    const auto status = fill();
    if (!status.is_ok()) {
        ::unlink(beside.c_str());
        return status;
    }
    return sync_snapshot_folder(folder);
}

Result<SnapshotHead> read_snapshot_head(const std::string& path) {
    GRADSIEVE_ASSIGN(const auto fd, open_file(path));
    return read_snapshot_head(fd.get(), path);
}

Status read_snapshot_values(int fd, const std::string& path, std::span<const std::span<float>> ret_arrays) {
    alignas(64) XXH3_state_t hash{};
    XXH3_64bits_reset(&hash);
    for (const auto& array : ret_arrays) {
        GRADSIEVE_TRY(read_all(fd, std::as_writable_bytes(array), path));
        XXH3_64bits_update(&hash, array.data(), array.size_bytes());
    }
    std::uint64_t checksum = 0;
    GRADSIEVE_TRY(read_all(fd, std::as_writable_bytes(std::span(&checksum, 1)), path));
    if (checksum != XXH3_64bits_digest(&hash))
        return refused(path, "values whose checksum differs", "an undamaged file");
    return {};
}

Status read_snapshot_arrays(const std::string& path, const SnapshotHead& head,
                            std::span<const std::span<float>> ret_arrays) {
    GRADSIEVE_ASSIGN(const auto fd, open_file(path));
    GRADSIEVE_ASSIGN(const auto again, read_snapshot_head(fd.get(), path));
    if (again.step != head.step || snapshot_bytes(again) != snapshot_bytes(head))
        return refused(path, "another file than a moment ago", "the same one");
    return read_snapshot_values(fd.get(), path, ret_arrays);
}

std::vector<FoundSnapshot> find_snapshots(const std::string& folder) {
    return find_snapshot_files(folder, "", kSnapshotSuffix);
}

std::vector<FoundSnapshot> find_snapshots(const std::string& folder, const exchange::JobKey& key) {
    return find_snapshot_files(folder, snapshot_prefix(key), kSnapshotSuffix);
}

void remove_snapshot_leftovers(const std::string& folder) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        const auto name = entry.path().filename().string();
        if (name.starts_with('.') && (name.ends_with(kSnapshotSuffix) || name.ends_with(kPinnedSuffix)))
            ::unlink(entry.path().c_str());
    }
}

void remove_snapshots(const std::string& folder, const exchange::JobKey& key, std::size_t kept) {
    std::map<std::uint32_t, std::size_t> seen;
    for (const auto& found : find_snapshots(folder, key))
        if (!found.head.is_ok() || ++seen[found.head->group] > kept) ::unlink(found.path.c_str());
}

}  // namespace gradsieve::daemon
