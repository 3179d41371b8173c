// One direction of a session: a ring of fixed cells with one writer and one reader, in different processes that do not
// trust each other. Each end keeps its own index in its own memory and only publishes it; what the other end publishes
// is checked before use, and a cell is copied out before anybody looks at it. Never blocks, never allocates.
#pragma once

#include "shm/shared_word.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradsieve::shm {

/// Where a ring lies in its segment; from the layout, trusted.
struct RingPlace {
    std::uint64_t head_word = 0;  ///< u64, cells ever pushed; written by the producer
    std::uint64_t tail_word = 0;  ///< u64, cells ever popped; written by the consumer
    std::uint64_t cells = 0;      ///< offset of the first cell
    std::uint32_t cell_bytes = 0;
    std::uint32_t capacity = 0;  ///< cells, a power of two
};

enum class RingAnswer : std::uint8_t {
    kDone,
    kWouldBlock,  ///< push: full; pop: empty
    kCorrupt,     ///< the other end's index makes no sense: stop using the ring
};

/// Pushes; one thread at a time.
class RingProducer {
public:
    RingProducer(std::span<std::byte> segment, const RingPlace& place) noexcept;
    /// `cell`: exactly cell_bytes.
    [[nodiscard]] RingAnswer try_push(std::span<const std::byte> cell) noexcept;

private:
    std::span<std::byte> segment_;
    const RingPlace place_;
    std::uint64_t head_ = 0;
    std::uint64_t known_tail_ = 0;  ///< as last seen; never ahead of the truth
};

/// Pops; one thread at a time, while others may ask `has_cell`.
class RingConsumer {
public:
    RingConsumer(std::span<std::byte> segment, const RingPlace& place) noexcept;
    /// Copies the next cell out once. `ret_cell`: exactly cell_bytes; untouched unless kDone.
    [[nodiscard]] RingAnswer try_pop(std::span<std::byte> ret_cell) noexcept;
    /// True if the producer published something that is not popped yet, sense or nonsense.
    [[nodiscard]] bool has_cell() const noexcept;

private:
    std::span<std::byte> segment_;
    const RingPlace place_;
    std::atomic<std::uint64_t> tail_{0};  ///< written by the popping thread only
};

}  // namespace gradsieve::shm
