#include "daemon/hosted_tensor.hpp"

#include "codec/difference.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::daemon {

std::size_t HostedTensor::live_generation(Step committed) const noexcept {
    const auto is_live = [&](const Generation& generation) {
        return generation.is_valid && generation.stamp <= committed;
    };
    if (!is_live(generations[0])) return 1;
    if (!is_live(generations[1])) return 0;
    return generations[1].stamp > generations[0].stamp ? 1 : 0;
}

Status HostedTensor::check_scale(const Generation& in, double scale) const {
    if (!codec::has_delta(pipeline) || in.scale == 0 || in.scale == scale) return {};
    return {StatusCode::kInvalidArgument,
            "tensor '" + name + "': scale " + std::to_string(scale) + " after steps of scale " +
                std::to_string(in.scale) +
                ": with delta all nodes go on from what they have sent, in one unit: hand in gradients of one scale "
                "(undo the loss scale, leave the learning rate to the optimizer), or take a codec without delta"};
}

void HostedTensor::start_reuse(std::span<const exchange::Member> members, PeerIndex self) {
    if (!codec::has_reuse(pipeline)) return;
    held.emplace(pipeline, elements, members.size());
    const auto own = std::ranges::find(members, self, &exchange::Member::peer);
    own_node = static_cast<std::size_t>(own - members.begin());
}

void HostedTensor::note_reuse(const CodecTask& task) {
    totals.reuse_share = task.reuse_share;
    if (!task.has_records) return;
    ++totals.reused_steps;
    for (const auto& chunk : task.held.chunks)
        totals.reuse_saved_bytes += chunk.bytes.size() - std::min(chunk.bytes.size(), codec::kReuseBytes);
}

ElementCount CodecTask::work_elements() const noexcept {
    if (kind == Kind::kScopePhase) return phase_elements;
    const bool is_part = tensor->shard && (kind == Kind::kEncode) == (step_phase == 1);
    const auto elements = is_part ? tensor->shard->elements() : tensor->elements;
    const auto passes = kind == Kind::kEncode ? samples.size() : payloads.size();
    return elements * (passes + 1);
}

void CodecTask::measure_residual() {
    if (wants_residual_norm && encoded->is_ok() && request.out.residual != nullptr)
        residual_norm = std::sqrt(codec::residual_square_sum({request.out.residual, tensor->elements}));
}

void CodecTask::sign_gradient() {
    if (request.pipeline->measures_similarity && encoded->is_ok() && !(*encoded)->non_finite)
        signature.emplace(request.tensor, request.samples, request.weights, request.elements);
}

void CodecTask::run_phase(codec::EncodeWorkspace& workspace) {
    if (phase == codec::ScopePhase::kCut) {
        next_hint = codec::cut_scope(terms, cut_members);
        return;
    }
    encoded.emplace(codec::encode_member(phase, terms, request, *tensor->member, workspace));
    if (phase == codec::ScopePhase::kObserve) sign_gradient();
    if (phase == codec::ScopePhase::kSettle) measure_residual();
}

Result<codec::EncodeResult> CodecTask::encode(codec::EncodeWorkspace& workspace) {
    if (tensor->phases) return codec::encode_phase(step_phase, request, *tensor->phases, workspace);
    if (tensor->shard && step_phase == 1) return tensor->shard->encode_part(request, *tensor->down, workspace);
    return codec::encode_tensor(request, workspace);
}

Result<codec::DecodeResult> CodecTask::decode(std::span<const codec::Contribution> contributions) {
    if (codec::has_delta(tensor->pipeline)) {
        if (keeps_state) codec::keep_state(tensor->pipeline, tensor->elements, request.in, request.out);
        return codec::decode_differences(step, contributions, request.in.average, request.out.average, *tensor->result);
    }
    if (is_last_phase()) {
        if (tensor->phases) return codec::decode_last_phase(step, contributions, *tensor->phases, *tensor->result);
        return decode_average(contributions);
    }
    GRADSIEVE_TRY(tensor->shard ? tensor->shard->decode_part(step, contributions)
                                : codec::decode_first_phase({step, tensor->id, request.selection_seed}, contributions,
                                                            *tensor->phases));
    return codec::DecodeResult{};
}

void CodecTask::run_encode(codec::EncodeWorkspace& workspace) {
    if (tensor->held) return encode_or_reuse(workspace);
    encoded.emplace(encode(workspace));
    if (is_last_phase()) measure_residual();
    if (step_phase == 0) sign_gradient();
}

void CodecTask::encode_or_reuse(codec::EncodeWorkspace& workspace) {
    codec::Signature gradient(request.tensor, request.samples, request.weights, request.elements);
    auto outcome = codec::encode_or_reuse(request, held, gradient, workspace);
    if (!outcome.is_ok()) {
        encoded.emplace(outcome.error());
        return;
    }
    take_reuse(std::move(*outcome), std::move(gradient));
    measure_residual();
}

void CodecTask::take_reuse(codec::ReuseEncode outcome, std::optional<codec::Signature> gradient) {
    has_records = outcome.has_records;
    reuse_share = outcome.share;
    signature = std::move(gradient);
    encoded.emplace(std::move(outcome.encoded));
    if ((*encoded)->non_finite) signature.reset();
}

Result<std::span<const codec::Contribution>> CodecTask::resolve(std::span<const codec::Contribution> contributions) {
    if (!tensor->held) return contributions;
    return tensor->held->take(step, contributions);
}

Result<codec::DecodeResult> CodecTask::decode_average(std::span<const codec::Contribution> contributions) {
    GRADSIEVE_ASSIGN(const auto resolved, resolve(contributions));
    return tensor->result->decode_average(step, resolved);
}

void CodecTask::run_decode() {
    std::vector<std::vector<codec::ChunkView>> views(payloads.size());
    std::vector<codec::Contribution> contributions(payloads.size());
    for (std::size_t node = 0; node < payloads.size(); ++node) {
        for (const auto& [chunk, view] : payloads[node].chunks) views[node].push_back({chunk, view.bytes()});
        contributions[node] = {factors[node], views[node]};
    }
    decoded.emplace(decode(contributions));
}

void CodecTask::run(codec::EncodeWorkspace& workspace) {
    const SteadyClock clock;
    const auto run_begin = clock.now();
    if (began == TimePoint{}) began = run_begin;
    if (kind == Kind::kEncode) {
        run_encode(workspace);
    } else if (kind == Kind::kScopePhase) {
        run_phase(workspace);
    } else {
        run_decode();
    }
    ended = clock.now();
    took += ended - run_begin;
}

}  // namespace gradsieve::daemon
