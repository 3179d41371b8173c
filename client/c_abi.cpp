// The C ABI of gradsieve.h: arguments checked, exceptions stopped, statuses turned into numbers with a text per thread.
// No logic of its own beyond that. Threads and ownership as the header says.
#include "gradsieve/gradsieve.h"

#include "client/c_handles.hpp"
#include "client/c_options.hpp"
#include "gradsieve/gradsieve.hpp"

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

using gradsieve::Status;
using gradsieve::StatusCode;
using gradsieve::client::JobCore;

using gradsieve::client::guarded;
using gradsieve::client::null_argument;
using gradsieve::client::text_or_empty;
using gradsieve::client::timeout_of;

std::string& gradsieve::client::last_c_error() {
    thread_local std::string text;
    return text;
}

namespace {

static_assert(GRADSIEVE_OK == static_cast<int>(StatusCode::kOk));
static_assert(GRADSIEVE_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument));
static_assert(GRADSIEVE_NOT_FOUND == static_cast<int>(StatusCode::kNotFound));
static_assert(GRADSIEVE_ALREADY_EXISTS == static_cast<int>(StatusCode::kAlreadyExists));
static_assert(GRADSIEVE_FAILED_PRECONDITION == static_cast<int>(StatusCode::kFailedPrecondition));
static_assert(GRADSIEVE_UNAVAILABLE == static_cast<int>(StatusCode::kUnavailable));
static_assert(GRADSIEVE_TIMEOUT == static_cast<int>(StatusCode::kTimeout));
static_assert(GRADSIEVE_STEP_FAILED == static_cast<int>(StatusCode::kStepFailed));
static_assert(GRADSIEVE_RESOURCE_EXHAUSTED == static_cast<int>(StatusCode::kResourceExhausted));
static_assert(GRADSIEVE_PERMISSION_DENIED == static_cast<int>(StatusCode::kPermissionDenied));
static_assert(GRADSIEVE_CORRUPT == static_cast<int>(StatusCode::kCorrupt));
static_assert(GRADSIEVE_NON_FINITE == static_cast<int>(StatusCode::kNonFinite));
static_assert(GRADSIEVE_BUSY == static_cast<int>(StatusCode::kBusy));
static_assert(GRADSIEVE_VERSION_MISMATCH == static_cast<int>(StatusCode::kVersionMismatch));
static_assert(GRADSIEVE_UNIMPLEMENTED == static_cast<int>(StatusCode::kUnimplemented));
static_assert(GRADSIEVE_INTERNAL == static_cast<int>(StatusCode::kInternal));
static_assert(GRADSIEVE_MISMATCH == static_cast<int>(StatusCode::kMismatch));
static_assert(GRADSIEVE_PEER_FAILED == static_cast<int>(StatusCode::kPeerFailed));
static_assert(GRADSIEVE_CANCELLED == static_cast<int>(StatusCode::kCancelled));
static_assert(GRADSIEVE_NON_FINITE_FAIL == static_cast<int>(gradsieve::NonFinite::kFail));
static_assert(GRADSIEVE_NON_FINITE_SKIP_STEP == static_cast<int>(gradsieve::NonFinite::kSkipStep));
static_assert(GRADSIEVE_NON_FINITE_ZERO == static_cast<int>(gradsieve::NonFinite::kZero));

/// The sizes that the first release had: a caller's struct is never smaller.
constexpr std::size_t kJobOptionsFirstSize = 64;
constexpr std::size_t kTensorOptionsFirstSize = 24;
constexpr std::size_t kSubmitOptionsFirstSize = 32;
constexpr std::size_t kDeviceBufferFirstSize = 56;
static_assert(sizeof(gradsieve_job_options) == kJobOptionsFirstSize + sizeof(const char*), "require came later");
static_assert(sizeof(gradsieve_tensor_options) == kTensorOptionsFirstSize + 8, "on_device came later");
static_assert(sizeof(gradsieve_submit_options) == kSubmitOptionsFirstSize);
static_assert(sizeof(gradsieve_device_buffer) == kDeviceBufferFirstSize);
static_assert(GRADSIEVE_ELEMENT_F32 == static_cast<int>(gradsieve::ElementType::kF32));
static_assert(GRADSIEVE_ELEMENT_F16 == static_cast<int>(gradsieve::ElementType::kF16));
static_assert(GRADSIEVE_ELEMENT_BF16 == static_cast<int>(gradsieve::ElementType::kBf16));

/// `*ret_values` = the first element of a Result<span>.
template <typename Spans, typename Pointer>
Status take_pointer(Spans spans, Pointer* ret_values) {
    if (!spans.is_ok()) return spans.error();
    *ret_values = spans->data();
    return {};
}

/// Errors: kInvalidArgument (an array or a pointer is missing, named with its place).
gradsieve::Result<std::vector<std::span<const std::byte>>> parts_of(const void* const* parameters,
                                                                    const std::size_t* byte_counts, std::size_t count) {
    if (parameters == nullptr && count > 0) return null_argument("parameters");
    if (byte_counts == nullptr && count > 0) return null_argument("byte_counts");
    std::vector<std::span<const std::byte>> parts;
    parts.reserve(count);
    for (std::size_t place = 0; place < count; ++place) {
        if (parameters[place] == nullptr && byte_counts[place] > 0)
            return null_argument(("parameters[" + std::to_string(place) + "]").c_str());
        parts.emplace_back(static_cast<const std::byte*>(parameters[place]), byte_counts[place]);
    }
    return parts;
}

gradsieve::Result<gradsieve::JobOptions> job_options_of(const gradsieve_job_options* options) {
    gradsieve_job_options known = GRADSIEVE_JOB_OPTIONS_INIT;
    GRADSIEVE_TRY(gradsieve::client::read_options("gradsieve_job_options", options, kJobOptionsFirstSize, known));
    if (known.non_finite < GRADSIEVE_NON_FINITE_FAIL || known.non_finite > GRADSIEVE_NON_FINITE_ZERO)
        return Status(StatusCode::kInvalidArgument, "gradsieve_job_options.non_finite is " +
                                                        std::to_string(known.non_finite) +
                                                        ": allowed is 0 (fail), 1 (skip-step) or 2 (zero); choose one");
    gradsieve::JobOptions converted;
    converted.name = text_or_empty(known.name);
    converted.run_id = text_or_empty(known.run_id);
    converted.rank = known.rank;
    converted.world_size = known.world_size;
    converted.codec = text_or_empty(known.codec);
    converted.socket_path = text_or_empty(known.socket_path);
    converted.check_every = known.check_every;
    converted.require = text_or_empty(known.require);
    converted.non_finite = static_cast<gradsieve::NonFinite>(known.non_finite);
    return converted;
}

gradsieve::Result<gradsieve::DeviceBuffer> device_buffer_of(const gradsieve_device_buffer* buffer) {
    gradsieve_device_buffer known = GRADSIEVE_DEVICE_BUFFER_INIT;
    GRADSIEVE_TRY(gradsieve::client::read_options("gradsieve_device_buffer", buffer, kDeviceBufferFirstSize, known));
    if (known.element_type < GRADSIEVE_ELEMENT_F32 || known.element_type > GRADSIEVE_ELEMENT_BF16)
        return Status(StatusCode::kInvalidArgument,
                      "gradsieve_device_buffer.element_type is " + std::to_string(known.element_type) +
                          ": allowed is 0 (float32), 1 (float16) or 2 (bfloat16); choose one");
    gradsieve::DeviceBuffer converted;
    converted.pointer = known.pointer;
    converted.elements = known.elements;
    converted.type = static_cast<gradsieve::ElementType>(known.element_type);
    converted.stream = known.stream;
    converted.sample_stride_elements = known.sample_stride_elements;
    converted.second_moment = known.second_moment;
    return converted;
}

/// One change of bindings for each of `count` tensors, over `ret_buffers`.
gradsieve::Result<std::vector<gradsieve::client::BindingChange>> changes_of(
    const gradsieve_job& job, gradsieve_tensor* const* tensors, const gradsieve_device_buffer* const* buffers,
    std::size_t count, std::vector<gradsieve::DeviceBuffer>& ret_buffers) {
    if (tensors == nullptr && count > 0) return null_argument("tensors");
    if (buffers == nullptr && count > 0) return null_argument("buffers");
    ret_buffers.resize(count);
    std::vector<gradsieve::client::BindingChange> changes(count);
    for (std::size_t place = 0; place < count; ++place) {
        const auto name = [place](const char* list) { return std::string(list) + "[" + std::to_string(place) + "]"; };
        if (tensors[place] == nullptr) return null_argument(name("tensors").c_str());
        if (buffers[place] == nullptr) return null_argument(name("buffers").c_str());
        if (tensors[place]->core != job.core.get()) return gradsieve::client::foreign_tensor(tensors[place]->name);
        GRADSIEVE_ASSIGN(ret_buffers[place], device_buffer_of(buffers[place]));
        changes[place] = {tensors[place]->index, &ret_buffers[place]};
    }
    return changes;
}

}  // namespace

extern "C" {

const char* gradsieve_version(void) { return gradsieve::version().data(); }
const char* gradsieve_status_name(gradsieve_status status) {
    const bool is_code = status >= 0 && status <= std::numeric_limits<std::uint16_t>::max();
    return is_code ? gradsieve::status_code_name(static_cast<StatusCode>(status)).data() : "unknown";
}
const char* gradsieve_last_error(void) { return gradsieve::client::last_c_error().c_str(); }
uint64_t gradsieve_digest_of(const void* bytes, size_t byte_count) {
    return gradsieve::digest_of({static_cast<const std::byte*>(bytes), byte_count});
}

gradsieve_status gradsieve_job_make(const gradsieve_job_options* options, gradsieve_job** ret_job) {
    return guarded([&]() -> Status {
        if (ret_job == nullptr) return null_argument("ret_job");
        GRADSIEVE_ASSIGN(const auto converted, job_options_of(options));
        GRADSIEVE_ASSIGN(auto core, JobCore::make(converted));
        auto job = std::make_unique<gradsieve_job>();
        job->core = std::move(core);
        *ret_job = job.release();
        return {};
    });
}

void gradsieve_job_free(gradsieve_job* job) {
    const std::unique_ptr<gradsieve_job> owned(job);
    if (owned) owned->core->leave();
}

gradsieve_status gradsieve_job_add_tensor(gradsieve_job* job, const char* name, const uint64_t* shape,
                                          size_t dimensions, const gradsieve_tensor_options* options,
                                          gradsieve_tensor** ret_tensor) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (ret_tensor == nullptr) return null_argument("ret_tensor");
        if (shape == nullptr && dimensions > 0) return null_argument("shape");
        gradsieve_tensor_options known = GRADSIEVE_TENSOR_OPTIONS_INIT;
        GRADSIEVE_TRY(
            gradsieve::client::read_options("gradsieve_tensor_options", options, kTensorOptionsFirstSize, known));
        gradsieve::TensorOptions converted;
        converted.samples_max = known.samples_max;
        converted.has_second_moment = known.has_second_moment != 0;
        converted.group = text_or_empty(known.group);
        converted.on_device = known.on_device != 0;
        GRADSIEVE_ASSIGN(const auto added, job->core->add_tensor(text_or_empty(name), {shape, dimensions}, converted));
        const std::lock_guard lock(job->m);
        *ret_tensor = &job->tensors.emplace_back(gradsieve_tensor{job->core.get(), added.index, name, added.elements});
        return {};
    });
}

gradsieve_status gradsieve_job_start(gradsieve_job* job, int64_t timeout_ms) {
    return guarded([&] { return job == nullptr ? null_argument("job") : job->core->start(timeout_of(timeout_ms)); });
}
gradsieve_status gradsieve_job_first_step(const gradsieve_job* job, const char* group, uint64_t* ret_step) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (ret_step == nullptr) return null_argument("ret_step");
        GRADSIEVE_ASSIGN(*ret_step, job->core->first_step(text_or_empty(group)));
        return {};
    });
}
gradsieve_status gradsieve_job_finish(gradsieve_job* job, uint64_t step, const char* group, int64_t timeout_ms) {
    return guarded([&] {
        return job == nullptr ? null_argument("job")
                              : job->core->finish(step, timeout_of(timeout_ms), text_or_empty(group));
    });
}
gradsieve_status gradsieve_job_bind_devices(gradsieve_job* job, gradsieve_tensor* const* tensors,
                                            const gradsieve_device_buffer* const* buffers, size_t count,
                                            int64_t timeout_ms) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        std::vector<gradsieve::DeviceBuffer> converted;
        GRADSIEVE_ASSIGN(const auto changes, changes_of(*job, tensors, buffers, count, converted));
        return job->core->change_bindings(changes, timeout_of(timeout_ms));
    });
}
gradsieve_status gradsieve_job_broadcast(gradsieve_job* job, gradsieve_tensor* tensor, uint32_t root,
                                         int64_t timeout_ms, const float** ret_values) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_values == nullptr) return null_argument("ret_values");
        if (tensor->core != job->core.get()) return gradsieve::client::foreign_tensor(tensor->name);
        return take_pointer(job->core->broadcast(tensor->index, root, timeout_of(timeout_ms)), ret_values);
    });
}
gradsieve_status gradsieve_job_check_equal(gradsieve_job* job, uint64_t digest, int64_t timeout_ms) {
    return guarded(
        [&] { return job == nullptr ? null_argument("job") : job->core->check_equal(digest, timeout_of(timeout_ms)); });
}
gradsieve_status gradsieve_job_check_parameters(gradsieve_job* job, uint64_t step, const void* const* parameters,
                                                const size_t* byte_counts, size_t count, int64_t timeout_ms) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        GRADSIEVE_ASSIGN(const bool is_due, job->core->is_check_due(step));
        if (!is_due) return {};
        GRADSIEVE_ASSIGN(const auto parts, parts_of(parameters, byte_counts, count));
        return job->core->check_parameters(step, parts, timeout_of(timeout_ms));
    });
}
gradsieve_status gradsieve_job_detach(gradsieve_job* job, int64_t timeout_ms) {
    return guarded([&] { return job == nullptr ? null_argument("job") : job->core->detach(timeout_of(timeout_ms)); });
}
gradsieve_status gradsieve_job_rank(const gradsieve_job* job, uint32_t* ret_rank) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (ret_rank == nullptr) return null_argument("ret_rank");
        *ret_rank = job->core->options().rank;
        return {};
    });
}
gradsieve_status gradsieve_job_world_size(const gradsieve_job* job, uint32_t* ret_world_size) {
    return guarded([&]() -> Status {
        if (job == nullptr) return null_argument("job");
        if (ret_world_size == nullptr) return null_argument("ret_world_size");
        *ret_world_size = job->core->options().world_size;
        return {};
    });
}

gradsieve_status gradsieve_tensor_gradient(gradsieve_tensor* tensor, uint32_t sample_index, float** ret_values) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_values == nullptr) return null_argument("ret_values");
        return take_pointer(tensor->core->slice(tensor->index, sample_index), ret_values);
    });
}
gradsieve_status gradsieve_tensor_second_moment(gradsieve_tensor* tensor, float** ret_values) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_values == nullptr) return null_argument("ret_values");
        return take_pointer(tensor->core->second_moment(tensor->index), ret_values);
    });
}
gradsieve_status gradsieve_tensor_submit(gradsieve_tensor* tensor, uint64_t step,
                                         const gradsieve_submit_options* options) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        gradsieve_submit_options known = GRADSIEVE_SUBMIT_OPTIONS_INIT;
        GRADSIEVE_TRY(
            gradsieve::client::read_options("gradsieve_submit_options", options, kSubmitOptionsFirstSize, known));
        gradsieve::SubmitOptions converted;
        converted.sample_count = known.sample_count;
        if (known.samples != nullptr) converted.samples = {known.samples, known.sample_count};
        converted.scale = known.scale;
        return tensor->core->submit(tensor->index, step, converted);
    });
}
gradsieve_status gradsieve_tensor_bind_device(gradsieve_tensor* tensor, const gradsieve_device_buffer* buffer,
                                              int64_t timeout_ms) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (buffer == nullptr) return null_argument("buffer");
        GRADSIEVE_ASSIGN(const auto converted, device_buffer_of(buffer));
        const gradsieve::client::BindingChange change{tensor->index, &converted};
        return tensor->core->change_bindings({&change, 1}, timeout_of(timeout_ms));
    });
}
gradsieve_status gradsieve_tensor_unbind_device(gradsieve_tensor* tensor, int64_t timeout_ms) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        const gradsieve::client::BindingChange change{tensor->index, nullptr};
        return tensor->core->change_bindings({&change, 1}, timeout_of(timeout_ms));
    });
}
gradsieve_status gradsieve_tensor_wait(gradsieve_tensor* tensor, int64_t timeout_ms, const float** ret_values) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_values == nullptr) return null_argument("ret_values");
        return take_pointer(tensor->core->wait(tensor->index, timeout_of(timeout_ms)), ret_values);
    });
}
gradsieve_status gradsieve_tensor_is_ready(gradsieve_tensor* tensor, int32_t* ret_is_ready) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_is_ready == nullptr) return null_argument("ret_is_ready");
        *ret_is_ready = tensor->core->is_ready(tensor->index) ? 1 : 0;
        return {};
    });
}
gradsieve_status gradsieve_tensor_is_staged(const gradsieve_tensor* tensor, int32_t* ret_is_staged) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_is_staged == nullptr) return null_argument("ret_is_staged");
        GRADSIEVE_ASSIGN(const bool is_staged, tensor->core->is_staged_tensor(tensor->index));
        *ret_is_staged = is_staged ? 1 : 0;
        return {};
    });
}
gradsieve_status gradsieve_tensor_elements(const gradsieve_tensor* tensor, uint64_t* ret_elements) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_elements == nullptr) return null_argument("ret_elements");
        *ret_elements = tensor->elements;
        return {};
    });
}
gradsieve_status gradsieve_tensor_name(const gradsieve_tensor* tensor, const char** ret_name) {
    return guarded([&]() -> Status {
        if (tensor == nullptr) return null_argument("tensor");
        if (ret_name == nullptr) return null_argument("ret_name");
        *ret_name = tensor->name.c_str();
        return {};
    });
}

}  // extern "C"
