// Atomic words inside a mapped segment. The one place that turns an offset into an atomic; nothing else in shared
// memory is written by two sides. Any thread; the segment outlives the reference.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradsieve::shm {

using SharedWord32 = std::atomic_ref<std::uint32_t>;
using SharedWord64 = std::atomic_ref<std::uint64_t>;
static_assert(SharedWord32::is_always_lock_free && SharedWord64::is_always_lock_free,
              "a lock would live in one process only");

/// The address of the word at `offset`, which is aligned and inside: it comes from the layout, never from the other
/// side.
template <typename T>
[[nodiscard]] T* word_address(std::span<std::byte> segment, std::uint64_t offset) noexcept {
    return reinterpret_cast<T*>(segment.data() + offset);
}
[[nodiscard]] inline SharedWord32 shared_word32(std::span<std::byte> segment, std::uint64_t offset) noexcept {
    return SharedWord32(*word_address<std::uint32_t>(segment, offset));
}
[[nodiscard]] inline SharedWord64 shared_word64(std::span<std::byte> segment, std::uint64_t offset) noexcept {
    return SharedWord64(*word_address<std::uint64_t>(segment, offset));
}

}  // namespace gradsieve::shm
