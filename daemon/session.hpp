// One attached training process, as the conductor sees it. Plain data owned by the conductor; its memory stays mapped
// until no codec task reads from it.
#pragma once

#include "daemon/gpu_task.hpp"
#include "shm/doorbell.hpp"
#include "shm/local_socket.hpp"
#include "shm/session_memory.hpp"
#include "shm/state_message.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon {

class HostedJob;

class Session {
public:
    std::uint64_t id = 0;
    shm::LocalConnection connection;
    shm::Credentials who;
    std::string user;  ///< name, or the number where there is none
    UniqueFd process;  ///< polls readable once the process is dead
    /// Its own, so that a client which tampers with the descriptor only deafens itself.
    std::optional<shm::Doorbell> doorbell;
    /// Before it attaches: steps that it names to go on from.
    std::vector<shm::StateRequest> wishes;
    // set by attaching
    std::optional<shm::DaemonSession> memory;
    HostedJob* job = nullptr;
    Rank rank = 0;
    std::vector<shm::TensorEntry> tensors;                ///< in the session's order
    std::vector<std::uint32_t> number_of_index;           ///< session's index -> job's tensor number
    std::vector<std::uint32_t> index_of_number;           ///< and back
    std::vector<std::uint32_t> first_of_group;            ///< group number -> the session's first tensor of it
    std::vector<std::unique_ptr<GpuBuffer>> gpu_buffers;  ///< by the session's index; null: on the host, or not bound
    std::vector<bool> is_handed_in;  ///< by the session's index: for a step that has no outcome yet
    /// A hand-in from a GPU whose stream has not come that far; what the ring holds behind it waits too.
    std::optional<shm::Submission> held;
    bool is_binding = false;  ///< a bind request of it is with a GPU's worker
    ByteCount memory_bytes = 0;
    bool has_detached = false;
    bool is_gone = false;     ///< process or connection ended; to be removed when no task reads its slabs
    bool needs_ring = false;  ///< completions were pushed since the doorbell was last rung

    /// False if the client does not read its completions: it is to be treated as gone.
    [[nodiscard]] bool complete(const shm::Completion& completion);
    /// Whether it may ask about what belongs to the user `owner`.
    [[nodiscard]] bool may_touch(std::uint32_t owner) const;
};

}  // namespace gradsieve::daemon
