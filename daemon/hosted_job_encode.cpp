// What is encoded when a job's action asks for it: what the local ranks handed in, with the state's generations around
// it.
#include "codec/stages/accumulate.hpp"
#include "daemon/hosted_job.hpp"

namespace gradsieve::daemon {

namespace {

constexpr Step kResidualNormEvery = 64;

/// Weights of one rank's slices within the rank: by training samples where all are known, else equal.
std::vector<float> slice_weights(const RankInput& input, float rank_weight) {
    std::vector<std::uint32_t> counts(input.sample_count);
    input.session->memory->slice_samples(input.tensor_index, counts);
    std::uint64_t total = 0;
    bool is_known = true;
    for (const auto count : counts) {
        total += count;
        is_known = is_known && count > 0;
    }
    std::vector<float> weights;
    for (const auto count : counts) {
        const double share =
            is_known ? static_cast<double>(count) / static_cast<double>(total) : 1.0 / input.sample_count;
        weights.push_back(static_cast<float>(share * static_cast<double>(rank_weight)));
    }
    return weights;
}

const float* sample_of(const RankInput& input, std::uint32_t sample) {
    if (const auto& buffer = input.session->gpu_buffers[input.tensor_index])
        return static_cast<const float*>(buffer->slice(sample));
    return input.session->memory->slice(input.tensor_index, sample);
}

const float* second_moment_of(const RankInput& input) {
    const auto& buffer = input.session->gpu_buffers[input.tensor_index];
    if (!buffer) return input.session->memory->second_moment(input.tensor_index);
    return buffer->second_moment ? reinterpret_cast<const float*>(buffer->second_moment->data()) : nullptr;
}

}  // namespace

Result<std::unique_ptr<CodecTask>> HostedJob::make_encode_task(HostedTensor& tensor, Step step) {
    auto task = std::make_unique<CodecTask>();
    task->kind = CodecTask::Kind::kEncode;
    task->job_hash = exchange::job_hash(key());
    task->tensor = &tensor;
    task->step = step;
    task->scale = tensor.inputs.front().scale;
    bool has_second_moments = true;
    bool knows_batch = true;
    std::uint64_t batch_samples = 0;
    const float rank_weight = static_cast<float>(1.0 / static_cast<double>(tensor.inputs.size()));
    for (const auto& input : tensor.inputs) {
        if (input.scale != task->scale)
            return Status(StatusCode::kInvalidArgument,
                          "tensor '" + tensor.name + "': scale " + std::to_string(input.scale) + " on rank " +
                              std::to_string(input.session->rank) + ", " + std::to_string(task->scale) +
                              " on another local rank: hand in one scale on all ranks of a node");
        for (std::uint32_t sample = 0; sample < input.sample_count; ++sample)
            task->samples.push_back(sample_of(input, sample));
        for (const auto weight : slice_weights(input, rank_weight)) task->weights.push_back(weight);
        const auto* second_moment = second_moment_of(input);
        has_second_moments = has_second_moments && second_moment != nullptr;
        task->second_moments.push_back(second_moment);
        knows_batch = knows_batch && input.batch_samples > 0;
        batch_samples += input.batch_samples;
    }
    if (!has_second_moments || !knows_batch) task->second_moments.clear();

    const auto live = tensor.live_generation(groups_[tensor.group].committed);
    const auto& in = tensor.generations[live];
    auto& out = tensor.generations[1 - live];
    GRADSIEVE_TRY(tensor.check_scale(in, task->scale));
    invalidate(tensor, 1 - live);
    task->out_generation = 1 - live;
    task->wants_residual_norm = step % kResidualNormEvery == 0 && !codec::has_delta(tensor.pipeline);
    auto& request = task->request;
    request.pipeline = &tensor.pipeline;
    request.tensor = tensor.id;
    request.step = step;
    request.elements = tensor.elements;
    request.samples = task->samples;
    request.weights = task->weights;
    request.second_moments = task->second_moments;
    request.batch_samples = knows_batch ? batch_samples : 0;
    request.rescale = in.scale == 0 ? 1.0F : static_cast<float>(task->scale / in.scale);
    request.node_count = static_cast<std::uint32_t>(std::max<std::size_t>(1, members_.size()));
    request.random_seed = random_seed_;
    request.selection_seed = selection_seed_;
    request.selection_hint = &tensor.selection_hint;
    request.payloads = &payloads_;
    request.in = in.arrays;
    request.out = out.arrays;
    if (tensor.held) task->held = tensor.held->of(tensor.own_node);
    return task;
}

void HostedJob::act(exchange::EncodeTensor& action, TimePoint now) {
    auto& tensor = tensors_[action.tensor];
    if (trace_) trace_->on_encode_asked(action.tensor, action.step);
    if (action.phase == 0 && (is_held(tensor) || is_draining(tensor))) return deferred_.push_back(action);
    // At a step that sends nothing there is nothing to select.
    if (tensor.scope != nullptr && !codec::is_waiting(tensor.pipeline, action.step))
        return encode_member(tensor, action.step, now);
    auto task = make_encode_task(tensor, action.step);
    if (!task.is_ok()) return machine_.on_encode_failed(action.tensor, action.step, task.error(), now);
    (*task)->step_phase = action.phase;
    clear_stale(tensor, (*task)->out_generation);
    dispatch(std::move(*task), now);
}

}  // namespace gradsieve::daemon
