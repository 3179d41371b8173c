// Device memory of another process, mapped into this one. What is imported stays valid until its object goes, even if
// the exporter dies or frees it. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"

#include <array>
#include <memory>
#include <span>

namespace gradsieve::codec::cuda {

/// cudaIpcMemHandle_t as bytes.
using IpcHandle = std::array<std::byte, 64>;

/// A part of one physical allocation, as a descriptor of CUDA's virtual memory management.
struct MemoryPiece {
    int descriptor = -1;  ///< of a whole allocation; stays the caller's
    ByteCount allocation_bytes = 0;
    ByteCount offset_bytes = 0;
    ByteCount bytes = 0;
};

/// A range of another process's device memory, mapped into this one. `device` is where the memory lies; other devices
/// use what is opened here as PeerAccess lets them.
class ImportedMemory {
public:
    /// The range [offset, offset + bytes) of the allocation behind `handle`. `allocation_bytes` is the exporter's word
    /// and is checked against what was mapped. Errors: kInvalidArgument (out of range), kUnavailable (the exporter is
    /// gone or freed it), kUnimplemented, kPermissionDenied.
    [[nodiscard]] static Result<ImportedMemory> open(int device, const IpcHandle& handle, ByteCount offset_bytes,
                                                     ByteCount bytes);
    /// Consecutive pieces, mapped one after the other: each but the first begins at its allocation's start, each but
    /// the last ends at its end. `users`: other devices that may use it where they can reach it, since this kind of
    /// memory is opened to each by itself.
    [[nodiscard]] static Result<ImportedMemory> open(int device, std::span<const MemoryPiece> pieces,
                                                     std::span<const int> users = {});
    ImportedMemory(ImportedMemory&&) noexcept;
    ImportedMemory& operator=(ImportedMemory&&) noexcept;
    ~ImportedMemory();

    [[nodiscard]] std::byte* data() const noexcept;
    [[nodiscard]] ByteCount size() const noexcept;

private:
    struct Impl;
    explicit ImportedMemory(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gradsieve::codec::cuda
