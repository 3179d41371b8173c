// What the conductor asks of a GPU's thread, and what comes back. Filled by the conductor, run once by the worker, read
// by the conductor; every object of the GPU that is inside is made and destroyed on the worker's thread.
#pragma once

#include "base/shared_view.hpp"
#include "base/unique_fd.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/ipc.hpp"
#include "codec/cuda/shared_host_memory.hpp"
#include "daemon/gpu_state.hpp"
#include "daemon/hosted_tensor.hpp"
#include "daemon/snapshotter.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace gradsieve::daemon {

/// One local rank's gradient of one tensor in device memory.
struct GpuBuffer {
    codec::cuda::ImportedMemory gradient;                        ///< samples_max slices
    std::optional<codec::cuda::ImportedMemory> second_moment{};  ///< fp32
    codec::cuda::ElementType type = codec::cuda::ElementType::kF32;
    ByteCount sample_stride_bytes = 0;
    int device = 0;  ///< where the memory lies: ordinal

    [[nodiscard]] void* slice(std::uint32_t sample) const noexcept {
        return gradient.data() + sample * sample_stride_bytes;
    }
    /// For kernels of the GPU `ordinal`; null: out of their reach.
    [[nodiscard]] void* slice_on(int ordinal, std::uint32_t sample) const noexcept {
        auto* const data = gradient.data_on(ordinal);
        return data == nullptr ? nullptr : data + sample * sample_stride_bytes;
    }
    [[nodiscard]] bool is_open_to(int ordinal) const noexcept {
        return gradient.data_on(ordinal) != nullptr && (!second_moment || second_moment->data_on(ordinal) != nullptr);
    }
};

/// A range of memory as a client exported it.
struct GpuMemorySpec {
    codec::cuda::IpcHandle handle{};
    ByteCount offset_bytes = 0;
    ByteCount bytes = 0;
    std::vector<codec::cuda::MemoryPiece> pieces;  ///< not empty: descriptors instead of the handle
};
struct GpuBufferSpec {
    std::uint32_t tensor_index = 0;  ///< the session's
    GpuMemorySpec gradient;
    std::optional<GpuMemorySpec> second_moment;
    codec::cuda::ElementType type = codec::cuda::ElementType::kF32;
    ByteCount sample_stride_bytes = 0;
};

/// Opens what a rank binds, all or nothing, and lays out the job's state if asked to.
struct GpuBindTask {
    std::uint64_t session_id = 0;
    std::uint64_t job_hash = 0;
    std::uint64_t number = 0;  ///< the request's
    std::size_t place = 0;     ///< of the worker's devices: where the specs' memory lies
    std::vector<GpuBufferSpec> specs;
    std::vector<UniqueFd> descriptors;     ///< that the specs' pieces name
    std::vector<std::uint32_t> unbound;    ///< the session's tensors that are let go once the others are bound
    bool brings_state = false;             ///< the state of the job's tensors on devices is there with it
    std::unique_ptr<GpuStateSetup> state;  ///< what of it lies on the devices; null: nothing
    UniqueFd host_state_fd;                ///< open: the job's state on the host is mapped for the devices
    ByteCount host_state_bytes = 0;
    // answers
    Status status;
    std::vector<std::unique_ptr<GpuBuffer>> buffers;  ///< one per spec
    std::optional<codec::cuda::SharedHostMemory> host_state;
};
/// A broadcast's values, out of the root's memory or into that of every local rank; fp32 on the way.
struct GpuCopyTask {
    HostedTensor* tensor = nullptr;
    std::uint64_t job_hash = 0;
    Step number = 0;  ///< the broadcast's
    bool is_read = false;
    std::vector<GpuBuffer*> buffers;  ///< the root's, or one per local rank; slice 0
    SharedView bytes;                 ///< fp32, one per element: what is to be written, or what was read
    Status status;                    ///< answer

    /// On the worker's thread; waits for the device.
    [[nodiscard]] Status run(const codec::cuda::Stream& stream);
};
/// Objects to be destroyed where they were made.
struct GpuReleaseTask {
    std::vector<std::unique_ptr<GpuBuffer>> buffers;
    PartMemory state;
    std::optional<codec::cuda::SharedHostMemory> host_state;
};

/// Are the parts that an earlier daemon left those that their table names?
struct GpuStateCheckTask {
    std::uint64_t job_hash = 0;
    shm::StatePlacement placement;
    std::vector<int> ordinals;
    std::vector<UniqueFd> descriptors;
    // answers
    Status context;  ///< not ok: nobody could look; that says nothing of the parts
    Status status;
};
/// Copies a committed generation aside for a snapshot: a piece at a time, so that steps get their turns in between.
struct GpuStateReadTask {
    std::shared_ptr<SnapshotTask> snapshot;  ///< into whose copies, which are made here
    const PartMemory* memory = nullptr;      ///< the job's; stays as long as the task is out
    struct Read {
        std::size_t array = 0;  ///< of the snapshot
        ElementCount first = 0;
        StateRange range;
    };
    std::vector<Read> reads;
    std::size_t next = 0;   ///< the read that is under way
    ElementCount done = 0;  ///< elements of it
    Status status;          ///< answer
    [[nodiscard]] bool is_done() const noexcept { return !status.is_ok() || next == reads.size(); }
};

struct GpuTask {
    std::unique_ptr<CodecTask> codec{};
    std::unique_ptr<GpuBindTask> bind{};
    std::unique_ptr<GpuReleaseTask> release{};
    std::unique_ptr<GpuCopyTask> copy{};
    std::unique_ptr<GpuStateCheckTask> state_check{};
    std::unique_ptr<GpuStateReadTask> state_read{};

    [[nodiscard]] bool is_empty() const noexcept {
        return !codec && !bind && !release && !copy && !state_check && !state_read;
    }
};

}  // namespace gradsieve::daemon
