// The driver's functions that the runtime does not offer, found when first asked for: the program links no libcuda and
// starts without one. Never included outside this folder.
#pragma once

#include "base/status.hpp"

#include <cuda.h>

namespace gradsieve::codec::cuda {

struct DriverApi {
    decltype(&::cuMemGetAddressRange) cuMemGetAddressRange = nullptr;
    decltype(&::cuMemGetAllocationGranularity) cuMemGetAllocationGranularity = nullptr;
    decltype(&::cuMemAddressReserve) cuMemAddressReserve = nullptr;
    decltype(&::cuMemAddressFree) cuMemAddressFree = nullptr;
    decltype(&::cuMemCreate) cuMemCreate = nullptr;
    decltype(&::cuMemExportToShareableHandle) cuMemExportToShareableHandle = nullptr;
    decltype(&::cuMemImportFromShareableHandle) cuMemImportFromShareableHandle = nullptr;
    decltype(&::cuMemMap) cuMemMap = nullptr;
    decltype(&::cuMemUnmap) cuMemUnmap = nullptr;
    decltype(&::cuMemRelease) cuMemRelease = nullptr;
    decltype(&::cuMemSetAccess) cuMemSetAccess = nullptr;
    decltype(&::cuGetErrorName) cuGetErrorName = nullptr;

    [[nodiscard]] Status status_of(CUresult result, const char* doing) const;
};

/// Errors: kUnavailable (no driver, or one without a function; named). The same object for the process's whole life.
[[nodiscard]] Result<const DriverApi*> driver_api();

}  // namespace gradsieve::codec::cuda
