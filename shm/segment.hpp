// A memfd that is committed, sealed and mapped: the only kind of shared memory here. Never a name in /dev/shm. Any
// thread; the object owns descriptor and mapping.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

#include <memory>
#include <span>
#include <string>

namespace gradsieve::shm {

enum class Access : std::uint8_t { kReadOnly, kReadWrite };
enum class Sharing : std::uint8_t {
    kPrivate,     ///< never leaves this process (codec state): not sealed against writing or growing
    kPeerWrites,  ///< the other process writes too (slabs, rings): size sealed
    kPeerReads,   ///< the other process may only read (results): size sealed, F_SEAL_FUTURE_WRITE
};

class Segment {
public:
    /// Creates, commits (`fallocate`) and seals a memfd of `bytes` (> 0) and maps it. `label` shows in /proc.
    /// Errors: kResourceExhausted (bytes asked, what the system said, which limit to raise).
    [[nodiscard]] static Result<Segment> make(const std::string& label, ByteCount bytes, Sharing sharing);
    /// Maps a descriptor that came from elsewhere after checking its size (exactly `bytes`) and seals.
    /// `fork_visible` false = MADV_DONTFORK. Errors: kCorrupt.
    [[nodiscard]] static Result<Segment> adopt(UniqueFd fd, ByteCount bytes, Access access, bool fork_visible);

    Segment(Segment&&) noexcept;
    Segment& operator=(Segment&&) noexcept;
    ~Segment();

    [[nodiscard]] std::span<std::byte> bytes() noexcept;
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept;
    [[nodiscard]] int fd() const noexcept;
    [[nodiscard]] ByteCount size_bytes() const noexcept;

private:
    struct Impl;
    explicit Segment(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gradsieve::shm
