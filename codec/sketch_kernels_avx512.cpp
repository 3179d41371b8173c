// The kernels of sketch compiled for AVX-512; called only where the CPU has it.
#include "codec/sketch_kernels.inl"

namespace gradsieve::codec {
const SketchKernels kSketchKernelsAvx512 = kKernels;
}  // namespace gradsieve::codec
