// What a job keeps on GPUs, as the conductor sees it: which array lies where, the descriptors that keep the memory, the
// names under which those are parked, and what they count against `gpu.memory_limit_mib`. Calls nothing of CUDA.
#pragma once

#include "base/unique_fd.hpp"
#include "codec/cuda/device.hpp"
#include "codec/cuda/device_split.hpp"
#include "daemon/gpu_ledger.hpp"
#include "exchange/job_spec.hpp"
#include "shm/state_segment.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::daemon {

/// The memory behind a placement, part by part.
struct DeviceParts {
    std::vector<UniqueFd> descriptors;
    std::vector<int> ordinals;  ///< of the GPUs in this process
};
/// A state and everything that it lies in.
struct KeptState {
    shm::StateSegment segment;
    DeviceParts parts{};
};

/// Places every array that `table` has on GPUs: `ranges` by tensor, one for each of `gpus` (UUIDs); without ranges a
/// tensor lies on the only one. `seed` makes the parts' keys. The same for the same numbers everywhere, keys aside.
[[nodiscard]] shm::StatePlacement place_on_devices(const shm::StateTable& table, std::span<const std::string> gpus,
                                                   std::span<const std::vector<codec::cuda::DeviceRange>> ranges,
                                                   std::uint64_t seed);
/// One claim for each part.
[[nodiscard]] std::vector<GpuClaim> claims_of(const shm::StatePlacement& placement, std::span<const int> ordinals);
void give_back(GpuLedger& ledger, std::span<const GpuClaim> claims);
/// Where in this process the placement's GPUs are. Errors: kNotFound (this daemon does not see one; named).
[[nodiscard]] Result<std::vector<int>> ordinals_of(const shm::StatePlacement& placement,
                                                   std::span<const codec::cuda::DeviceInfo> devices);
/// Descriptors of the same memory. Errors: kResourceExhausted (none left).
[[nodiscard]] Result<std::vector<UniqueFd>> duplicates_of(std::span<const UniqueFd> descriptors);

/// The name under which the segment of a job's state is parked: "gradsieve-state-HASH-0".
[[nodiscard]] std::string parked_name(const exchange::JobKey& key, std::uint32_t part = 0);
/// The name of a part on a GPU: "gradsieve-state-HASH-gpu-PLACEofCOUNT-UUID", places from 1.
[[nodiscard]] std::string parked_name(const exchange::JobKey& key, const shm::StatePlacement& placement,
                                      std::size_t place);
/// Any of them.
[[nodiscard]] bool is_parked_name(std::string_view name);
/// A part on a GPU, of whatever job.
[[nodiscard]] bool is_parked_part_name(std::string_view name);
/// The manager lets go of the segment and of every part.
void unpark(const exchange::JobKey& key, const shm::StateSegment& segment);
/// The manager lets go of the parts alone.
void unpark_parts(const exchange::JobKey& key, const shm::StatePlacement& placement);

}  // namespace gradsieve::daemon
