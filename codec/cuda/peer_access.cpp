#include "codec/cuda/peer_access.hpp"

#include "codec/cuda/runtime.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

Result<bool> open_pair(int from, int to) {
    int can_access = 0;
    GRADSIEVE_CUDA_TRY(cudaDeviceCanAccessPeer(&can_access, from, to), "asking for access between GPUs");
    if (can_access == 0) return false;
    GRADSIEVE_CUDA_TRY(cudaSetDevice(from), "choosing a GPU");
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());
    if (error == cudaErrorPeerAccessAlreadyEnabled) return true;
    // More peers than the hardware allows, or none of them after all: staged, and said so.
    if (error == cudaErrorTooManyPeers || error == cudaErrorPeerAccessUnsupported) return false;
    return status_of(error, "opening a GPU's memory to another one");
}

}  // namespace

Result<PeerAccess> PeerAccess::open(std::span<const int> devices) {
    PeerAccess access = none(devices);
    for (Pair& pair : access.pairs_) {
        GRADSIEVE_ASSIGN(pair.is_open, open_pair(pair.from, pair.to));
    }
    return access;
}

PeerAccess PeerAccess::none(std::span<const int> devices) {
    PeerAccess access;
    for (const int from : devices)
        for (const int to : devices)
            if (from != to) access.pairs_.push_back({from, to, false});
    return access;
}

bool PeerAccess::reaches(int from, int to) const noexcept {
    if (from == to || to < 0) return true;
    return std::ranges::any_of(pairs_,
                               [&](const Pair& pair) { return pair.is_open && pair.from == from && pair.to == to; });
}

bool PeerAccess::is_direct(int from) const noexcept {
    return std::ranges::all_of(pairs_, [from](const Pair& pair) { return pair.is_open || pair.from != from; });
}

}  // namespace gradsieve::codec::cuda
