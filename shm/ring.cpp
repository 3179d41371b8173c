#include "shm/ring.hpp"

#include <cstring>

namespace gradsieve::shm {
namespace {

std::byte* cell_at(std::span<std::byte> segment, const RingPlace& place, std::uint64_t index) noexcept {
    const auto slot = index & (place.capacity - 1U);
    return segment.data() + place.cells + slot * place.cell_bytes;
}

}  // namespace

RingProducer::RingProducer(std::span<std::byte> segment, const RingPlace& place) noexcept
    : segment_(segment), place_(place) {}

RingAnswer RingProducer::try_push(std::span<const std::byte> cell) noexcept {
    if (head_ - known_tail_ >= place_.capacity) {
        // Pairs with the release in RingConsumer::try_pop: its copy of the cell is over before we overwrite it.
        const auto tail = shared_word64(segment_, place_.tail_word).load(std::memory_order_acquire);
        if (head_ - tail > place_.capacity) return RingAnswer::kCorrupt;
        known_tail_ = tail;
        if (head_ - tail == place_.capacity) return RingAnswer::kWouldBlock;
    }
    std::memcpy(cell_at(segment_, place_, head_), cell.data(), place_.cell_bytes);
    ++head_;
    // Release part: pairs with the acquire in RingConsumer::try_pop, so the cell (and every slab byte written before)
    // is seen with the index. Sequentially consistent, because the doorbells ask "is the other end asleep?" next and
    // that load must not pass this store: pairs with RingConsumer::has_cell, see docs/shared-memory.md, "Doorbells".
    shared_word64(segment_, place_.head_word).store(head_, std::memory_order_seq_cst);
    return RingAnswer::kDone;
}

RingConsumer::RingConsumer(std::span<std::byte> segment, const RingPlace& place) noexcept
    : segment_(segment), place_(place) {}

RingAnswer RingConsumer::try_pop(std::span<std::byte> ret_cell) noexcept {
    const auto tail = tail_.load(std::memory_order_relaxed);  // our own store
    // Pairs with the store in RingProducer::try_push.
    const auto head = shared_word64(segment_, place_.head_word).load(std::memory_order_acquire);
    if (head == tail) return RingAnswer::kWouldBlock;
    if (head - tail > place_.capacity) return RingAnswer::kCorrupt;
    std::memcpy(ret_cell.data(), cell_at(segment_, place_, tail), place_.cell_bytes);
    tail_.store(tail + 1, std::memory_order_relaxed);  // read by has_cell of other threads, which only hint
    // Pairs with the acquire in RingProducer::try_push.
    shared_word64(segment_, place_.tail_word).store(tail + 1, std::memory_order_release);
    return RingAnswer::kDone;
}

bool RingConsumer::has_cell() const noexcept {
    // Sequentially consistent: comes after the store that announces sleep; pairs with RingProducer::try_push.
    return shared_word64(segment_, place_.head_word).load(std::memory_order_seq_cst) !=
           tail_.load(std::memory_order_relaxed);
}

}  // namespace gradsieve::shm
