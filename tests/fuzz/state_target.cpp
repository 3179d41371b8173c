// State that an earlier life left: a snapshot's file, the table of a kept segment, the placement on GPUs. One byte
// tells which, and whether sizes and checksums are made to fit first: nothing that is mutated would come behind them
// else.
#include "daemon/snapshot_file.hpp"
#include "shm/state_placement.hpp"
#include "shm/state_table.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace gradsieve::fuzz {
namespace {

enum : std::uint8_t { kSnapshot = 0, kTable = 1, kDescription = 2, kPlacement = 3, kFitting = 4 };
constexpr std::uint64_t kInode = 4711;
constexpr std::size_t kSnapshotFixedBytes = 48;  // docs/state-format.md: the checksum is the last of them

shm::StateTable table(bool has_devices) {
    shm::StateTable made;
    made.job_name = "job";
    made.run_id = "1";
    made.world_size = 2;
    made.groups = {""};
    for (const char* name : {"a", "b"}) {
        shm::StateTensor tensor{name, 0, 3, "topk(0.01) | f32 | auto", {}};
        for (const char* array : {"residual", "variance"})
            tensor.arrays.push_back({array, has_devices ? shm::kDevicesPart : shm::kHostPart, {}, 12});
        made.tensors.push_back(tensor);
    }
    return made;
}

template <typename T>
void put(Bytes& inout_bytes, std::size_t at, T value) {
    if (inout_bytes.size() >= at + sizeof(value)) std::memcpy(inout_bytes.data() + at, &value, sizeof(value));
}

/// A segment's head with what its checks compare: the magic and version stay what the input says.
void fit_table(Bytes& inout_bytes) {
    if (inout_bytes.size() < shm::kStateHeadBytes) return;
    std::uint64_t constant = 0;
    std::memcpy(&constant, inout_bytes.data() + 24, sizeof(constant));
    constant %= inout_bytes.size() - shm::kStateHeadBytes + 1;
    put(inout_bytes, 16, kInode);
    put(inout_bytes, 24, constant);
    put(inout_bytes, 40, std::uint64_t{inout_bytes.size()});
    put(inout_bytes, 56, std::uint64_t{shm::kStateReady});
    Bytes hashed(inout_bytes.begin(), inout_bytes.begin() + 48);
    const auto from = inout_bytes.begin() + shm::kStateHeadBytes;
    hashed.insert(hashed.end(), from, from + static_cast<std::ptrdiff_t>(constant));
    put(inout_bytes, 48, shm::state_checksum(hashed));
}
void fit_snapshot(Bytes& inout_bytes) {
    if (inout_bytes.size() < kSnapshotFixedBytes) return;
    std::uint64_t body = 0;
    std::memcpy(&body, inout_bytes.data() + 32, sizeof(body));
    body %= inout_bytes.size() - kSnapshotFixedBytes + 1;
    put(inout_bytes, 32, body);
    Bytes hashed(inout_bytes.begin(), inout_bytes.begin() + 40);
    const auto from = inout_bytes.begin() + kSnapshotFixedBytes;
    hashed.insert(hashed.end(), from, from + static_cast<std::ptrdiff_t>(body));
    put(inout_bytes, 40, shm::state_checksum(hashed));
}

void run_snapshot(ByteView bytes) {
    const auto size = static_cast<std::streamsize>(bytes.size());
    // A file of its own: snapshots behind links, as /proc has them, are refused.
    static const auto path =
        (std::filesystem::temp_directory_path() / ("gradsieve-fuzz-" + std::to_string(::getpid()) + ".snapshot"))
            .string();
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), size);
    const auto head = daemon::read_snapshot_head(path);
    std::filesystem::remove(path);
    if (!head.is_ok()) return;
    ByteCount values = 0;
    for (const auto elements : daemon::array_elements(*head)) values += elements * sizeof(float);
    require(values <= bytes.size(), "a snapshot's arrays lie in its file");
}
void run_table(ByteView bytes) {
    const auto parsed = shm::parse_state_table(bytes, kInode);
    if (!parsed.is_ok()) return;
    for (const auto& tensor : parsed->table.tensors)
        for (const auto& array : tensor.arrays)
            for (const auto offset : array.offset_bytes)
                require(is_on_devices(array) || (offset <= bytes.size() && array.bytes <= bytes.size() - offset),
                        "a state's arrays lie in its segment");
}
void run_description(ByteView bytes) {
    const auto parsed = shm::parse_state_description(bytes);
    if (!parsed.is_ok()) return;
    require(shm::parse_state_description(shm::build_state_description(*parsed)).is_ok(),
            "a description that was taken is built and taken again");
}
void run_placement(ByteView bytes) {
    static const auto on_devices = [] {
        auto made = table(true);
        require(shm::lay_out_state(made, 2).is_ok(), "a small table is laid out");
        return made;
    }();
    const auto placement = shm::parse_placement(bytes, on_devices);
    if (!placement.is_ok()) return;
    require(shm::parse_placement(shm::build_placement(*placement), on_devices).is_ok(),
            "a placement that was taken is built and taken again");
}

Bytes snapshot_file() {
    daemon::SnapshotHead head;
    head.table = table(false);
    head.step = 41;
    head.ranks = {0, 1};
    head.scales = {1.0, 1.0};
    std::vector<float> values(3, 0.5F);
    const std::vector<std::span<float>> arrays(4, values);
    const auto folder = std::filesystem::temp_directory_path() / ("gradsieve-fuzz-seed-" + std::to_string(::getpid()));
    require(daemon::write_snapshot(folder.string(), head, arrays).is_ok(), "a snapshot is written");
    auto bytes = read_file(folder / daemon::snapshot_name({"job", "1"}, 0, 41));
    std::filesystem::remove_all(folder);
    return bytes;
}

}  // namespace

std::vector<Bytes> seeds() {
    auto host = table(false);
    const auto layout = shm::lay_out_state(host);
    require(layout.is_ok(), "a small table is laid out");
    auto segment = shm::build_state_table(host, *layout, kInode);
    segment.resize(layout->segment_bytes);
    put(segment, 56, std::uint64_t{shm::kStateReady});
    const auto snapshot = snapshot_file();
    return {tagged(kSnapshot, snapshot),
            tagged(kSnapshot + kFitting, snapshot),
            tagged(kTable, segment),
            tagged(kTable + kFitting, segment),
            tagged(kDescription, shm::build_state_description(host)),
            tagged(kPlacement, shm::build_placement({}))};
}

void run_one(ByteView input) {
    if (input.empty()) return;
    const auto tag = std::to_integer<std::uint8_t>(input[0]) % (2 * kFitting);
    Bytes bytes(input.begin() + 1, input.end());
    switch (tag % kFitting) {
        case kSnapshot:
            if (tag >= kFitting) fit_snapshot(bytes);
            run_snapshot(bytes);
            return;
        case kTable:
            if (tag >= kFitting) fit_table(bytes);
            run_table(bytes);
            return;
        case kDescription: run_description(bytes); return;
        default: run_placement(bytes); return;
    }
}

}  // namespace gradsieve::fuzz
