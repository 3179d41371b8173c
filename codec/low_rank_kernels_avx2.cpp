// The kernels of lowrank compiled for AVX2; called only where the CPU has it.
#include "codec/low_rank_kernels.inl"

namespace gradsieve::codec {
const LowRankKernels kLowRankKernelsAvx2 = kKernels;
}  // namespace gradsieve::codec
