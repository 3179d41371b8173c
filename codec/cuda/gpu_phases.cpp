#include "codec/cuda/gpu_phases.hpp"

#include "codec/accumulate.hpp"
#include "codec/phase_memory.hpp"

namespace gradsieve::codec::cuda {
namespace {

ElementCount elements_of(const GpuPhaseDecode& request) { return request.memory->impl().elements; }

bool is_own(const GpuResult& result, const GpuPhaseDevice& device, bool is_first) {
    return result.device < 0 ? is_first : result.device == device.stream->device();
}

void append(const EncodeRequest& request, std::span<const float> factor, EncodeResult& inout_result) {
    const PayloadPool own;
    append_numbers(factor, request.payloads != nullptr ? *request.payloads : own, inout_result);
}

Result<bool> average_right(const GpuPhaseDecode& request) {
    PhaseMemory::Impl& phases = request.memory->impl();
    GRADSIEVE_TRY(close_phases(request.step, phases));
    return phases.low_rank->average_right(request.step, request.contributions);
}

/// Where no node sent anything: zeros, of which none is touched.
Status clear(const Stream& stream, const GpuPhaseDecode& request, std::span<const GpuResult> results) {
    for (const GpuResult& result : results)
        GRADSIEVE_TRY(fill_bytes(stream, result.data, elements_of(request) * element_bytes(result.type), 0));
    return stream.synchronize();
}

}  // namespace

Pipeline first_pass(const Pipeline& pipeline, Step step) noexcept {
    Pipeline pass = waiting_pipeline(pipeline);
    // What is kept of an error is known after the second phase only.
    if (!is_waiting(pipeline, step)) pass.front.low_pass = 1;
    return pass;
}

Status finish_first_phases(const Stream& stream, std::span<const GpuPhaseRequest> requests, GpuLowRank& low_rank,
                           std::span<EncodeResult> ret_results) {
    std::vector<ProjectWork> work;
    std::vector<std::size_t> sending;
    for (std::size_t number = 0; number < requests.size(); ++number) {
        const EncodeRequest& request = requests[number].request;
        PhaseMemory::Impl& phases = requests[number].memory->impl();
        GRADSIEVE_TRY(check_phase(0, request, phases));
        open_phase(0, request, phases);
        LowRankMemory& memory = *phases.low_rank;
        const bool is_silent = is_waiting(*request.pipeline, request.step) || request.elements == 0;
        if (is_silent || ret_results[number].non_finite) continue;
        prepare_factors({request.in.factor, memory.shape.right_elements()}, memory.shape.rank, request.selection_seed,
                        request.tensor, request.step, memory.factors);
        work.push_back({memory.shape, request.out.residual, memory.factors, memory.left});
        sending.push_back(number);
    }
    if (work.empty()) return {};
    GRADSIEVE_TRY(low_rank.project(stream, work));
    for (const std::size_t number : sending)
        append(requests[number].request, requests[number].memory->impl().low_rank->left, ret_results[number]);
    return {};
}

Status encode_second_phases(const Stream& stream, std::span<const GpuPhaseRequest> requests, GpuLowRank& low_rank,
                            std::span<EncodeResult> ret_results) {
    std::vector<SettleWork> work;
    std::vector<std::size_t> sending;
    for (std::size_t number = 0; number < requests.size(); ++number) {
        const EncodeRequest& request = requests[number].request;
        PhaseMemory::Impl& phases = requests[number].memory->impl();
        GRADSIEVE_TRY(check_phase(1, request, phases));
        open_phase(1, request, phases);
        LowRankMemory& memory = *phases.low_rank;
        ret_results[number] = {};
        if (is_waiting(*request.pipeline, request.step) || request.elements == 0) continue;
        SettleWork one{memory.shape, request.out.residual, request.in.residual, {0, 0}, memory.left, memory.right};
        if (has_low_pass(*request.pipeline)) one.low_pass = low_pass_factors(request.pipeline->front, request.rescale);
        work.push_back(one);
        sending.push_back(number);
    }
    if (work.empty()) return {};
    GRADSIEVE_TRY(low_rank.settle(stream, work));
    for (const std::size_t number : sending)
        append(requests[number].request, requests[number].memory->impl().low_rank->right, ret_results[number]);
    return {};
}

Status decode_last_phases(std::span<const GpuPhaseDevice> devices, std::span<const GpuPhaseDecode> requests,
                          std::span<Result<DecodeResult>> ret_results) {
    std::vector<bool> is_sent(requests.size(), false);
    std::vector<std::uint64_t> digests(requests.size(), 0);
    for (std::size_t number = 0; number < requests.size(); ++number) {
        const GpuPhaseDecode& request = requests[number];
        const auto sent = average_right(request);
        ret_results[number] = sent.is_ok() ? Result<DecodeResult>(DecodeResult{}) : sent.status();
        is_sent[number] = sent.is_ok() && *sent;
    }
    for (const GpuPhaseDevice& device : devices) {
        const bool is_first = &device == devices.data();
        std::vector<ExpandWork> work;
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
            const LowRankMemory& memory = *request.memory->impl().low_rank;
            work.push_back({memory.shape, request.tensor, request.step, memory.left, memory.right_mean, std::move(own),
                            is_first ? &digests[number] : nullptr});
        }
        if (!work.empty()) GRADSIEVE_TRY(device.low_rank->expand(*device.stream, work));
    }
    for (std::size_t number = 0; number < requests.size(); ++number) {
        if (!is_sent[number]) continue;
        ret_results[number] = DecodeResult{digests[number], elements_of(requests[number])};
        requests[number].memory->impl().low_rank->keep_factor();
    }
    return {};
}

}  // namespace gradsieve::codec::cuda
