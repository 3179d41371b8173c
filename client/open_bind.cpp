#include "client/open_bind.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace gradsieve::client {
namespace {

bool is_same(const std::optional<DeviceBuffer>& asked, const DeviceBuffer* buffer) {
    const auto values = [](const DeviceBuffer& of) {
        return std::tie(of.pointer, of.elements, of.type, of.stream, of.sample_stride_elements, of.second_moment);
    };
    if (!asked || buffer == nullptr) return !asked && buffer == nullptr;
    return values(*asked) == values(*buffer);
}

}  // namespace

OpenBind::OpenBind(std::span<const BindingChange> asked, std::vector<BindingPlan> plans) : plans_(std::move(plans)) {
    asked_.reserve(asked.size());
    for (const auto& [index, buffer] : asked)
        asked_.push_back({index, buffer == nullptr ? std::nullopt : std::optional(*buffer)});
}

bool OpenBind::is_for(std::span<const BindingChange> changes) const {
    return std::ranges::equal(asked_, changes, [](const Asked& asked, const BindingChange& change) {
        return asked.tensor_index == change.tensor_index && is_same(asked.buffer, change.buffer);
    });
}

Result<BindBatch> OpenBind::next_batch(const CudaDriver& driver) {
    BindBatch batch;
    for (; next_plan_ < plans_.size(); ++next_plan_) {
        if (!batch.is_empty() && !batch.has_room_for(next_plan())) break;
        GRADSIEVE_TRY(batch.add(driver, next_plan()));
    }
    return batch;
}

}  // namespace gradsieve::client
