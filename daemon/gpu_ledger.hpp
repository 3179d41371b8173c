// What the workers of this process hold of each GPU, all together: one context that several may use, and memory against
// `gpu.memory_limit_mib`. Any thread.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"

#include <map>
#include <mutex>
#include <span>

namespace gradsieve::daemon {

/// State that a job wants on one GPU.
struct GpuClaim {
    int device = 0;  ///< ordinal
    std::string uuid;
    ByteCount bytes = 0;
};

class GpuLedger {
public:
    /// A worker begins to use the device's context. May wait until an earlier one is given back.
    void enter(int device);
    /// It has ended to, and none of its objects is left there: the last one gives the context back to the driver.
    void leave(int device);

    /// Takes all claims or none. `limit_bytes` of state and workspace on each GPU; 0: no limit. Errors:
    /// kResourceExhausted with the figures of each GPU.
    [[nodiscard]] Status take_state(std::span<const GpuClaim> claims, ByteCount limit_bytes);
    void give_back_state(int device, ByteCount bytes);
    /// A worker's workspace there was `before` bytes and is `now`.
    void note_workspace(int device, ByteCount before, ByteCount now);

private:
    struct Holdings {
        std::size_t contexts = 0;
        ByteCount state_bytes = 0, workspace_bytes = 0;
    };
    std::mutex m_;
    std::map<int, Holdings> devices_;  // guarded by m_
};

}  // namespace gradsieve::daemon
