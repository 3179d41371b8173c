#include "client/device_binding.hpp"

#include <utility>

namespace gradsieve::client {

DeviceBindings::DeviceBindings(std::shared_ptr<const CudaDriver> driver, std::span<std::uint32_t> ready_words,
                               std::shared_ptr<const void> memory)
    : driver_(std::move(driver)), ready_words_(driver_, ready_words, std::move(memory)), slots_(ready_words.size()) {}

Result<BindingPlan> DeviceBindings::plan(std::uint32_t tensor_index, const shm::TensorEntry& tensor,
                                         const DeviceBuffer& buffer) {
    GRADSIEVE_ASSIGN(auto plan, plan_binding(*driver_, tensor_index, tensor, buffer));
    const ContextScope scope(*driver_, plan.context);
    GRADSIEVE_TRY(scope.status());
    GRADSIEVE_ASSIGN(plan.ready_word, ready_words_.address_of(plan.context, tensor_index));
    return plan;
}

void DeviceBindings::on_sent(const BindBatch& batch) {
    for (const auto& plan : batch.plans()) slots_[plan.binding.tensor_index].is_changing = true;
}

void DeviceBindings::on_refused(const BindBatch& batch) {
    for (const auto& plan : batch.plans()) slots_[plan.binding.tensor_index].is_changing = false;
}

void DeviceBindings::on_lost(const BindBatch& batch) {
    on_refused(batch);
    for (const auto& plan : batch.plans()) slots_[plan.binding.tensor_index].is_bound = false;
}

void DeviceBindings::on_done(const BindBatch& batch) {
    for (const auto& plan : batch.plans())
        slots_[plan.binding.tensor_index] = {.is_bound = plan.gradient.has_value(),
                                             .is_changing = false,
                                             .context = plan.context,
                                             .stream = plan.stream,
                                             .ready_word = plan.ready_word};
}

Status DeviceBindings::check_bound(const Slot& slot, const std::string& tensor_name) const {
    if (slot.is_changing)
        return {StatusCode::kBusy, "tensor '" + tensor_name +
                                       "' is being bound by another thread: allowed is a step after that; let "
                                       "bind_device end first"};
    return slot.is_bound ? Status() : not_bound("tensor '" + tensor_name + "'");
}

Result<DeviceBindings::Place> DeviceBindings::place_of(std::uint32_t tensor_index,
                                                       const std::string& tensor_name) const {
    const auto& slot = slots_[tensor_index];
    GRADSIEVE_TRY(check_bound(slot, tensor_name));
    return Place{slot.context, slot.stream};
}

Status DeviceBindings::write_ready(std::uint32_t tensor_index, const std::string& tensor_name, Step step) {
    const auto& slot = slots_[tensor_index];
    GRADSIEVE_TRY(check_bound(slot, tensor_name));
    const ContextScope scope(*driver_, slot.context);
    GRADSIEVE_TRY(scope.status());
    return ready_words_.write(slot.stream, slot.ready_word, tensor_index, step);
}

}  // namespace gradsieve::client
