// The payload kernels compiled for AVX-512; called only where the CPU has it.
#include "codec/payload_kernels.inl"

namespace gradsieve::codec {
const PayloadKernels kPayloadKernelsAvx512 = kKernels;
}  // namespace gradsieve::codec
