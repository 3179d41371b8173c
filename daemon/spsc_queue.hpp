// A bounded queue from one thread to one other thread, for commands between the daemon's own threads. Never blocks and
// never allocates after construction; a full queue is an ordinary answer. For memory shared with clients see shm/.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace gradsieve::daemon {

template <typename T>
class SpscQueue {
public:
    /// `capacity` is a power of two.
    explicit SpscQueue(std::size_t capacity) : cells_(capacity), mask_(capacity - 1) {}

    /// False if full; then `value` is untouched. Producer thread only.
    [[nodiscard]] bool try_push(T& value) {
        const auto tail = tail_.load(std::memory_order_relaxed);
        // pairs with the release in try_pop: the cell is empty once head has moved past it
        if (tail - head_.load(std::memory_order_acquire) > mask_) return false;
        cells_[tail & mask_] = std::move(value);
        tail_.store(tail + 1, std::memory_order_release);  // pairs with the acquire in try_pop
        return true;
    }
    /// Consumer thread only.
    [[nodiscard]] std::optional<T> try_pop() {
        const auto head = head_.load(std::memory_order_relaxed);
        if (head == tail_.load(std::memory_order_acquire)) return std::nullopt;  // pairs with the release in try_push
        std::optional<T> value(std::move(cells_[head & mask_]));
        cells_[head & mask_] = T{};
        head_.store(head + 1, std::memory_order_release);  // pairs with the acquire in try_push
        return value;
    }
    /// Any thread; a snapshot.
    [[nodiscard]] std::size_t depth() const noexcept {
        return tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
    }
    [[nodiscard]] bool is_empty() const noexcept { return depth() == 0; }

private:
    std::vector<T> cells_;
    std::size_t mask_;
    alignas(64) std::atomic<std::size_t> head_{0};  // written by the consumer
    alignas(64) std::atomic<std::size_t> tail_{0};  // written by the producer
};

}  // namespace gradsieve::daemon
