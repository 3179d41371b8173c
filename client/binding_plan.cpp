#include "client/binding_plan.hpp"

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

/// The context that the stream is of.
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

Result<BindingPlan> plan_binding(const CudaDriver& driver, std::uint32_t tensor_index, const shm::TensorEntry& tensor,
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
    GRADSIEVE_ASSIGN(const auto facts, describe_device_memory(driver, gradient_text, address, element));
    GRADSIEVE_ASSIGN(plan.context, choose_context(driver, plan.subject, facts, buffer.stream));
    plan.stream = buffer.stream;
    const ContextScope scope(driver, plan.context);
    GRADSIEVE_TRY(scope.status());
    GRADSIEVE_TRY(check_device(driver, plan.subject, facts.device));
    GRADSIEVE_ASSIGN(plan.gradient, locate_device_memory(driver, gradient_text, address, extent));
    if (buffer.second_moment != nullptr) {
        const auto moment = address_of(buffer.second_moment);
        GRADSIEVE_ASSIGN(const auto moment_facts, describe_device_memory(driver, moment_text, moment, sizeof(float)));
        if (moment_facts.device != facts.device)
            return refuse(plan.subject, "its second moment is on device " + std::to_string(moment_facts.device),
                          "device " + std::to_string(facts.device) + ", as its gradient; move it");
        GRADSIEVE_ASSIGN(plan.second_moment,
                         locate_device_memory(driver, moment_text, moment, tensor.elements() * sizeof(float)));
    }
    GRADSIEVE_ASSIGN(plan.binding.device, driver.device_uuid(facts.device));
    return plan;
}

Status not_bound(const std::string& subject) {
    return {StatusCode::kFailedPrecondition,
            subject +
                " is registered with on_device and not bound: allowed is a step or a broadcast of a bound tensor; call "
                "bind_device first"};
}

}  // namespace gradsieve::client
