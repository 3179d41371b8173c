// The list kernels without groups of samples: no variance, second moments, one gradient.
#include "codec/cuda/encode_list.cuh"

namespace gradsieve::codec::cuda {
namespace {

template <VarianceSource kSource>
KernelHandle pick(unsigned samples) {
    return samples == 1 ? &list_tiles<kSource, 1> : &list_tiles<kSource, 0>;
}

}  // namespace

KernelHandle find_list_kernel(VarianceSource source, unsigned samples) noexcept {
    switch (source) {
        case VarianceSource::kNone: return pick<VarianceSource::kNone>(samples);
        case VarianceSource::kSecondMoment: return pick<VarianceSource::kSecondMoment>(samples);
        case VarianceSource::kSingle: return pick<VarianceSource::kSingle>(samples);
        case VarianceSource::kGroups:
        case VarianceSource::kGroupsPooled: break;
    }
    return find_group_list_kernel(source, samples);
}

}  // namespace gradsieve::codec::cuda
