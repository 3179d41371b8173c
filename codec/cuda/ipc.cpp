#include "codec/cuda/ipc.hpp"

#include "codec/cuda/driver_api.hpp"
#include "codec/cuda/mapped_range.hpp"
#include "codec/cuda/runtime.hpp"

#include <cstring>
#include <string>
#include <vector>

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
    /// A handle as one device has opened it.
    struct Opening {
        int device = 0;
        void* base = nullptr;
    };
    std::vector<Opening> openings;  ///< the first on the device where the memory lies; none: pieces
    ByteCount offset = 0;           ///< from the openings' or the pieces' beginning
    ByteCount size = 0;
    MappedRange pieces;

    ~Impl() {
        for (auto opening = openings.rbegin(); opening != openings.rend(); ++opening) {
            static_cast<void>(cudaSetDevice(opening->device));
            static_cast<void>(cudaIpcCloseMemHandle(opening->base));
        }
    }
    cudaError_t open_on(int device, const cudaIpcMemHandle_t& handle) {
        if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return error;
        void* base = nullptr;
        const cudaError_t error = cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess);
        if (error == cudaSuccess) openings.push_back({device, base});
        return error;
    }
};

ImportedMemory::ImportedMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImportedMemory::ImportedMemory(ImportedMemory&&) noexcept = default;
ImportedMemory& ImportedMemory::operator=(ImportedMemory&&) noexcept = default;
ImportedMemory::~ImportedMemory() = default;
std::byte* ImportedMemory::data() const noexcept {
    auto* const base = impl_->openings.empty() ? impl_->pieces.data() : impl_->openings.front().base;
    return static_cast<std::byte*>(base) + impl_->offset;
}
std::byte* ImportedMemory::data_on(int device) const noexcept {
    if (impl_->openings.empty()) return impl_->pieces.is_open_to(device) ? data() : nullptr;
    for (const auto& opening : impl_->openings)
        if (opening.device == device) return static_cast<std::byte*>(opening.base) + impl_->offset;
    return nullptr;
}
ByteCount ImportedMemory::size() const noexcept { return impl_->size; }

Result<ImportedMemory> ImportedMemory::open(int device, const IpcHandle& handle, ByteCount offset_bytes,
                                            ByteCount bytes, std::span<const int> users) {
    static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(IpcHandle));
    cudaIpcMemHandle_t native{};
    std::memcpy(&native, handle.data(), sizeof(native));
    auto impl = std::make_unique<Impl>();
    GRADSIEVE_CUDA_TRY(impl->open_on(device, native), "opening another process's device memory");
    GRADSIEVE_ASSIGN(const auto* driver, driver_api());
    CUdeviceptr base = 0;
    std::size_t whole = 0;
    GRADSIEVE_TRY(driver->status_of(
        driver->cuMemGetAddressRange(&base, &whole, reinterpret_cast<CUdeviceptr>(impl->openings.front().base)),
        "asking for the size of another process's device memory"));
    if (!is_inside(offset_bytes, bytes, whole)) return out_of_range(offset_bytes, bytes, whole);
    impl->offset = offset_bytes;
    impl->size = bytes;
    for (const int user : users) {
        if (user == device) continue;
        int can_access = 0;
        cudaError_t error = cudaDeviceCanAccessPeer(&can_access, user, device);
        if (error == cudaSuccess && can_access != 0) error = impl->open_on(user, native);
        if (error != cudaSuccess)
            static_cast<void>(cudaGetLastError());  // whatever keeps this device out: it gets copies
    }
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
    impl->offset = pieces.empty() ? 0 : pieces.front().offset_bytes;
    return ImportedMemory(std::move(impl));
}

}  // namespace gradsieve::codec::cuda
