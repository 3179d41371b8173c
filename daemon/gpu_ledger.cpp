#include "daemon/gpu_ledger.hpp"

#include "codec/cuda/device.hpp"

#include <algorithm>
#include <string>

namespace gradsieve::daemon {

void GpuLedger::enter(int device) {
    const std::lock_guard lock(m_);
    ++devices_[device].contexts;
}

void GpuLedger::leave(int device) {
    const std::lock_guard lock(m_);
    if (--devices_[device].contexts == 0) static_cast<void>(codec::cuda::release_context(device));
}

Status GpuLedger::take_state(std::span<const GpuClaim> claims, ByteCount limit_bytes) {
    const auto mebibytes = [](ByteCount bytes) { return std::to_string((bytes + (1U << 20U) - 1) >> 20U); };
    const std::lock_guard lock(m_);
    std::string figures;
    bool fits = true;
    for (const auto& claim : claims) {
        const auto& held = devices_[claim.device];
        const auto bytes = held.state_bytes + held.workspace_bytes;
        fits = fits && (limit_bytes == 0 || bytes + claim.bytes <= limit_bytes);
        figures += (figures.empty() ? "state of " : ", and of ") + mebibytes(claim.bytes) + " MiB on GPU " +
                   claim.uuid + ": " + mebibytes(bytes) + " of " + mebibytes(limit_bytes) + " MiB are in use";
    }
    if (!fits) return {StatusCode::kResourceExhausted, figures + ": raise gpu.memory_limit_mib, or end another job"};
    for (const auto& claim : claims) devices_[claim.device].state_bytes += claim.bytes;
    return {};
}

void GpuLedger::give_back_state(int device, ByteCount bytes) {
    const std::lock_guard lock(m_);
    auto& held = devices_[device].state_bytes;
    held -= std::min(held, bytes);
}

void GpuLedger::note_workspace(int device, ByteCount before, ByteCount now) {
    const std::lock_guard lock(m_);
    devices_[device].workspace_bytes += now - before;  // wraps to the right number
}

}  // namespace gradsieve::daemon
