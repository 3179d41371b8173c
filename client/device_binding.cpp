#include "client/device_binding.hpp"

#include <algorithm>
#include <utility>

namespace gradsieve::client {
namespace {

/// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, beside null: streams of whichever context is current.
constexpr std::uintptr_t kLastSpecialStream = 2;

Status refuse(const std::string& subject, const std::string& seen, const std::string& allowed) {
    return {StatusCode::kInvalidArgument, subject + ": " + seen + ": allowed is " + allowed};
}

DeviceAddress address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

Status check_shape(const std::string& subject, const shm::TensorEntry& tensor, const DeviceBuffer& buffer) {
    if (buffer.type > ElementType::kBf16)
        return refuse(subject, "the element type is " + std::to_string(static_cast<unsigned>(buffer.type)),
                      "0 (float32), 1 (float16) or 2 (bfloat16); choose one");
    if (buffer.elements != tensor.elements())
        return refuse(subject, "the buffer has " + std::to_string(buffer.elements) + " elements",
                      std::to_string(tensor.elements()) + ", as registered; bind the right buffer");
    if (buffer.sample_stride_elements != 0 && buffer.sample_stride_elements < tensor.elements())
        return refuse(subject, "slices lie " + std::to_string(buffer.sample_stride_elements) + " elements apart",
                      std::to_string(tensor.elements()) + " or more, or 0 for that; correct sample_stride_elements");
    const bool has_moment = buffer.second_moment != nullptr;
    if (has_moment != tensor.has_second_moment)
        return refuse(subject, has_moment ? "there is a second moment" : "there is no second moment",
                      tensor.has_second_moment ? "one, as registered; set second_moment"
                                               : "none unless the tensor is registered with has_second_moment");
    return {};
}

/// The context that events and stream are of.
Result<ContextRef> choose_context(const CudaDriver& driver, const std::string& subject,
                                  const CudaDriver::PointerFacts& memory, StreamRef stream) {
    if (address_of(stream) > kLastSpecialStream) return driver.context_of(stream);
    if (memory.context != nullptr) return memory.context;
    GRADSIEVE_ASSIGN(const auto current, driver.current_context());
    if (current != nullptr) return current;
    return refuse(subject, "no CUDA context is current on this thread",
                  "a default stream where one is; call cudaSetDevice(" + std::to_string(memory.device) +
                      ") first, or pass the stream itself");
}

Status check_device(const CudaDriver& driver, const std::string& subject, int device) {
    GRADSIEVE_ASSIGN(const int stream_device, driver.current_device());
    if (stream_device == device) return {};
    return refuse(subject,
                  "its memory is on device " + std::to_string(device) + " and the stream on device " +
                      std::to_string(stream_device),
                  "one device for both; pass a stream of device " + std::to_string(device));
}

}  // namespace

static_assert(static_cast<int>(ElementType::kF32) == static_cast<int>(shm::ElementType::kF32));
static_assert(static_cast<int>(ElementType::kF16) == static_cast<int>(shm::ElementType::kF16));
static_assert(static_cast<int>(ElementType::kBf16) == static_cast<int>(shm::ElementType::kBf16));

DeviceBindings::DeviceBindings(std::unique_ptr<const CudaDriver> driver, std::size_t tensor_count)
    : driver_(std::move(driver)), slots_(tensor_count) {}

DeviceBindings::~DeviceBindings() {
    for (auto& slot : slots_) {
        free_pair(slot.done);
        if (!is_goodbye_) continue;
        for (auto& pair : slot.ready_pairs) free_pair(pair);
    }
}

void DeviceBindings::free_pair(EventPair& pair) noexcept {
    if (pair.context == nullptr) return;
    const ContextScope scope(*driver_, pair.context);
    if (scope.status().is_ok())  // else the context is gone, and its events with it
        for (auto* const event : pair.events)
            if (event != nullptr) driver_->destroy_event(event);
    pair = {};
}

Result<BindingPlan> DeviceBindings::plan(std::uint32_t tensor_index, const shm::TensorEntry& tensor,
                                         const DeviceBuffer& buffer) {
    BindingPlan plan;
    plan.subject = "tensor '" + tensor.name + "'";
    GRADSIEVE_TRY(check_shape(plan.subject, tensor, buffer));
    plan.binding.tensor_index = tensor_index;
    plan.binding.type = static_cast<shm::ElementType>(buffer.type);
    const auto element = shm::element_bytes(plan.binding.type);
    const auto stride_elements = buffer.sample_stride_elements != 0 ? buffer.sample_stride_elements : tensor.elements();
    const auto stride = checked_multiply(stride_elements, element);
    if (!stride) return refuse(plan.subject, "slices lie 2^64 bytes apart or more", "less; correct the sample stride");
    plan.binding.sample_stride_bytes = *stride;
    GRADSIEVE_ASSIGN(const auto extent, shm::device_extent_bytes(tensor, plan.binding.type, *stride));

    const auto gradient_text = plan.subject + ": its gradient";
    const auto moment_text = plan.subject + ": its second moment";
    const auto address = address_of(buffer.pointer);
    GRADSIEVE_ASSIGN(const auto facts, describe_device_memory(*driver_, gradient_text, address, element));
    GRADSIEVE_ASSIGN(plan.context, choose_context(*driver_, plan.subject, facts, buffer.stream));
    plan.stream = buffer.stream;
    const ContextScope scope(*driver_, plan.context);
    GRADSIEVE_TRY(scope.status());
    GRADSIEVE_TRY(check_device(*driver_, plan.subject, facts.device));
    GRADSIEVE_ASSIGN(plan.gradient, locate_device_memory(*driver_, gradient_text, address, extent));
    if (buffer.second_moment != nullptr) {
        const auto moment = address_of(buffer.second_moment);
        GRADSIEVE_ASSIGN(const auto moment_facts, describe_device_memory(*driver_, moment_text, moment, sizeof(float)));
        if (moment_facts.device != facts.device)
            return refuse(plan.subject, "its second moment is on device " + std::to_string(moment_facts.device),
                          "device " + std::to_string(facts.device) + ", as its gradient; move it");
        GRADSIEVE_ASSIGN(plan.second_moment,
                         locate_device_memory(*driver_, moment_text, moment, tensor.elements() * sizeof(float)));
    }
    GRADSIEVE_ASSIGN(plan.binding.device, driver_->device_uuid(facts.device));
    auto& slot = slots_[tensor_index];
    GRADSIEVE_ASSIGN(plan.ready, find_ready_pair(slot, plan.context));
    plan.binding.ready_events = slot.ready_pairs[plan.ready].handles;
    return plan;
}

Result<std::size_t> DeviceBindings::find_ready_pair(Slot& slot, ContextRef context) {
    const auto known =
        std::ranges::find_if(slot.ready_pairs, [&](const EventPair& pair) { return pair.context == context; });
    if (known != slot.ready_pairs.end())
        return static_cast<std::size_t>(std::distance(slot.ready_pairs.begin(), known));
    EventPair pair{.context = context};
    for (std::size_t parity = 0; parity < shm::kStepParities; ++parity) {
        const auto made = driver_->make_event();
        if (made.is_ok()) pair.events[parity] = *made;
        auto handle = made.is_ok() ? driver_->event_handle(*made) : Result<shm::DeviceHandle>(made.error());
        if (!handle.is_ok()) {
            free_pair(pair);
            return handle.error();
        }
        pair.handles[parity] = *handle;
    }
    slot.ready_pairs.push_back(pair);
    return slot.ready_pairs.size() - 1;
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

Status DeviceBindings::on_done(const BindBatch& batch, std::span<const shm::EventHandles> done_events) {
    on_lost(batch);  // until what follows succeeds
    Status first_error;
    std::size_t place = 0;
    for (const auto& plan : batch.plans()) {
        if (!plan.gradient) continue;
        auto& slot = slots_[plan.binding.tensor_index];
        auto status = take_done_events(slot, plan.context, done_events[place++]);
        if (!status.is_ok()) {
            if (first_error.is_ok()) first_error = status.with_context(plan.subject);
            continue;
        }
        slot.ready = plan.ready;
        slot.stream = plan.stream;
        slot.is_bound = true;
    }
    return first_error;
}

Status DeviceBindings::take_done_events(Slot& slot, ContextRef context, const shm::EventHandles& handles) {
    if (slot.done.context == context && slot.done.handles == handles) return {};
    free_pair(slot.done);
    EventPair opened{.context = context, .events = {}, .handles = handles};
    {
        const ContextScope scope(*driver_, context);
        GRADSIEVE_TRY(scope.status());
        for (std::size_t parity = 0; parity < shm::kStepParities; ++parity) {
            auto event = driver_->open_event(handles[parity]);
            if (!event.is_ok()) {
                free_pair(opened);
                return event.error();
            }
            opened.events[parity] = *event;
        }
    }
    slot.done = opened;
    return {};
}

Status DeviceBindings::record_ready(std::uint32_t tensor_index, const std::string& tensor_name, Step step) {
    const auto& slot = slots_[tensor_index];
    if (slot.is_changing)
        return {StatusCode::kBusy, "tensor '" + tensor_name +
                                       "' is being bound by another thread: allowed is a step after that; let "
                                       "bind_device end first"};
    if (!slot.is_bound)
        return {StatusCode::kFailedPrecondition,
                "tensor '" + tensor_name +
                    "' is registered with on_device and not bound: allowed is a step of a bound tensor; call "
                    "bind_device first"};
    const auto& ready = slot.ready_pairs[slot.ready];
    const ContextScope scope(*driver_, ready.context);
    GRADSIEVE_TRY(scope.status());
    return driver_->record(ready.events[step % shm::kStepParities], slot.stream);
}

Status DeviceBindings::await_done(std::uint32_t tensor_index, Step step) {
    const auto& slot = slots_[tensor_index];
    if (!slot.is_bound) return {};
    const ContextScope scope(*driver_, slot.done.context);
    GRADSIEVE_TRY(scope.status());
    return driver_->wait(slot.stream, slot.done.events[step % shm::kStepParities]);
}

}  // namespace gradsieve::client
