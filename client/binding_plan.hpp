// What a program's description of device memory comes to: checked, and found where the driver has it. Asks the driver
// and changes nothing, so it serves before a job runs as well. Any thread; values are plain.
#pragma once

#include "client/device_memory.hpp"
#include "gradsieve/gradsieve.hpp"
#include "shm/device_message.hpp"

#include <optional>
#include <string>

namespace gradsieve::client {

/// A binding whose memory is known and not yet shared.
struct BindingPlan {
    shm::Binding binding;                   ///< all but its two memories
    std::string subject;                    ///< "tensor 'w'"
    std::optional<LocatedMemory> gradient;  ///< nothing: unbinds
    std::optional<LocatedMemory> second_moment;
    // for this side
    ContextRef context = nullptr;
    StreamRef stream = nullptr;
    DeviceAddress ready_word = 0;  ///< where the stream's device finds the tensor's
};

/// All of a plan but the ready word. The caller's context stays. Errors: kInvalidArgument (what of the buffer is
/// wrong), kUnavailable and kResourceExhausted (the driver).
[[nodiscard]] Result<BindingPlan> plan_binding(const CudaDriver& driver, std::uint32_t tensor_index,
                                               const shm::TensorEntry& tensor, const DeviceBuffer& buffer);

/// kFailedPrecondition: a tensor registered with on_device was to take a step before it was bound. `subject`: "tensor
/// 'w'".
[[nodiscard]] Status not_bound(const std::string& subject);

}  // namespace gradsieve::client
