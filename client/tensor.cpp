// The public Tensor: thin words around JobCore. Keeps the job's memory mapped as long as a handle lives. Any thread.
#include "client/handles.hpp"

namespace gradsieve {
namespace {

Status tensor_moved_from() {
    return {StatusCode::kFailedPrecondition,
            "this Tensor was moved from: allowed is the Tensor it was moved to; use that one"};
}

}  // namespace

std::span<float> Tensor::gradient(std::uint32_t sample_index) {
    return impl_ ? impl_->core->slice(impl_->index, sample_index).value_or(std::span<float>()) : std::span<float>();
}
std::span<float> Tensor::second_moment() {
    return impl_ ? impl_->core->second_moment(impl_->index).value_or(std::span<float>()) : std::span<float>();
}
Status Tensor::bind_device(const DeviceBuffer& buffer, Timeout timeout) {
    if (!impl_) return tensor_moved_from();
    const client::BindingChange change{impl_->index, &buffer};
    return impl_->core->change_bindings(std::span(&change, 1), timeout);
}
Status Tensor::unbind_device(Timeout timeout) {
    if (!impl_) return tensor_moved_from();
    const client::BindingChange change{impl_->index, nullptr};
    return impl_->core->change_bindings(std::span(&change, 1), timeout);
}
bool Tensor::is_staged() const { return impl_ && impl_->core->is_staged_tensor(impl_->index).value_or(false); }
Status Tensor::submit(std::uint64_t step, const SubmitOptions& options) {
    return impl_ ? impl_->core->submit(impl_->index, step, options) : tensor_moved_from();
}
Result<std::span<const float>> Tensor::wait(Timeout timeout) {
    if (!impl_) return tensor_moved_from();
    return impl_->core->wait(impl_->index, timeout);
}
bool Tensor::is_ready() { return !impl_ || impl_->core->is_ready(impl_->index); }
const std::string& Tensor::name() const noexcept {
    static const std::string kNone;
    return impl_ ? impl_->name : kNone;
}
std::uint64_t Tensor::elements() const noexcept { return impl_ ? impl_->elements : 0; }

}  // namespace gradsieve
