#include "daemon/device_parts.hpp"

#include "daemon/service.hpp"
#include "exchange/job_machine.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gradsieve::daemon {

namespace {

constexpr std::string_view kParkedPrefix = "gradsieve-state-";
constexpr std::size_t kHashDigits = 16;
constexpr std::string_view kPartInfix = "-gpu-";

ByteCount padded(ByteCount bytes, ByteCount step) { return (bytes + step - 1) / step * step; }

}  // namespace

shm::StatePlacement place_on_devices(const shm::StateTable& table, std::span<const std::string> gpus,
                                     std::span<const std::vector<codec::cuda::DeviceRange>> ranges,
                                     std::uint64_t seed) {
    shm::StatePlacement placement;
    placement.tensors.resize(table.tensors.size());
    std::vector<std::uint64_t> next(gpus.size(), shm::kDeviceAlignBytes);  // behind the part's mark
    for (std::size_t number = 0; number < table.tensors.size(); ++number) {
        const auto& tensor = table.tensors[number];
        if (!is_on_devices(tensor)) continue;
        for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
            const auto range =
                ranges[number].empty() ? codec::cuda::DeviceRange{0, tensor.elements} : ranges[number][gpu];
            shm::StatePiece piece{static_cast<std::uint32_t>(gpu), range.first, range.elements, {}};
            piece.offset_bytes.resize(tensor.arrays.size());
            for (std::size_t generation = 0; generation < 2; ++generation)
                for (std::size_t array = 0; array < tensor.arrays.size(); ++array) {
                    if (!is_on_devices(tensor.arrays[array])) continue;
                    piece.offset_bytes[array][generation] = next[gpu];
                    next[gpu] += padded(range.elements * sizeof(float), shm::kDeviceAlignBytes);
                }
            placement.tensors[number].push_back(std::move(piece));
        }
    }
    for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
        placement.parts.push_back({gpus[gpu], padded(next[gpu], shm::kDevicePageBytes), mix64(seed + gpu)});
    return placement;
}

std::vector<GpuClaim> claims_of(const shm::StatePlacement& placement, std::span<const int> ordinals) {
    std::vector<GpuClaim> claims;
    for (std::size_t place = 0; place < ordinals.size(); ++place)
        claims.push_back({ordinals[place], placement.parts[place].gpu, placement.parts[place].bytes});
    return claims;
}

void give_back(GpuLedger& ledger, std::span<const GpuClaim> claims) {
    for (const auto& claim : claims) ledger.give_back_state(claim.device, claim.bytes);
}

Result<std::vector<int>> ordinals_of(const shm::StatePlacement& placement,
                                     std::span<const codec::cuda::DeviceInfo> devices) {
    std::vector<int> ordinals;
    for (const auto& part : placement.parts) {
        const auto found = std::ranges::find(devices, part.gpu, &codec::cuda::DeviceInfo::uuid);
        if (found == devices.end()) {
            std::string seen;
            for (const auto& device : devices) seen += (seen.empty() ? "" : ", ") + device.uuid;
            return Status(StatusCode::kNotFound, "kept state on GPU " + part.gpu + ": this daemon sees " +
                                                     (seen.empty() ? "none" : seen) +
                                                     "; it is dropped, and the job begins anew");
        }
        ordinals.push_back(found->ordinal);
    }
    return ordinals;
}

Result<std::vector<UniqueFd>> duplicates_of(std::span<const UniqueFd> descriptors) {
    std::vector<UniqueFd> duplicates;
    for (const auto& descriptor : descriptors) {
        duplicates.emplace_back(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3));
        if (!duplicates.back().is_open())
            return Status(StatusCode::kResourceExhausted,
                          fmt::format("another descriptor of kept state on GPUs: {}: allowed is what the limit on open "
                                      "files leaves; raise LimitNOFILE=",
                                      std::strerror(errno)));
    }
    return duplicates;
}

std::string parked_name(const exchange::JobKey& key, std::uint32_t part) {
    return fmt::format("{}{:016x}-{}", kParkedPrefix, exchange::job_hash(key), part);
}

std::string parked_name(const exchange::JobKey& key, const shm::StatePlacement& placement, std::size_t place) {
    return fmt::format("{}{:016x}{}{}of{}-{}", kParkedPrefix, exchange::job_hash(key), kPartInfix, place + 1,
                       placement.parts.size(), placement.parts[place].gpu);
}

bool is_parked_name(std::string_view name) { return name.starts_with(kParkedPrefix); }

bool is_parked_part_name(std::string_view name) {
    return is_parked_name(name) && name.size() > kParkedPrefix.size() + kHashDigits &&
           name.substr(kParkedPrefix.size() + kHashDigits).starts_with(kPartInfix);
}

void unpark(const exchange::JobKey& key, const shm::StateSegment& segment) {
    unpark_descriptor(parked_name(key));
    if (segment.placement()) unpark_parts(key, *segment.placement());
}

void unpark_parts(const exchange::JobKey& key, const shm::StatePlacement& placement) {
    for (std::size_t place = 0; place < placement.parts.size(); ++place)
        unpark_descriptor(parked_name(key, placement, place));
}

}  // namespace gradsieve::daemon
