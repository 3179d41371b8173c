// What a call that binds device memory asked, and how much of it the daemon has done. It outlives a call that timed
// out: the same call again goes on with it, and any other first takes in the answer that is still to come, since the
// daemon carries out one request of a rank at a time. Never waits and never sends. Guarded by the core's lock; owned by
// the job.
#pragma once

#include "client/bind_batch.hpp"
#include "gradsieve/gradsieve.hpp"

#include <optional>
#include <span>
#include <vector>

namespace gradsieve::client {

/// One tensor to bind, or to unbind if `buffer` is null.
struct BindingChange {
    std::uint32_t tensor_index = 0;
    const DeviceBuffer* buffer = nullptr;
};

class OpenBind {
public:
    /// `plans`: what the daemon is to be asked, for `asked`, which is copied.
    OpenBind(std::span<const BindingChange> asked, std::vector<BindingPlan> plans);

    /// Whether `changes` are what was asked: the same tensors, in the same order, with the same buffers.
    [[nodiscard]] bool is_for(std::span<const BindingChange> changes) const;
    /// Whether everything that was asked is answered.
    [[nodiscard]] bool is_done() const noexcept { return !sent_ && next_plan_ == plans_.size(); }

    /// As many of the plans that are left as go into one message. Errors: as BindBatch::add, and which plan it was of.
    [[nodiscard]] Result<BindBatch> next_batch(const CudaDriver& driver);
    [[nodiscard]] const BindingPlan& next_plan() const { return plans_[next_plan_]; }

    /// A request that went out and has no answer yet.
    struct Sent {
        BindBatch batch;
        std::uint64_t number = 0;
    };
    void on_sent(BindBatch batch, std::uint64_t number) { sent_ = Sent{std::move(batch), number}; }
    void on_answered() { sent_.reset(); }
    [[nodiscard]] const std::optional<Sent>& sent() const noexcept { return sent_; }

private:
    struct Asked {
        std::uint32_t tensor_index = 0;
        std::optional<DeviceBuffer> buffer;
    };
    std::vector<Asked> asked_;
    std::vector<BindingPlan> plans_;
    std::size_t next_plan_ = 0;  ///< those before it were sent
    std::optional<Sent> sent_;
};

}  // namespace gradsieve::client
