#include "codec/cuda/gpu_phases.hpp"

#include "codec/phase_memory.hpp"
#include "codec/stages/accumulate.hpp"
#include "codec/stages/momentum.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

ElementCount elements_of(const GpuPhaseDecode& request) { return request.memory->impl().elements; }

bool is_own(const GpuResult& result, const GpuPhaseDevice& device, bool is_first) {
    return result.device < 0 ? is_first : result.device == device.stream->device();
}

void append(const EncodeRequest& request, std::span<const float> numbers, EncodeResult& inout_result) {
    const PayloadPool own;
    append_numbers(numbers, request.payloads != nullptr ? *request.payloads : own, inout_result);
}

/// What a step's phase is about, checked and begun; whether anything of it is to be sent.
Result<bool> open(unsigned phase, const GpuPhaseRequest& request) {
    PhaseMemory::Impl& phases = request.memory->impl();
    GRADSIEVE_TRY(check_phase(phase, request.request, phases));
    open_phase(phase, request.request, phases);
    if (phases.sketch) phases.sketch->leaves_choice = true;
    return !is_waiting(*request.request.pipeline, request.request.step) && request.request.elements > 0;
}

ProjectWork project_work(const EncodeRequest& request, LowRankMemory& inout_memory) {
    prepare_factors({request.in.factor, inout_memory.shape.right_elements()}, inout_memory.shape.rank,
                    request.selection_seed, request.tensor, request.step, inout_memory.factors);
    return {inout_memory.shape, request.out.residual, inout_memory.factors, inout_memory.left};
}

SettleWork settle_work(const EncodeRequest& request, LowRankMemory& inout_memory) {
    SettleWork work{inout_memory.shape, request.out.residual, request.in.residual, {0, 0},
                    inout_memory.left,  inout_memory.right};
    if (has_low_pass(*request.pipeline)) work.low_pass = low_pass_factors(request.pipeline->front, request.rescale);
    return work;
}

InsertWork insert_work(const EncodeRequest& request, SketchMemory& inout_memory) {
    const SketchDraws draws(inout_memory.shape, request.selection_seed, request.tensor, request.step);
    return {inout_memory.shape, draws.key(), request.out.residual, inout_memory.rows};
}

/// The choice alone.
ChooseWork choose_work(SketchMemory& inout_memory) {
    return {
        inout_memory.shape, inout_memory.draws.key(), inout_memory.row_mean, nullptr, nullptr, inout_memory.chosen, {}};
}

/// And the values of what is chosen.
ChooseWork take_work(const EncodeRequest& request, SketchMemory& inout_memory) {
    ChooseWork work = choose_work(inout_memory);
    work.residual = request.out.residual;
    if (is_momentum_masked(*request.pipeline)) work.momentum = request.out.momentum;
    work.ret_values = inout_memory.values;
    return work;
}

/// What nodes sent in the last phase; false: nobody sent anything.
Result<bool> average_last(const GpuPhaseDecode& request) {
    PhaseMemory::Impl& phases = request.memory->impl();
    GRADSIEVE_TRY(close_phases(request.step, phases));
    return phases.low_rank ? phases.low_rank->average_right(request.step, request.contributions)
                           : phases.sketch->average_values(request.step, request.contributions);
}

/// Where no node sent anything: zeros, of which none is touched.
Status clear(const Stream& stream, const GpuPhaseDecode& request, std::span<const GpuResult> results) {
    for (const GpuResult& result : results)
        GRADSIEVE_TRY(fill_bytes(stream, result.data, elements_of(request) * element_bytes(result.type), 0));
    return stream.synchronize();
}

/// Choices that no phase of this node's own has made.
Status close_choices(const GpuPhaseDevice& device, std::span<const GpuPhaseDecode> requests,
                     const std::vector<bool>& is_sent) {
    std::vector<ChooseWork> work;
    std::vector<SketchMemory*> open;
    for (std::size_t number = 0; number < requests.size(); ++number) {
        auto& sketch = requests[number].memory->impl().sketch;
        if (!is_sent[number] || !sketch || !sketch->is_choice_open) continue;
        work.push_back(choose_work(*sketch));
        open.push_back(&*sketch);
    }
    if (work.empty()) return {};
    GRADSIEVE_TRY(device.codecs->sketch.choose(*device.stream, work));
    for (SketchMemory* sketch : open) sketch->is_choice_open = false;
    return {};
}

}  // namespace

Pipeline first_pass(const Pipeline& pipeline, Step step) noexcept {
    Pipeline pass = waiting_pipeline(pipeline);
    // What is kept of an error is known after the second phase only.
    if (!is_waiting(pipeline, step)) pass.front.low_pass = 1;
    return pass;
}

Status finish_first_phases(const Stream& stream, std::span<const GpuPhaseRequest> requests, GpuPhaseCodecs& codecs,
                           std::span<EncodeResult> ret_results) {
    std::vector<ProjectWork> projects;
    std::vector<InsertWork> inserts;
    std::vector<std::size_t> sending;
    for (std::size_t number = 0; number < requests.size(); ++number) {
        GRADSIEVE_ASSIGN(const bool sends, open(0, requests[number]));
        if (!sends || ret_results[number].non_finite) continue;
        PhaseMemory::Impl& phases = requests[number].memory->impl();
        if (phases.low_rank)
            projects.push_back(project_work(requests[number].request, *phases.low_rank));
        else
            inserts.push_back(insert_work(requests[number].request, *phases.sketch));
        sending.push_back(number);
    }
    if (!projects.empty()) GRADSIEVE_TRY(codecs.low_rank.project(stream, projects));
    if (!inserts.empty()) GRADSIEVE_TRY(codecs.sketch.insert(stream, inserts));
    for (const std::size_t number : sending) {
        const PhaseMemory::Impl& phases = requests[number].memory->impl();
        if (phases.low_rank)
            append(requests[number].request, phases.low_rank->left, ret_results[number]);
        else if (std::ranges::any_of(phases.sketch->rows, [](float cell) { return cell != 0.0F; }))
            append(requests[number].request, phases.sketch->rows, ret_results[number]);
    }
    return {};
}

Status encode_second_phases(const Stream& stream, std::span<const GpuPhaseRequest> requests, GpuPhaseCodecs& codecs,
                            std::span<EncodeResult> ret_results) {
    std::vector<SettleWork> settles;
    std::vector<ChooseWork> takes;
    std::vector<FilterWork> filters;
    std::vector<std::size_t> sending;
    for (std::size_t number = 0; number < requests.size(); ++number) {
        const EncodeRequest& request = requests[number].request;
        ret_results[number] = {};
        GRADSIEVE_ASSIGN(const bool is_sending_step, open(1, requests[number]));
        if (!is_sending_step) continue;
        PhaseMemory::Impl& phases = requests[number].memory->impl();
        if (phases.low_rank) {
            settles.push_back(settle_work(request, *phases.low_rank));
            sending.push_back(number);
            continue;
        }
        if (has_low_pass(*request.pipeline))
            filters.push_back({request.out.residual, request.in.residual,
                               low_pass_factors(request.pipeline->front, request.rescale), request.elements});
        if (!phases.sends) continue;
        takes.push_back(take_work(request, *phases.sketch));
        sending.push_back(number);
    }
    if (!settles.empty()) GRADSIEVE_TRY(codecs.low_rank.settle(stream, settles));
    if (!takes.empty()) GRADSIEVE_TRY(codecs.sketch.choose(stream, takes));
    if (!filters.empty()) GRADSIEVE_TRY(codecs.sketch.filter(stream, filters));
    for (const std::size_t number : sending) {
        PhaseMemory::Impl& phases = requests[number].memory->impl();
        if (phases.sketch) phases.sketch->is_choice_open = false;
        append(requests[number].request, phases.low_rank ? phases.low_rank->right : phases.sketch->values,
               ret_results[number]);
    }
    return {};
}

Status decode_last_phases(std::span<const GpuPhaseDevice> devices, std::span<const GpuPhaseDecode> requests,
                          std::span<Result<DecodeResult>> ret_results) {
    std::vector<bool> is_sent(requests.size(), false);
    std::vector<std::uint64_t> digests(requests.size(), 0);
    for (std::size_t number = 0; number < requests.size(); ++number) {
        const auto sent = average_last(requests[number]);
        ret_results[number] = sent.is_ok() ? Result<DecodeResult>(DecodeResult{}) : sent.status();
        is_sent[number] = sent.is_ok() && *sent;
    }
    GRADSIEVE_TRY(close_choices(devices.front(), requests, is_sent));
    for (const GpuPhaseDevice& device : devices) {
        const bool is_first = &device == devices.data();
        std::vector<ExpandWork> expands;
        std::vector<ScatterWork> scatters;
        for (std::size_t number = 0; number < requests.size(); ++number) {
            const GpuPhaseDecode& request = requests[number];
            if (!ret_results[number].is_ok()) continue;
            std::vector<GpuResult> own;
            for (const GpuResult& result : request.results)
                if (is_own(result, device, is_first)) own.push_back(result);
            if (!is_sent[number]) {
                GRADSIEVE_TRY(clear(*device.stream, request, own));
                continue;
            }
            if (own.empty() && !is_first) continue;
            auto* const ret_digest = is_first ? &digests[number] : nullptr;
            const PhaseMemory::Impl& phases = request.memory->impl();
            if (phases.low_rank)
                expands.push_back({phases.low_rank->shape, request.tensor, request.step, phases.low_rank->left,
                                   phases.low_rank->right_mean, std::move(own), ret_digest});
            else
                scatters.push_back({phases.elements, request.tensor, request.step, phases.sketch->chosen,
                                    phases.sketch->value_mean, std::move(own), ret_digest});
        }
        if (!expands.empty()) GRADSIEVE_TRY(device.codecs->low_rank.expand(*device.stream, expands));
        if (!scatters.empty()) GRADSIEVE_TRY(device.codecs->sketch.scatter(*device.stream, scatters));
    }
    for (std::size_t number = 0; number < requests.size(); ++number) {
        if (!is_sent[number]) continue;
        PhaseMemory::Impl& phases = requests[number].memory->impl();
        if (phases.low_rank) phases.low_rank->keep_factor();
        ret_results[number] =
            DecodeResult{digests[number], phases.low_rank ? phases.elements : phases.sketch->chosen.size()};
    }
    return {};
}

}  // namespace gradsieve::codec::cuda
