// Memory of payloads, used again from step to step: fresh memory costs a page fault for every 4 KiB, as much as coding
// does. A payload gives its memory back wherever its last owner lets go (a send queue's thread, as a rule). Pools and
// payloads may be used on any thread and outlive each other; one short lock per payload taken or given back.
#pragma once

#include "base/bytes.hpp"
#include "base/shared_view.hpp"

#include <algorithm>
#include <memory>

namespace gradsieve::codec {

class PayloadBytes;

/// A handle; copies share the memory.
class PayloadPool {
public:
    PayloadPool();

    /// `size` bytes that are not initialised; byte number `aligned_at` lies on a 64-byte boundary. kSlackBytes behind
    /// them are writable too.
    [[nodiscard]] PayloadBytes take(std::size_t size_bytes, std::size_t aligned_at = 0) const;
    /// Memory that no payload uses now. Blocks that lay idle through some hundred `take`s are freed.
    [[nodiscard]] std::size_t idle_bytes() const;

    static constexpr std::size_t kSlackBytes = 16;

    struct State;

private:
    std::shared_ptr<State> state_;
};

/// One payload's bytes, owned; empty after a move.
class PayloadBytes {
public:
    PayloadBytes() = default;
    PayloadBytes(PayloadBytes&& other) noexcept;
    PayloadBytes& operator=(PayloadBytes&& other) noexcept;
    ~PayloadBytes();

    [[nodiscard]] std::byte* data() noexcept { return data_; }
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] ByteView view() const noexcept { return {data_, size_}; }
    operator ByteView() const noexcept { return view(); }  // NOLINT: payloads are read where bytes are read
    [[nodiscard]] bool operator==(const PayloadBytes& other) const noexcept {
        return std::ranges::equal(view(), other.view());
    }

private:
    friend class PayloadPool;
    void give_back() noexcept;

    std::shared_ptr<PayloadPool::State> pool_;
    std::byte* block_ = nullptr;
    unsigned size_class_ = 0;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// The payload for many readers; its memory goes back with the last of them.
[[nodiscard]] SharedView share(PayloadBytes payload);

}  // namespace gradsieve::codec
