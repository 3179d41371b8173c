#include "client/bind_batch.hpp"

#include <algorithm>
#include <set>

namespace gradsieve::client {

std::size_t BindBatch::new_descriptors(const BindingPlan& plan) const {
    std::set<DeviceAddress> missing;
    for (const auto* memory : {&plan.gradient, &plan.second_moment}) {
        if (!*memory || (*memory)->handle) continue;
        for (const auto& range : (*memory)->ranges)
            if (!descriptor_at_.contains(range.base)) missing.insert(range.base);
    }
    return missing.size();
}

Status BindBatch::check_plan(const BindingPlan& plan) {
    const auto needed = BindBatch().new_descriptors(plan);
    if (needed <= shm::kLocalDescriptorLimit) return {};
    return {StatusCode::kResourceExhausted,
            plan.subject + " lies in " + std::to_string(needed) + " physical allocations: allowed is up to " +
                std::to_string(shm::kLocalDescriptorLimit) +
                "; allocate it with cudaMalloc (PyTorch: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False), or "
                "register smaller tensors"};
}

Status BindBatch::try_to_share(const CudaDriver& driver, const BindingPlan& plan) {
    GRADSIEVE_TRY(check_plan(plan));
    return BindBatch().add(driver, plan);
}

bool BindBatch::has_room_for(const BindingPlan& plan) const {
    return request_.bindings.size() < shm::kBindingLimit &&
           descriptors_.size() + new_descriptors(plan) <= shm::kLocalDescriptorLimit;
}

Status BindBatch::add(const CudaDriver& driver, const BindingPlan& plan) {
    GRADSIEVE_CHECK(has_room_for(plan));
    auto binding = plan.binding;
    if (plan.gradient) {
        GRADSIEVE_ASSIGN(binding.gradient, share(driver, *plan.gradient));
    }
    if (plan.second_moment) {
        GRADSIEVE_ASSIGN(binding.second_moment, share(driver, *plan.second_moment));
    }
    request_.bindings.push_back(std::move(binding));
    plans_.push_back(plan);
    return {};
}

Result<shm::DeviceMemory> BindBatch::share(const CudaDriver& driver, const LocatedMemory& memory) {
    shm::DeviceMemory shared;
    const auto& first = memory.ranges.front();
    if (memory.handle) {
        shared.kind = shm::MemoryKind::kIpcHandle;
        shared.handle = *memory.handle;
        shared.allocation_bytes = first.bytes;
        shared.offset_bytes = memory.address - first.base;
        return shared;
    }
    shared.kind = shm::MemoryKind::kDescriptors;
    const auto end = memory.address + memory.bytes;
    for (const auto& range : memory.ranges) {
        GRADSIEVE_ASSIGN(const auto descriptor, descriptor_of(driver, range));
        const auto piece_begin = std::max(memory.address, range.base);
        const auto piece_end = std::min(end, range.base + range.bytes);
        shared.pieces.push_back({descriptor, piece_begin - range.base, piece_end - piece_begin});
    }
    return shared;
}

Result<std::uint8_t> BindBatch::descriptor_of(const CudaDriver& driver, const CudaDriver::Range& range) {
    if (const auto known = descriptor_at_.find(range.base); known != descriptor_at_.end()) return known->second;
    GRADSIEVE_ASSIGN(auto descriptor, driver.export_allocation(range.base));
    const auto place = static_cast<std::uint8_t>(descriptors_.size());
    descriptors_.push_back(std::move(descriptor));
    request_.descriptor_bytes.push_back(range.bytes);
    descriptor_at_.emplace(range.base, place);
    return place;
}

std::vector<int> BindBatch::descriptors() const {
    std::vector<int> fds;
    for (const auto& descriptor : descriptors_) fds.push_back(descriptor.get());
    return fds;
}

}  // namespace gradsieve::client
