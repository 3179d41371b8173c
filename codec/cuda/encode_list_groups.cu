// The list kernels of groups of samples: the usual numbers have code of their own, which keeps them in registers.
#include "codec/cuda/encode_list.cuh"

namespace gradsieve::codec::cuda {
namespace {

template <VarianceSource kSource>
PassKernel pick(unsigned samples, bool is_deferred) {
    switch (samples) {
        case 2: return list_pass<kSource, 2>(is_deferred);
        case 4: return list_pass<kSource, 4>(is_deferred);
        default: return list_pass<kSource, 0>(is_deferred);
    }
}

}  // namespace

PassKernel find_group_list_kernel(VarianceSource source, unsigned samples, bool is_deferred) noexcept {
    if (source == VarianceSource::kGroups) {
        if (samples == 8) return list_pass<VarianceSource::kGroups, 8>(is_deferred);
        return pick<VarianceSource::kGroups>(samples, is_deferred);
    }
    return pick<VarianceSource::kGroupsPooled>(samples, is_deferred);
}

unsigned near_samples(VarianceSource source, std::uint32_t sample_count) noexcept {
    const bool is_of_groups_here = source == VarianceSource::kGroups || source == VarianceSource::kGroupsPooled;
    if (!is_of_groups_here) return sample_count == 1 ? 1 : 0;
    if (sample_count == 2 || sample_count == 4) return sample_count;
    return sample_count == 8 && source == VarianceSource::kGroups ? 8 : 0;
}

}  // namespace gradsieve::codec::cuda
