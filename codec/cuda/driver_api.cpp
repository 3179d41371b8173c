#include "codec/cuda/driver_api.hpp"

#include "codec/cuda/runtime.hpp"

namespace gradsieve::codec::cuda {
namespace {

template <typename Function>
Status find(const char* name, Function& ret_function) {
    void* symbol = nullptr;
    cudaDriverEntryPointQueryResult found{};
    GRADSIEVE_CUDA_TRY(cudaGetDriverEntryPointByVersion(name, &symbol, 12000, cudaEnableDefault, &found),
                       "looking up a function of the driver");
    if (found != cudaDriverEntryPointSuccess || symbol == nullptr)
        return {StatusCode::kUnavailable, std::string("the NVIDIA driver has no ") + name +
                                              ": allowed is a driver for CUDA 12 or later; install a newer one"};
    ret_function = reinterpret_cast<Function>(symbol);
    return {};
}

Result<DriverApi> load() {
    DriverApi api;
    GRADSIEVE_TRY(find("cuMemGetAddressRange", api.cuMemGetAddressRange));
    GRADSIEVE_TRY(find("cuMemGetAllocationGranularity", api.cuMemGetAllocationGranularity));
    GRADSIEVE_TRY(find("cuMemAddressReserve", api.cuMemAddressReserve));
    GRADSIEVE_TRY(find("cuMemAddressFree", api.cuMemAddressFree));
    GRADSIEVE_TRY(find("cuMemCreate", api.cuMemCreate));
    GRADSIEVE_TRY(find("cuMemExportToShareableHandle", api.cuMemExportToShareableHandle));
    GRADSIEVE_TRY(find("cuMemImportFromShareableHandle", api.cuMemImportFromShareableHandle));
    GRADSIEVE_TRY(find("cuMemMap", api.cuMemMap));
    GRADSIEVE_TRY(find("cuMemUnmap", api.cuMemUnmap));
    GRADSIEVE_TRY(find("cuMemRelease", api.cuMemRelease));
    GRADSIEVE_TRY(find("cuMemSetAccess", api.cuMemSetAccess));
    GRADSIEVE_TRY(find("cuGetErrorName", api.cuGetErrorName));
    return api;
}

}  // namespace

Status DriverApi::status_of(CUresult result, const char* doing) const {
    if (result == CUDA_SUCCESS) return {};
    const char* name = nullptr;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
    const auto code = result == CUDA_ERROR_OUT_OF_MEMORY   ? StatusCode::kResourceExhausted
                      : result == CUDA_ERROR_INVALID_VALUE ? StatusCode::kInvalidArgument
                      : result == CUDA_ERROR_NOT_PERMITTED ? StatusCode::kPermissionDenied
                      : result == CUDA_ERROR_NOT_SUPPORTED ? StatusCode::kUnimplemented
                                                           : StatusCode::kUnavailable;
    return {code, std::string(doing) + ": the NVIDIA driver says " + name +
                      ": allowed is memory that its owner still holds; bind it again, or hand in through host memory"};
}

Result<const DriverApi*> driver_api() {
    static const Result<DriverApi> api = load();
    if (!api.is_ok()) return api.error();
    return &*api;
}

}  // namespace gradsieve::codec::cuda
