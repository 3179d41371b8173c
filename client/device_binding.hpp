// What this process knows of its tensors that lie on a device: which memory and stream each is bound to, and the ready
// words by which its GPUs tell the daemon that a gradient is made. Talks to the driver, never to the daemon, and never
// waits. Guarded by the core's lock; must not be touched in a forked child. The memory is the program's.
#pragma once

#include "client/bind_batch.hpp"
#include "client/cuda_driver.hpp"
#include "client/ready_words.hpp"
#include "gradsieve/gradsieve.hpp"
#include "shm/message.hpp"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::client {

class DeviceBindings {
public:
    /// `ready_words` and `memory` as of ReadyWords, with one word for each tensor of the session.
    DeviceBindings(std::shared_ptr<const CudaDriver> driver, std::span<std::uint32_t> ready_words,
                   std::shared_ptr<const void> memory);

    [[nodiscard]] const CudaDriver& driver() const noexcept { return *driver_; }
    /// For a wait without the core's lock.
    [[nodiscard]] std::shared_ptr<const CudaDriver> shared_driver() const noexcept { return driver_; }
    struct Place {
        ContextRef context = nullptr;
        StreamRef stream = nullptr;
    };
    /// Where work on a bound tensor is enqueued. Errors: kFailedPrecondition (not bound), kBusy (being bound).
    [[nodiscard]] Result<Place> place_of(std::uint32_t tensor_index, const std::string& tensor_name) const;

    /// Looks at the buffer and makes what a binding of it needs; binds nothing. Errors: kInvalidArgument (what of the
    /// buffer is wrong), kUnavailable and kResourceExhausted (the driver), kFailedPrecondition (as ReadyWords).
    [[nodiscard]] Result<BindingPlan> plan(std::uint32_t tensor_index, const shm::TensorEntry& tensor,
                                           const DeviceBuffer& buffer);
    /// From here until the answer the tensors of `batch` take no step.
    void on_sent(const BindBatch& batch);
    /// The daemon did what was asked.
    void on_done(const BindBatch& batch);
    /// The daemon refused: everything is as it was.
    void on_refused(const BindBatch& batch);
    /// No answer came: nobody knows, so these tensors count as not bound.
    void on_lost(const BindBatch& batch);

    /// Lets the bound stream write the ready word once it has come this far: the gradient of `step` is made then.
    /// Before the push of the slot. Errors: kFailedPrecondition (not bound, or as ReadyWords), kBusy (being bound), the
    /// driver's; then nothing is enqueued.
    [[nodiscard]] Status write_ready(std::uint32_t tensor_index, const std::string& tensor_name, Step step);

private:
    struct Slot {
        bool is_bound = false;
        bool is_changing = false;  ///< asked for, not answered
        ContextRef context = nullptr;
        StreamRef stream = nullptr;
        DeviceAddress ready_word = 0;
    };
    [[nodiscard]] Status check_bound(const Slot& slot, const std::string& tensor_name) const;

    const std::shared_ptr<const CudaDriver> driver_;
    ReadyWords ready_words_;
    std::vector<Slot> slots_;  ///< by tensor index
};

}  // namespace gradsieve::client
