// The public Job: thin words around JobCore. Leaves the job when the handle goes. Any thread.
#include "client/handles.hpp"

#include <utility>
#include <vector>

namespace gradsieve {
namespace {

Status job_moved_from() {
    return {StatusCode::kFailedPrecondition,
            "this Job was moved from: allowed is the Job it was moved to; use that one"};
}

}  // namespace

Job::Job(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Job::Job(Job&&) noexcept = default;
Job& Job::operator=(Job&& other) noexcept {
    if (this == &other) return *this;
    if (impl_) impl_->core->leave();
    impl_ = std::move(other.impl_);
    return *this;
}
Job::~Job() {
    if (impl_) impl_->core->leave();
}

Result<Job> Job::make(const JobOptions& options) {
    GRADSIEVE_ASSIGN(auto core, client::JobCore::make(options));
    return Job(std::make_shared<Impl>(Impl{std::move(core)}));
}

Result<Tensor> Job::add_tensor(std::string_view name, std::span<const std::uint64_t> shape,
                               const TensorOptions& options) {
    if (!impl_) return job_moved_from();
    GRADSIEVE_ASSIGN(const auto added, impl_->core->add_tensor(name, shape, options));
    return Tensor(
        std::make_shared<Tensor::Impl>(Tensor::Impl{impl_->core, added.index, std::string(name), added.elements}));
}
Result<Tensor> Job::add_tensor(std::string_view name, std::initializer_list<std::uint64_t> shape,
                               const TensorOptions& options) {
    return add_tensor(name, std::span(shape.begin(), shape.size()), options);
}

Status Job::start(Timeout timeout) { return impl_ ? impl_->core->start(timeout) : job_moved_from(); }
std::uint64_t Job::first_step(std::string_view group) const {
    return impl_ ? impl_->core->first_step(group).value_or(0) : 0;
}
Status Job::bind_devices(std::span<const DeviceBinding> bindings, Timeout timeout) {
    if (!impl_) return job_moved_from();
    std::vector<client::BindingChange> changes;
    changes.reserve(bindings.size());
    for (const auto& [tensor, buffer] : bindings) {
        if (!tensor.impl_ || tensor.impl_->core != impl_->core) return client::foreign_tensor(tensor.name());
        changes.push_back({tensor.impl_->index, &buffer});
    }
    return impl_->core->change_bindings(changes, timeout);
}
Status Job::finish(std::uint64_t step, Timeout timeout, std::string_view group) {
    return impl_ ? impl_->core->finish(step, timeout, group) : job_moved_from();
}

Result<std::span<const float>> Job::broadcast(Tensor& tensor, std::uint32_t root, Timeout timeout) {
    if (!impl_) return job_moved_from();
    if (!tensor.impl_ || tensor.impl_->core != impl_->core) return client::foreign_tensor(tensor.name());
    return impl_->core->broadcast(tensor.impl_->index, root, timeout);
}

Status Job::check_equal(std::uint64_t digest, Timeout timeout) {
    return impl_ ? impl_->core->check_equal(digest, timeout) : job_moved_from();
}
Status Job::check_parameters(std::uint64_t step, std::span<const std::span<const std::byte>> parameters,
                             Timeout timeout) {
    return impl_ ? impl_->core->check_parameters(step, parameters, timeout) : job_moved_from();
}
Status Job::check_parameters(std::uint64_t step, std::span<const std::span<const float>> parameters, Timeout timeout) {
    if (!impl_) return job_moved_from();
    GRADSIEVE_ASSIGN(const bool is_due, impl_->core->is_check_due(step));
    if (!is_due) return {};  // so that a step without a comparison allocates nothing
    std::vector<std::span<const std::byte>> bytes;
    bytes.reserve(parameters.size());
    for (const auto parameter : parameters) bytes.push_back(std::as_bytes(parameter));
    return impl_->core->check_parameters(step, bytes, timeout);
}
Status Job::check_parameters(std::uint64_t step, std::span<const float> parameters, Timeout timeout) {
    const auto bytes = std::as_bytes(parameters);
    return check_parameters(step, std::span(&bytes, 1), timeout);
}
Result<Snapshot> Job::request_snapshot(std::uint64_t step, Timeout timeout, std::string_view group) {
    if (!impl_) return job_moved_from();
    return impl_->core->request_snapshot(step, group, timeout);
}
Status Job::resume_from(std::uint64_t step, std::string_view group, std::uint64_t digest) {
    return impl_ ? impl_->core->resume_from(step, group, digest) : job_moved_from();
}
Result<std::vector<std::byte>> Job::export_snapshot(std::uint64_t step, Timeout timeout, std::string_view group) {
    if (!impl_) return job_moved_from();
    return impl_->core->export_snapshot(step, group, timeout);
}
Result<Snapshot> Job::import_snapshot(std::span<const std::byte> bytes, Timeout timeout) {
    if (!impl_) return job_moved_from();
    return impl_->core->import_snapshot(bytes, timeout);
}
Status Job::release_snapshots(std::uint64_t step, Timeout timeout, std::string_view group) {
    return impl_ ? impl_->core->release_snapshots(step, group, timeout) : job_moved_from();
}
Status Job::detach(Timeout timeout) { return impl_ ? impl_->core->detach(timeout) : job_moved_from(); }
std::uint32_t Job::rank() const noexcept { return impl_ ? impl_->core->options().rank : 0; }
std::uint32_t Job::world_size() const noexcept { return impl_ ? impl_->core->options().world_size : 0; }

}  // namespace gradsieve
