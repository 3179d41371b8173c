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

/// A range of another process's device memory, mapped into this one. `device` is where the memory lies. Kernels of
/// another device reach it only if that is one of the `users`, at an address of its own: what a handle opened for one
/// device ended in an illegal access from another, on two H200s that reach each other's memory.
class ImportedMemory {
public:
    /// The range [offset, offset + bytes) of the allocation behind `handle`. `allocation_bytes` is the exporter's word
    /// and is checked against what was mapped. Errors: kInvalidArgument (out of range), kUnavailable (the exporter is
    /// gone or freed it), kUnimplemented, kPermissionDenied.
    /// A user that cannot reach it is no error: see data_on.
    [[nodiscard]] static Result<ImportedMemory> open(int device, const IpcHandle& handle, ByteCount offset_bytes,
                                                     ByteCount bytes, std::span<const int> users = {});
    /// Consecutive pieces, mapped one after the other: each but the first begins at its allocation's start, each but
    /// the last ends at its end.
    [[nodiscard]] static Result<ImportedMemory> open(int device, std::span<const MemoryPiece> pieces,
                                                     std::span<const int> users = {});
    ImportedMemory(ImportedMemory&&) noexcept;
    ImportedMemory& operator=(ImportedMemory&&) noexcept;
    ~ImportedMemory();

    /// For kernels of the device where the memory lies, and for copies.
    [[nodiscard]] std::byte* data() const noexcept;
    /// For kernels of that device; null: they do not reach it.
    [[nodiscard]] std::byte* data_on(int device) const noexcept;
    [[nodiscard]] ByteCount size() const noexcept;

private:
    struct Impl;
    explicit ImportedMemory(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gradsieve::codec::cuda
