// Which tensors of a rank lie on a device though the host codes them: under the sharded plan, and where tensors in host
// memory are selected from together with them. They are refused at the attach, and the client asks again with them
// staged. Plain functions; any thread.
#pragma once

#include "base/status.hpp"
#include "daemon/config.hpp"
#include "shm/message.hpp"

#include <cstdint>
#include <vector>

namespace gradsieve::daemon {

struct HostOnly {
    std::vector<std::uint32_t> tensors;  ///< by index in the request, ascending
    Status refusal;                      ///< kInvalidArgument, naming the first by name; ok if there is none
};

/// None as well where the codec itself is in error: attaching says so.
[[nodiscard]] HostOnly find_host_only(const Config& config, const shm::AttachRequest& request);

}  // namespace gradsieve::daemon
