// A kernel that was launched to begin early (launch.hpp) has its blocks in place while the kernel before it ends, so
// that what lies between two kernels, some 3 us, is not waited for. Device code only.
#pragma once

#include <cuda_runtime_api.h>

namespace gradsieve::codec::cuda {

/// In each kernel that may be launched so, before it reads or writes memory that others see: waits until what the
/// kernels before it wrote is there, and lets the next one's blocks come. Every thread. Without meaning in a kernel
/// that was launched as usual.
__device__ inline void begin_kernel() {
#if !defined(GRADSIEVE_EMULATED_CUDA) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace gradsieve::codec::cuda
