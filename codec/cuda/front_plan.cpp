#include "codec/cuda/front_plan.hpp"

#include "codec/local_clip.hpp"
#include "codec/low_pass.hpp"
#include "codec/stages/momentum.hpp"

namespace gradsieve::codec::cuda {

FrontPlan front_plan_of(const EncodeRequest& request, const GpuEncodePart& part) noexcept {
    const Pipeline& pipeline = *request.pipeline;
    FrontPlan plan{};
    if (has_low_pass(pipeline)) {
        const LowPassFactors factors = low_pass_factors(pipeline.front, request.rescale);
        plan.keep = factors.keep;
        plan.take = factors.take;
    }
    if (!has_momentum(pipeline)) return plan;
    const MomentumSamples own = momentum_samples(pipeline.front, request.rescale, part.in.momentum, part.out.momentum);
    plan.momentum_in = part.in.momentum;
    plan.momentum_out = part.out.momentum;
    plan.factor = momentum_factor(pipeline.front, request.rescale);
    plan.first_sample = static_cast<std::uint32_t>(own.count);
    plan.sample_count = static_cast<std::uint32_t>(request.samples.size());
    plan.is_masked = is_momentum_masked(pipeline) ? 1 : 0;
    if (has_local_clip(pipeline)) plan.most_norm = most_clipped_norm(pipeline.front.clip, request.node_count);
    return plan;
}

void add_momentum_samples(const EncodeRequest& request, const GpuEncodePart& part, StagedSamples& inout_staged) {
    if (!has_momentum(*request.pipeline)) return;
    const MomentumSamples own =
        momentum_samples(request.pipeline->front, request.rescale, part.in.momentum, part.out.momentum);
    for (std::size_t sample = 0; sample < own.count; ++sample) {
        StagedSamples::Source source;
        source.data = reinterpret_cast<const std::byte*>(own.samples[sample]);
        source.weight = own.weights[sample];
        source.type = static_cast<std::uint32_t>(ElementType::kF32);
        inout_staged.add_sample(source);
    }
}

}  // namespace gradsieve::codec::cuda
