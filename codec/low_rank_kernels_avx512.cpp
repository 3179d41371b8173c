// The kernels of lowrank compiled for AVX-512; called only where the CPU has it.
#include "codec/low_rank_kernels.inl"

namespace gradsieve::codec {
const LowRankKernels kLowRankKernelsAvx512 = kKernels;
}  // namespace gradsieve::codec
