// Device memory and events that two processes share: opening what a client exported, and events whose handles it gets.
// Everything imported stays valid until its object goes, even if the exporter dies or frees it. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"

#include <array>
#include <memory>
#include <span>

namespace gradsieve::codec::cuda {

/// cudaIpcMemHandle_t and cudaIpcEventHandle_t as bytes.
using IpcHandle = std::array<std::byte, 64>;

/// A part of one physical allocation, as a descriptor of CUDA's virtual memory management.
struct MemoryPiece {
    int descriptor = -1;  ///< of a whole allocation; stays the caller's
    ByteCount allocation_bytes = 0;
    ByteCount offset_bytes = 0;
    ByteCount bytes = 0;
};

/// A range of another process's device memory, mapped into this one. `device` is where the memory lies.
class ImportedMemory {
public:
    /// The range [offset, offset + bytes) of the allocation behind `handle`. `allocation_bytes` is the exporter's word
    /// and is checked against what was mapped. Errors: kInvalidArgument (out of range), kUnavailable (the exporter is
    /// gone or freed it), kUnimplemented, kPermissionDenied.
    [[nodiscard]] static Result<ImportedMemory> open(int device, const IpcHandle& handle, ByteCount offset_bytes,
                                                     ByteCount bytes);
    /// Consecutive pieces, mapped one after the other: each but the first begins at its allocation's start, each but
    /// the last ends at its end.
    [[nodiscard]] static Result<ImportedMemory> open(int device, std::span<const MemoryPiece> pieces);
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

/// An event that orders streams of two processes. One side records it, then says so; only then may the other wait.
class SharedEvent {
public:
    SharedEvent() = default;  ///< none; only to be assigned to
    /// Ours, for another process to wait for.
    [[nodiscard]] static Result<SharedEvent> make(int device);
    /// Another process's. Errors: kUnavailable (it is gone).
    [[nodiscard]] static Result<SharedEvent> open(int device, const IpcHandle& handle);
    SharedEvent(SharedEvent&& other) noexcept { swap(other); }
    SharedEvent& operator=(SharedEvent&& other) noexcept {
        SharedEvent(std::move(other)).swap(*this);
        return *this;
    }
    ~SharedEvent();

    [[nodiscard]] Result<IpcHandle> handle() const;
    /// Enqueues on `stream`: what follows runs after the event's last record.
    [[nodiscard]] Status wait_on(const Stream& stream) const;
    /// Enqueues on `stream`: the event happens once what stands before it is done.
    [[nodiscard]] Status record_on(const Stream& stream) const;

private:
    void swap(SharedEvent& other) noexcept { std::swap(event_, other.event_), std::swap(device_, other.device_); }
    void* event_ = nullptr;
    int device_ = 0;
};

/// Lets `device` read and write memory of `other` directly. False: the hardware or its topology does not.
[[nodiscard]] Result<bool> enable_peer_access(int device, int other);

}  // namespace gradsieve::codec::cuda
