// The kernels of sketch compiled for AVX2; called only where the CPU has it.
#include "codec/sketch_kernels.inl"

namespace gradsieve::codec {
const SketchKernels kSketchKernelsAvx2 = kKernels;
}  // namespace gradsieve::codec
