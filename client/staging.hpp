// Tensors that lie on a device whose memory the daemon cannot open: this process copies them to the slab when they are
// handed in, and the average back. Talks to the driver, never to the daemon. Guarded by the core's lock but for
// `copy_in` and `copy_out`, which wait for the GPU and run without it; while one does, its tensor's place is marked as
// copying and left alone. Must not be touched in a forked child. The memory is the program's.
#pragma once

#include "client/binding_plan.hpp"
#include "client/copied_pages.hpp"
#include "client/cuda_driver.hpp"
#include "gradsieve/gradsieve.hpp"
#include "shm/session_memory.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::client {

/// What of the session's result is still to be written to the device.
enum class Due : std::uint8_t { kNothing, kAverage, kBroadcast };

/// One staged tensor.
struct StagedPlace {
    // on the device
    bool is_bound = false;
    ContextRef context = nullptr;
    StreamRef stream = nullptr;
    ElementType type = ElementType::kF32;
    DeviceAddress gradient = 0;
    ByteCount sample_stride_bytes = 0;
    DeviceAddress second_moment = 0;
    // on the host
    std::vector<std::span<float>> slices;
    std::span<float> moment;
    std::span<const float> result;

    bool is_copying = false;  ///< a thread copies, without the lock
    Due due = Due::kNothing;
};

class StagedTensors {
public:
    /// `tensors` of the session; those staged get a place. Makes their memory known to the driver in `context`.
    StagedTensors(std::shared_ptr<const CudaDriver> driver, ContextRef context,
                  std::shared_ptr<shm::ClientSession> session, std::span<const shm::TensorEntry> tensors);

    /// Takes a plan's memory, or none. What was due is not written any more.
    void bind(const BindingPlan& plan);
    /// Of a staged tensor; stays where it is.
    [[nodiscard]] StagedPlace& place(std::uint32_t tensor_index) { return places_[tensor_index]; }
    [[nodiscard]] const StagedPlace& place(std::uint32_t tensor_index) const { return places_[tensor_index]; }

    /// Ok if the tensor may be copied now. Errors: kFailedPrecondition (not bound), kBusy (another thread copies).
    [[nodiscard]] Status check_place(std::uint32_t tensor_index, const std::string& tensor_name) const;
    /// From the device to the slab: the first `sample_count` slices, and the second moment if `has_moment`. Behind what
    /// the bound stream holds, and waits for that. Errors: as of the driver; the slab's content is lost then.
    [[nodiscard]] Status copy_in(const StagedPlace& place, std::uint32_t sample_count, bool has_moment) const;
    /// From the result to slice 0 on the device; waits. Errors: as of the driver; the device's slice is lost then.
    [[nodiscard]] Status copy_out(const StagedPlace& place) const;

private:
    const std::shared_ptr<const CudaDriver> driver_;
    const std::shared_ptr<shm::ClientSession> session_;
    std::vector<StagedPlace> places_;  ///< by tensor index
    CopiedPages pages_;                ///< goes first: its memory is the session's
};

}  // namespace gradsieve::client
