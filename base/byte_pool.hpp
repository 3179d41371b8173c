// Memory of payloads and frames, used again from step to step: fresh memory costs a page fault for every 4 KiB, as much
// as coding does. Bytes give their memory back wherever their last owner lets go (a send queue's thread, as a rule).
// Pools and bytes may be used on any thread and outlive each other; one short lock per block taken or given back.
#pragma once

#include "base/bytes.hpp"
#include "base/shared_view.hpp"

#include <algorithm>
#include <memory>

namespace gradsieve {

class PooledBytes;

/// A handle; copies share the memory.
class BytePool {
public:
    BytePool();

    /// `size` bytes that are not initialised; byte number `aligned_at` lies on a 64-byte boundary. kSlackBytes behind
    /// them are writable too.
    [[nodiscard]] PooledBytes take(std::size_t size_bytes, std::size_t aligned_at = 0) const;
    /// Memory that nobody uses now. Blocks that lay idle through some hundred `take`s are freed.
    [[nodiscard]] std::size_t idle_bytes() const;

    static constexpr std::size_t kSlackBytes = 16;

    struct State;

private:
    std::shared_ptr<State> state_;
};

/// Bytes with one owner; empty after a move.
class PooledBytes {
public:
    PooledBytes() = default;
    /// Bytes inside a block that others hold parts of too; `block` keeps them alive.
    [[nodiscard]] static PooledBytes part_of(std::shared_ptr<void> block, std::byte* data, std::size_t size_bytes);
    PooledBytes(PooledBytes&& other) noexcept;
    PooledBytes& operator=(PooledBytes&& other) noexcept;
    ~PooledBytes();

    [[nodiscard]] std::byte* data() noexcept { return data_; }
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] ByteView view() const noexcept { return {data_, size_}; }
    operator ByteView() const noexcept { return view(); }  // NOLINT: read where bytes are read
    [[nodiscard]] bool operator==(const PooledBytes& other) const noexcept {
        return std::ranges::equal(view(), other.view());
    }

private:
    friend class BytePool;
    friend SharedView share(PooledBytes bytes);
    void give_back() noexcept;

    std::shared_ptr<void> owner_;  ///< the pool's state, or the block that these are a part of
    std::byte* block_ = nullptr;   ///< of the pool; null for a part
    unsigned size_class_ = 0;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The bytes for many readers; their memory goes back with the last of them.
[[nodiscard]] SharedView share(PooledBytes bytes);

}  // namespace gradsieve
