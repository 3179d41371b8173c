#include "codec/cuda/gpu_difference.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/state_arrays.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

/// Of the whole tensor, or of each device's part.
struct Pieces {
    std::vector<DeviceRange> ranges;
    std::vector<GpuDecodeBase> bases;
};
Pieces pieces_of(const GpuEncodeRequest& gpu_request) {
    const EncodeRequest& request = gpu_request.request;
    Pieces pieces;
    for (const GpuEncodePart& part : gpu_request.parts) {
        pieces.ranges.push_back(part.range);
        pieces.bases.push_back({part.in.residual, part.out.residual});
    }
    if (gpu_request.parts.empty()) pieces.bases.push_back({request.in.residual, request.out.residual});
    return pieces;
}

Status copy(const Stream& stream, const float* from, float* to, ElementCount elements) {
    if (elements == 0) return {};
    GRADSIEVE_TRY(stream.make_current());
    return status_of(cudaMemcpyAsync(to, from, elements * sizeof(float), cudaMemcpyDefault, handle_of(stream)),
                     "copying state that stays as it is");
}

}  // namespace

Status SentFollower::open() {
    if (decoder_ != nullptr) return {};
    GRADSIEVE_ASSIGN(decoder_, GpuDecoder::make(devices_, limits_));
    return {};
}

/// Nothing was sent.
Status SentFollower::keep(const GpuEncodeRequest& request) const {
    const auto [ranges, bases] = pieces_of(request);
    for (std::size_t place = 0; place < bases.size(); ++place)
        GRADSIEVE_TRY(copy(decoder_->stream(place), bases[place].in, bases[place].out,
                           ranges.empty() ? request.request.elements : ranges[place].elements));
    return {};
}

Status SentFollower::follow(std::span<const GpuEncodeRequest> requests, std::span<EncodeResult> inout_results) {
    std::vector<Own> all;
    std::vector<std::size_t> silent;
    for (std::size_t number = 0; number < requests.size(); ++number) {
        const EncodeRequest& request = requests[number].request;
        if (!has_delta(*request.pipeline) || request.elements == 0 || inout_results[number].non_finite) continue;
        if (inout_results[number].chunks.empty()) {
            silent.push_back(number);
            continue;
        }
        auto [ranges, bases] = pieces_of(requests[number]);
        all.push_back({number, {}, {}, std::move(ranges), std::move(bases)});
        for (const ChunkPayload& chunk : inout_results[number].chunks)
            all.back().views.push_back({chunk.chunk_index, chunk.bytes});
    }
    if (all.empty() && silent.empty()) return {};
    GRADSIEVE_TRY(open());
    for (const std::size_t number : silent) GRADSIEVE_TRY(keep(requests[number]));
    std::vector<GpuDecodeRequest> asked;
    for (Own& own : all) {
        const EncodeRequest& request = requests[own.request].request;
        own.contribution = {1.0F, own.views};
        own.bad_sum = request.elements;
        asked.push_back({request.tensor,
                         request.step,
                         request.elements,
                         {&own.contribution, 1},
                         {},
                         nullptr,
                         own.ranges,
                         own.bases,
                         &own.bad_sum});
    }
    std::vector<Result<DecodeResult>> answers(asked.size(), DecodeResult{});
    GRADSIEVE_TRY(decoder_->begin(asked));
    GRADSIEVE_TRY(decoder_->finish(answers));  // waits for the copies as well
    for (std::size_t number = 0; number < all.size(); ++number) {
        EncodeResult& result = inout_results[all[number].request];
        if (answers[number].is_ok()) continue;
        if (all[number].bad_sum == requests[all[number].request].request.elements)
            return answers[number].status().with_context("tensor " + std::to_string(all[number].request) +
                                                         " of the batch, its own payload");
        result.non_finite = NonFinite{0, all[number].bad_sum};
        result.chunks.clear();
        result.kept_elements = 0;
    }
    return {};
}

Status keep_state(const Stream& stream, const Pipeline& pipeline, ElementCount elements, const StateView& in,
                  const StateView& out) {
    for (const StateArray& array : state_arrays()) {
        if (!array.is_of_encoding || !array.is_kept(pipeline)) continue;
        const float* const from = in.*array.values;
        float* const to = out.*array.values;
        if (array.size == nullptr)
            GRADSIEVE_TRY(copy(stream, from, to, elements));
        else
            std::copy_n(from, size_of(array, pipeline, elements), to);
    }
    return {};
}

}  // namespace gradsieve::codec::cuda
