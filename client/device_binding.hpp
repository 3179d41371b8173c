// What this process knows of its tensors that lie on a device: which memory and stream each is bound to, and the events
// by which daemon and trainer order their work on it. Talks to the driver, never to the daemon, and never waits.
// Guarded by the core's lock; must not be touched in a forked child. The memory is the program's.
#pragma once

#include "client/bind_batch.hpp"
#include "client/cuda_driver.hpp"
#include "gradsieve/gradsieve.hpp"
#include "shm/message.hpp"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::client {

class DeviceBindings {
public:
    DeviceBindings(std::unique_ptr<const CudaDriver> driver, std::size_t tensor_count);
    DeviceBindings(const DeviceBindings&) = delete;
    DeviceBindings& operator=(const DeviceBindings&) = delete;
    /// Frees the daemon's events, and this side's as well if the daemon said goodbye: until then it may use them.
    ~DeviceBindings();

    [[nodiscard]] const CudaDriver& driver() const noexcept { return *driver_; }

    /// Looks at the buffer and makes what a binding of it needs; binds nothing. Errors: kInvalidArgument (what of the
    /// buffer is wrong), kUnavailable and kResourceExhausted (the driver).
    [[nodiscard]] Result<BindingPlan> plan(std::uint32_t tensor_index, const shm::TensorEntry& tensor,
                                           const DeviceBuffer& buffer);
    /// From here until the answer the tensors of `batch` take no step.
    void on_sent(const BindBatch& batch);
    /// The daemon did what was asked; `done_events` as in BindReply. Errors: the driver's, for its events; those
    /// tensors are then not bound.
    [[nodiscard]] Status on_done(const BindBatch& batch, std::span<const shm::EventHandles> done_events);
    /// The daemon refused: everything is as it was.
    void on_refused(const BindBatch& batch);
    /// No answer came, or none that makes sense: nobody knows, so these tensors count as not bound.
    void on_lost(const BindBatch& batch);
    /// The daemon will not touch anything any more.
    void on_goodbye() noexcept { is_goodbye_ = true; }

    /// Records that the gradient of `step` is made once the stream has come this far. Before the push of the slot.
    /// Errors: kFailedPrecondition (not bound), kBusy (being bound), the driver's.
    [[nodiscard]] Status record_ready(std::uint32_t tensor_index, const std::string& tensor_name, Step step);
    /// Lets what is enqueued on the stream from now on wait for the daemon's work of `step`. Only after its completion
    /// came. Ok without effect if the tensor is not bound. Errors: the driver's.
    [[nodiscard]] Status await_done(std::uint32_t tensor_index, Step step);

private:
    struct EventPair {
        ContextRef context = nullptr;
        std::array<EventRef, shm::kStepParities> events{};
        shm::EventHandles handles{};
    };
    struct Slot {
        bool is_bound = false;
        bool is_changing = false;  ///< asked for, not answered
        StreamRef stream = nullptr;
        std::size_t ready = 0;               ///< which of ready_pairs: that of the stream's context
        EventPair done;                      ///< the daemon's, opened here; context null = none
        std::vector<EventPair> ready_pairs;  ///< one per context that the tensor was ever bound in
    };

    /// The place of the slot's own events for `context`, made if there are none yet.
    [[nodiscard]] Result<std::size_t> find_ready_pair(Slot& slot, ContextRef context);
    [[nodiscard]] Status take_done_events(Slot& slot, ContextRef context, const shm::EventHandles& handles);
    void free_pair(EventPair& pair) noexcept;

    const std::unique_ptr<const CudaDriver> driver_;
    std::vector<Slot> slots_;  ///< by tensor index
    bool is_goodbye_ = false;
};

}  // namespace gradsieve::client
