// One bind request in the making: its bindings, and the descriptors of physical allocations that they share. Owned by
// the thread that binds; the descriptors close with it (the message carries duplicates).
#pragma once

#include "client/binding_plan.hpp"
#include "shm/device_message.hpp"
#include "shm/local_socket.hpp"

#include <map>
#include <vector>

namespace gradsieve::client {

class BindBatch {
public:
    /// Errors: kResourceExhausted (no message has as many descriptors as it needs; what to do).
    [[nodiscard]] static Status check_plan(const BindingPlan& plan);
    /// Whether another process can open the plan's memory: exports it and lets go again. Errors: as check_plan and
    /// CudaDriver::export_allocation (kFailedPrecondition: it cannot be shared).
    [[nodiscard]] static Status try_to_share(const CudaDriver& driver, const BindingPlan& plan);
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
