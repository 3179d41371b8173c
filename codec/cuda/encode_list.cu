// The list kernels without groups of samples: no variance, second moments, one gradient.
#include "codec/cuda/encode_list.cuh"

namespace gradsieve::codec::cuda {
namespace {

template <VarianceSource kSource>
PassKernel pick(unsigned samples, bool is_deferred) {
    return samples == 1 ? list_pass<kSource, 1>(is_deferred) : list_pass<kSource, 0>(is_deferred);
}

}  // namespace

PassKernel find_list_kernel(VarianceSource source, unsigned samples, bool is_deferred) noexcept {
    switch (source) {
        case VarianceSource::kNone: return pick<VarianceSource::kNone>(samples, is_deferred);
        case VarianceSource::kSecondMoment: return pick<VarianceSource::kSecondMoment>(samples, is_deferred);
        case VarianceSource::kSingle: return pick<VarianceSource::kSingle>(samples, is_deferred);
        case VarianceSource::kGroups:
        case VarianceSource::kGroupsPooled: break;
    }
    return find_group_list_kernel(source, samples, is_deferred);
}

}  // namespace gradsieve::codec::cuda
