// Which of a job's devices reach which one's memory. Where one does not, what it needs is copied to it and what it
// writes is copied from it: staged. One thread.
#pragma once

#include "base/status.hpp"

#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

class PeerAccess {
public:
    PeerAccess() = default;
    /// Opens every device's own memory to every other one that can reach it; a pair that cannot is no error. Other
    /// processes' memory is opened to each device by itself: ImportedMemory. Errors: kUnavailable.
    [[nodiscard]] static Result<PeerAccess> open(std::span<const int> devices);
    /// As if no device reached another's memory.
    [[nodiscard]] static PeerAccess none(std::span<const int> devices);

    /// Whether kernels on `from` may use memory of `to`; both are ordinals, `to` < 0: memory that everyone reaches.
    [[nodiscard]] bool reaches(int from, int to) const noexcept;
    /// Whether that device reaches all others' memory.
    [[nodiscard]] bool is_direct(int from) const noexcept;

private:
    struct Pair {
        int from = 0, to = 0;
        bool is_open = false;
    };
    std::vector<Pair> pairs_;
};

/// Which of an encoder's or decoder's devices something is planned for.
struct DevicePlace {
    std::size_t place = 0, count = 1;
    int device = 0;
    const PeerAccess* peers = nullptr;  ///< null: everything is reached

    [[nodiscard]] bool reaches(int other_device) const noexcept {
        return peers == nullptr || peers->reaches(device, other_device);
    }
};

}  // namespace gradsieve::codec::cuda
