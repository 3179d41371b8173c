// The words in which this process's GPUs tell the daemon that a gradient is made: their pages are made known to the
// driver at the first binding, and a stream writes them behind the work that made the gradient. Never waits for a GPU.
// Guarded by the core's lock; must not be touched in a forked child. The memory is the session's.
#pragma once

#include "base/id.hpp"
#include "client/cuda_driver.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gradsieve::client {

class ReadyWords {
public:
    /// `words`: one per tensor. `memory` keeps them mapped.
    ReadyWords(std::shared_ptr<const CudaDriver> driver, std::span<std::uint32_t> words,
               std::shared_ptr<const void> memory);
    ReadyWords(const ReadyWords&) = delete;
    ReadyWords& operator=(const ReadyWords&) = delete;
    /// Takes the pages back from the driver if everything was written that `write` enqueued. Otherwise a GPU may write
    /// there at any time: the pages then stay known to the driver, and mapped, until the process ends.
    ~ReadyWords();

    /// Where the device of `context`, which is current, finds the word. Makes the pages known to the driver the first
    /// time. Errors: kFailedPrecondition (it cannot do that: what to do), the driver's.
    [[nodiscard]] Result<DeviceAddress> address_of(ContextRef context, std::uint32_t tensor_index);
    /// Enqueues the write of `step` to the tensor's word at `address`. The stream's context is current. Allocates
    /// nothing unless it fails. Errors: as `address_of`; then nothing is enqueued.
    [[nodiscard]] Status write(StreamRef stream, DeviceAddress address, std::uint32_t tensor_index, Step step);

private:
    /// A link of the list of what is kept until the process ends: made beforehand, so that keeping cannot fail.
    struct Kept {
        std::shared_ptr<const void> memory;
        Kept* next = nullptr;
    };
    [[nodiscard]] bool is_write_pending() const noexcept;
    static void keep(std::unique_ptr<Kept> kept) noexcept;

    const std::shared_ptr<const CudaDriver> driver_;
    const std::span<std::uint32_t> words_;
    std::unique_ptr<Kept> memory_;
    std::vector<std::uint32_t> enqueued_;  ///< the last value for each word
    ContextRef context_ = nullptr;         ///< in which the pages were registered; null: they are not
};

}  // namespace gradsieve::client
