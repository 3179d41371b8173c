#include "client/staging.hpp"

#include "client/half_values.hpp"

#include <utility>

namespace gradsieve::client {
namespace {

/// Where a slice's elements arrive from the device: in the slice itself, packed halves in its upper half.
std::span<std::byte> landing_of(std::span<float> slice, ElementType type) {
    const auto bytes = std::as_writable_bytes(slice);
    return bytes.last(slice.size() * bytes_of(type));
}

}  // namespace

StagedTensors::StagedTensors(std::shared_ptr<const CudaDriver> driver, ContextRef context,
                             std::shared_ptr<shm::ClientSession> session, std::span<const shm::TensorEntry> tensors)
    : driver_(std::move(driver)),
      session_(std::move(session)),
      places_(tensors.size()),
      pages_(driver_, context, session_) {
    std::vector<std::span<const std::byte>> slabs;
    std::vector<std::span<const std::byte>> results;
    for (std::uint32_t index = 0; index < tensors.size(); ++index) {
        if (!tensors[index].staged) continue;
        auto& place = places_[index];
        for (std::uint32_t sample = 0; sample < tensors[index].samples_max; ++sample) {
            place.slices.push_back(session_->slice(index, sample));
            slabs.push_back(std::as_bytes(place.slices.back()));
        }
        place.moment = session_->second_moment(index);
        place.result = session_->result(index);
        slabs.push_back(std::as_bytes(place.moment));
        results.push_back(std::as_bytes(place.result));
    }
    pages_.add(std::move(slabs), /*is_read_only=*/false);
    pages_.add(std::move(results), /*is_read_only=*/true);
}

void StagedTensors::bind(const BindingPlan& plan) {
    auto& place = places_[plan.binding.tensor_index];
    place.due = Due::kNothing;
    place.is_bound = plan.gradient.has_value();
    if (!place.is_bound) return;
    place.context = plan.context;
    place.stream = plan.stream;
    place.type = static_cast<ElementType>(plan.binding.type);
    place.gradient = plan.gradient->address;
    place.sample_stride_bytes = plan.binding.sample_stride_bytes;
    place.second_moment = plan.second_moment ? plan.second_moment->address : 0;
}

Status StagedTensors::check_place(std::uint32_t tensor_index, const std::string& tensor_name) const {
    const auto& place = places_[tensor_index];
    if (place.is_copying)
        return {StatusCode::kBusy, "tensor '" + tensor_name +
                                       "' is being copied by another thread: allowed is one call at a time for a "
                                       "staged tensor; let that one end, then call again"};
    return place.is_bound ? Status() : not_bound("tensor '" + tensor_name + "'");
}

Status StagedTensors::copy_in(const StagedPlace& place, std::uint32_t sample_count, bool has_moment) const {
    const ContextScope scope(*driver_, place.context);
    GRADSIEVE_TRY(scope.status());
    const auto enqueue = [&]() -> Status {
        for (std::uint32_t sample = 0; sample < sample_count; ++sample)
            GRADSIEVE_TRY(driver_->copy_to_host(place.stream, landing_of(place.slices[sample], place.type),
                                                place.gradient + sample * place.sample_stride_bytes));
        if (!has_moment || place.moment.empty()) return {};
        return driver_->copy_to_host(place.stream, std::as_writable_bytes(place.moment), place.second_moment);
    };
    const auto enqueued = enqueue();
    const auto waited = driver_->synchronize(place.stream);  // also for what was enqueued before a failure
    GRADSIEVE_TRY(enqueued);
    GRADSIEVE_TRY(waited);
    if (place.type == ElementType::kF32) return {};
    for (std::uint32_t sample = 0; sample < sample_count; ++sample) widen_in_place(place.type, place.slices[sample]);
    return {};
}

Status StagedTensors::copy_out(const StagedPlace& place) const {
    auto bytes = std::as_bytes(place.result);
    if (place.type != ElementType::kF32) {
        // The slab is free once the result is there; pinned, and shared, so that a fork moves no page under the copy.
        auto* const halves = reinterpret_cast<std::uint16_t*>(place.slices.front().data());
        narrow(place.type, place.result, halves);
        bytes = {reinterpret_cast<const std::byte*>(halves), place.result.size() * bytes_of(place.type)};
    }
    const ContextScope scope(*driver_, place.context);
    GRADSIEVE_TRY(scope.status());
    const auto enqueued = driver_->copy_to_device(place.stream, place.gradient, bytes);
    const auto waited = driver_->synchronize(place.stream);
    GRADSIEVE_TRY(enqueued);
    return waited;
}

}  // namespace gradsieve::client
