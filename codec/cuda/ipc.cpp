#include "codec/cuda/ipc.hpp"

#include "codec/cuda/driver_api.hpp"
#include "codec/cuda/mapped_range.hpp"
#include "codec/cuda/runtime.hpp"

#include <cstring>
#include <string>

namespace gradsieve::codec::cuda {
namespace {

Status out_of_range(ByteCount offset, ByteCount bytes, ByteCount whole) {
    return {StatusCode::kInvalidArgument, "device memory: bytes " + std::to_string(offset) + " to " +
                                              std::to_string(offset) + " + " + std::to_string(bytes) +
                                              " of an allocation of " + std::to_string(whole) +
                                              "; allowed is a range inside it; bind memory that you own"};
}

/// Offset + bytes within `whole`, without wrapping.
bool is_inside(ByteCount offset, ByteCount bytes, ByteCount whole) {
    return offset <= whole && bytes <= whole - offset;
}

}  // namespace

/// Memory of one of the two kinds; what is mapped is unmapped in the reverse order.
struct ImportedMemory::Impl {
    int device = 0;
    std::byte* data = nullptr;
    ByteCount size = 0;
    void* ipc_base = nullptr;  ///< of cudaIpcOpenMemHandle
    MappedRange pieces;

    ~Impl() {
        static_cast<void>(cudaSetDevice(device));
        if (ipc_base != nullptr) static_cast<void>(cudaIpcCloseMemHandle(ipc_base));
    }
};

ImportedMemory::ImportedMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImportedMemory::ImportedMemory(ImportedMemory&&) noexcept = default;
ImportedMemory& ImportedMemory::operator=(ImportedMemory&&) noexcept = default;
ImportedMemory::~ImportedMemory() = default;
std::byte* ImportedMemory::data() const noexcept { return impl_->data; }
ByteCount ImportedMemory::size() const noexcept { return impl_->size; }

Result<ImportedMemory> ImportedMemory::open(int device, const IpcHandle& handle, ByteCount offset_bytes,
                                            ByteCount bytes) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(IpcHandle));
    cudaIpcMemHandle_t native{};
    std::memcpy(&native, handle.data(), sizeof(native));
    auto impl = std::make_unique<Impl>();
    impl->device = device;
    GRADSIEVE_CUDA_TRY(cudaIpcOpenMemHandle(&impl->ipc_base, native, cudaIpcMemLazyEnablePeerAccess),
                       "opening another process's device memory");
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    CUdeviceptr base = 0;
    std::size_t whole = 0;
    GRADSIEVE_TRY(
        driver->status_of(driver->cuMemGetAddressRange(&base, &whole, reinterpret_cast<CUdeviceptr>(impl->ipc_base)),
                          "asking for the size of another process's device memory"));
    if (!is_inside(offset_bytes, bytes, whole)) return out_of_range(offset_bytes, bytes, whole);
    impl->data = static_cast<std::byte*>(impl->ipc_base) + offset_bytes;
    impl->size = bytes;
    return ImportedMemory(std::move(impl));
}

namespace {

Status check_pieces(std::span<const MemoryPiece> pieces, ByteCount granularity) {
    for (std::size_t number = 0; number < pieces.size(); ++number) {
        const auto& piece = pieces[number];
        const bool is_first = number == 0;
        const bool is_last = number + 1 == pieces.size();
        const bool is_whole_pages = piece.allocation_bytes > 0 && piece.allocation_bytes % granularity == 0;
        if (!is_whole_pages || piece.allocation_bytes > (ByteCount{1} << 44U) ||
            !is_inside(piece.offset_bytes, piece.bytes, piece.allocation_bytes) ||
            (!is_first && piece.offset_bytes != 0) ||
            (!is_last && piece.offset_bytes + piece.bytes != piece.allocation_bytes))
            return out_of_range(piece.offset_bytes, piece.bytes, piece.allocation_bytes)
                .with_context("piece " + std::to_string(number) + " of " + std::to_string(pieces.size()));
    }
    return {};
}

}  // namespace

Result<ImportedMemory> ImportedMemory::open(int device, std::span<const MemoryPiece> pieces,
                                            std::span<const int> users) {
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    GRADSIEVE_ASSIGN(const auto page_bytes, device_page_bytes(device));
    GRADSIEVE_TRY(check_pieces(pieces, page_bytes));
    auto impl = std::make_unique<Impl>();
    impl->device = device;
    ByteCount reserved_bytes = 0;
    for (const auto& piece : pieces) {
        reserved_bytes += piece.allocation_bytes;
        impl->size += piece.bytes;
    }
    GRADSIEVE_ASSIGN(impl->pieces, MappedRange::reserve(device, reserved_bytes, users));
    for (const auto& piece : pieces) {
        CUmemGenericAllocationHandle handle = 0;
        auto* descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(piece.descriptor));
        GRADSIEVE_TRY(driver->status_of(
            driver->cuMemImportFromShareableHandle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "importing another process's device memory"));
        GRADSIEVE_TRY(impl->pieces.map(handle, piece.allocation_bytes));
    }
    impl->data = impl->pieces.data() + (pieces.empty() ? 0 : pieces.front().offset_bytes);
    return ImportedMemory(std::move(impl));
}

}  // namespace gradsieve::codec::cuda
