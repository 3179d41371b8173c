// One bind request in the making: its bindings, and the descriptors of physical allocations that they share. Owned by
// the thread that binds; the descriptors close with it (the message carries duplicates).
#pragma once

#include "client/device_memory.hpp"
#include "shm/device_message.hpp"
#include "shm/local_socket.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

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

class BindBatch {
public:
    /// Errors: kResourceExhausted (no message has as many descriptors as it needs; what to do).
    [[nodiscard]] static Status check_plan(const BindingPlan& plan);
    /// False: the message would have too many bindings or descriptors; it may fit another one.
    [[nodiscard]] bool has_room_for(const BindingPlan& plan) const;
    /// Exports what the plan's memory needs; only where there is room. Errors: as CudaDriver::export_allocation.
    [[nodiscard]] Status add(const CudaDriver& driver, const BindingPlan& plan);

    [[nodiscard]] bool is_empty() const noexcept { return request_.bindings.empty(); }
    [[nodiscard]] shm::BindRequest& request() noexcept { return request_; }
    [[nodiscard]] std::vector<int> descriptors() const;
    [[nodiscard]] const std::vector<BindingPlan>& plans() const noexcept { return plans_; }

private:
    [[nodiscard]] std::size_t new_descriptors(const BindingPlan& plan) const;
    [[nodiscard]] Result<shm::DeviceMemory> share(const CudaDriver& driver, const LocatedMemory& memory);
    [[nodiscard]] Result<std::uint8_t> descriptor_of(const CudaDriver& driver, const CudaDriver::Range& range);

    shm::BindRequest request_;
    std::vector<BindingPlan> plans_;  ///< one per binding
    std::vector<UniqueFd> descriptors_;
    std::map<DeviceAddress, std::uint8_t> descriptor_at_;  ///< by where its allocation is mapped
};

}  // namespace gradsieve::client
