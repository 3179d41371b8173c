// The payload kernels compiled for AVX2; called only where the CPU has it.
#include "codec/payload_kernels.inl"

namespace gradsieve::codec {
const PayloadKernels kPayloadKernelsAvx2 = kKernels;
}  // namespace gradsieve::codec
