// Host memory that GPUs copy payloads to, and in which these stay until their last reader lets go: no core copies them
// again, and a GPU can fetch them from there. Page-locked while the pool lives; after it, what is still read is memory
// like any other. One thread takes blocks and ends the pool; any may let a block go, also after the pool's end.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"

#include <cstddef>
#include <memory>

namespace gradsieve::codec::cuda {

/// A block in use.
class HostMirror {
public:
    HostMirror(const HostMirror&) = delete;
    HostMirror& operator=(const HostMirror&) = delete;
    ~HostMirror();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] ByteCount size() const noexcept { return size_; }

private:
    friend class MirrorPool;
    explicit HostMirror(ByteCount size);
    std::byte* data_;
    ByteCount size_;
};

class MirrorPool {
public:
    MirrorPool();
    MirrorPool(const MirrorPool&) = delete;
    MirrorPool& operator=(const MirrorPool&) = delete;
    /// While the GPUs' contexts still exist, and nothing is under way to or from the blocks.
    ~MirrorPool();

    /// A block of at least so many bytes, which goes back to the pool with its last owner. Smaller ones that lie idle
    /// are freed when none fits. Errors: kResourceExhausted, with the limit on locked memory in words; kUnimplemented
    /// (a GPU that finds host memory at other addresses than the host).
    [[nodiscard]] Result<std::shared_ptr<HostMirror>> take(ByteCount bytes);
    /// Whether GPUs can read all of it: it lies in a block.
    [[nodiscard]] bool holds(const std::byte* data, ByteCount bytes) const;
    /// Of all blocks, idle or in use.
    [[nodiscard]] ByteCount bytes() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace gradsieve::codec::cuda
