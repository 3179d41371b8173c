// Both ends of one attached session's memory: the control segment (header, two one-writer rings, doorbell words, ready
// words) and the gradient segment (slabs). The daemon makes it and passes descriptors; the client adopts them.
// Everything the other side can write is checked on each use. Each end is used by one thread at a time.
#pragma once

#include "base/clock.hpp"
#include "shm/message.hpp"
#include "shm/segment.hpp"

#include <memory>
#include <span>
#include <vector>

namespace gradsieve::shm {

/// Bytes that `tensors` need (for limits, before anything is made). Errors: kInvalidArgument on overflow.
[[nodiscard]] Result<ByteCount> session_bytes_bound(std::span<const TensorEntry> tensors);

/// The daemon's end. Conductor thread only, except `slice` and friends, which codec workers read.
class DaemonSession {
public:
    [[nodiscard]] static Result<DaemonSession> make(const std::string& label, std::span<const TensorEntry> tensors);
    DaemonSession(DaemonSession&&) noexcept;
    DaemonSession& operator=(DaemonSession&&) noexcept;
    ~DaemonSession();

    [[nodiscard]] int control_fd() const noexcept;
    [[nodiscard]] int gradient_fd() const noexcept;
    [[nodiscard]] ByteCount control_bytes() const noexcept;
    [[nodiscard]] ByteCount gradient_bytes() const noexcept;

    /// Next submission, copied out and checked: its kind, and where the kind uses them tensor index, step (above 0),
    /// sample count and scale. False if there is none. Errors: kCorrupt (ring indices or a field make no sense): the
    /// session is to be ended; every later call says the same.
    [[nodiscard]] Result<bool> try_pop(Submission& ret_submission);
    /// Errors: kResourceExhausted (the client has not read `capacity` completions: it broke the protocol).
    [[nodiscard]] Status push(const Completion& completion);
    /// Wakes the client's waiters if any announced sleep; once per batch of pushes.
    void ring_client() noexcept;
    /// The consumer is about to sleep (true) or awake (false). After announcing sleep, look at the ring once more.
    void announce_sleep(bool is_asleep) noexcept;
    [[nodiscard]] bool has_submission() const noexcept;
    /// The low 32 bits of the step whose gradient the client's GPU made last (0 before the first): a hand-in of a
    /// tensor on a device is made once this is its step's. Any value may stand here, and it is read anew each time.
    [[nodiscard]] std::uint32_t ready_word(std::uint32_t tensor_index) const noexcept;

    /// Null for a tensor on a device, as is its second moment.
    [[nodiscard]] const float* slice(std::uint32_t tensor_index, std::uint32_t sample_index) const noexcept;
    [[nodiscard]] const float* second_moment(std::uint32_t tensor_index) const noexcept;  ///< null if not registered
    /// Training samples behind each slice, as the client wrote them (all 0 = unknown); `ret_counts` has sample_count
    /// cells.
    void slice_samples(std::uint32_t tensor_index, std::span<std::uint32_t> ret_counts) const noexcept;

private:
    struct Impl;
    explicit DaemonSession(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// One read-only result area per job and node.
class ResultArea {
public:
    [[nodiscard]] static Result<ResultArea> make(const std::string& label,
                                                 std::span<const ElementCount> tensor_elements);
    ResultArea(ResultArea&&) noexcept;
    ResultArea& operator=(ResultArea&&) noexcept;
    ~ResultArea();
    [[nodiscard]] float* tensor(std::uint32_t index) noexcept;
    [[nodiscard]] std::uint64_t offset_bytes(std::uint32_t index) const noexcept;
    [[nodiscard]] int fd() const noexcept;
    [[nodiscard]] ByteCount size_bytes() const noexcept;

private:
    struct Impl;
    explicit ResultArea(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// The client's end: see client/. Any of its threads, under the client's lock.
class ClientSession {
public:
    /// Checks versions, header mark, sizes and seals. Errors: kUnavailable (not ready yet), kVersionMismatch, kCorrupt.
    [[nodiscard]] static Result<ClientSession> adopt(std::span<const TensorEntry> tensors, const AttachReply& reply,
                                                     std::vector<UniqueFd> descriptors);
    ClientSession(ClientSession&&) noexcept;
    ClientSession& operator=(ClientSession&&) noexcept;
    ~ClientSession();

    /// Slices, second moment and result are empty for a tensor on a device.
    [[nodiscard]] std::span<float> slice(std::uint32_t tensor_index, std::uint32_t sample_index) noexcept;
    [[nodiscard]] std::span<float> second_moment(std::uint32_t tensor_index) noexcept;
    void set_slice_samples(std::uint32_t tensor_index, std::span<const std::uint32_t> counts) noexcept;
    [[nodiscard]] std::span<const float> result(std::uint32_t tensor_index) const noexcept;
    /// One word per tensor, for the GPU to write: the low 32 bits of the step once its gradient is made. Mapped as long
    /// as this lives.
    [[nodiscard]] std::span<std::uint32_t> ready_words() noexcept;

    /// Errors: kBusy (ring full). Rings the daemon's doorbell if it announced sleep.
    [[nodiscard]] Status push(const Submission& submission);
    /// Next completion, copied out; false if there is none. A ring that makes no sense gives one last completion,
    /// kJobEnded with kCorrupt and the reason, and nothing more.
    [[nodiscard]] bool try_pop(Completion& ret_completion);
    /// Sleeps until a completion is there or `deadline` passes. True if there is one. Several threads may wait at once,
    /// without the client's lock, while one other pushes and pops.
    [[nodiscard]] bool wait_for_completion(TimePoint deadline);
    /// The number of rings so far. With several waiting threads: take it under the lock, pop what is there, look at
    /// your own state, then wait with it; a completion that another thread pops in between ends the wait (false) at its
    /// ring.
    [[nodiscard]] std::uint32_t ticket() const noexcept;
    /// Sleeps until a completion is there, the daemon rang since `ticket_seen`, or `deadline`.
    [[nodiscard]] bool wait_for_completion(TimePoint deadline, std::uint32_t ticket_seen);

private:
    struct Impl;
    explicit ClientSession(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gradsieve::shm
