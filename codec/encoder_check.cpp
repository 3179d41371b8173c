#include "codec/encoder_check.hpp"

#include "codec/state_arrays.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace gradsieve::codec {
namespace {

/// c and c * c must both be ordinary fp32 numbers.
constexpr float kLargestRescale = 0x1p60F;
constexpr float kSmallestRescale = 0x1p-60F;
/// Sample and moment arrays: far above ranks x micro-batches of any host, small enough for the scratch of one block.
constexpr std::size_t kMostSamples = 65536;
/// Chunk indices are 32 bits wide.
constexpr ElementCount kMostElements = kChunkElements << 32U;

Status invalid(std::string text) { return {StatusCode::kInvalidArgument, std::move(text)}; }

Status check_arrays(const EncodeRequest& request) {
    const std::size_t count = request.samples.size();
    if (count == 0 || count > kMostSamples) {
        return invalid("samples: " + std::to_string(count) + " arrays; allowed are 1 to " +
                       std::to_string(kMostSamples) + "; hand in one array per local rank and micro-batch");
    }
    if (request.weights.size() != count) {
        return invalid("weights: " + std::to_string(request.weights.size()) + " for " + std::to_string(count) +
                       " samples; allowed is one per sample; pass as many weights as samples");
    }
    for (std::size_t sample = 0; sample < count; ++sample) {
        const float weight = request.weights[sample];
        if (!std::isfinite(weight) || weight < 0) {
            return invalid("weight of sample " + std::to_string(sample) + ": " + std::to_string(weight) +
                           "; allowed is a finite number >= 0; pass the sample's share of the mean");
        }
    }
    if (request.elements == 0) return {};
    const auto is_null = [](const float* array) { return array == nullptr; };
    if (std::ranges::any_of(request.samples, is_null) || std::ranges::any_of(request.second_moments, is_null)) {
        return invalid("samples or second moments: a null array for " + std::to_string(request.elements) +
                       " elements; allowed are readable arrays only; pass every array");
    }
    return {};
}

Status check_state(const EncodeRequest& request) {
    if (request.elements == 0) return {};
    for (const StateArray& array : state_arrays()) {
        const bool is_there = request.in.*array.values != nullptr && request.out.*array.values != nullptr;
        if (is_there || !array.is_of_encoding || !array.is_kept(*request.pipeline)) continue;
        return invalid(
            std::string(array.name) + ": null, though the codec '" + canonical_text(*request.pipeline, Knobs::kKeep) +
            "' keeps one; allowed are two generations of " + std::to_string(request.elements) + " elements; pass both");
    }
    return {};
}

}  // namespace

Status check_encode_request(const EncodeRequest& request) {
    if (request.pipeline == nullptr) {
        return invalid("pipeline: null; allowed is a parsed codec that outlives the call; pass one");
    }
    if (request.elements > kMostElements) {
        return invalid("elements: " + std::to_string(request.elements) + "; allowed are at most " +
                       std::to_string(kMostElements) + "; split the tensor");
    }
    GRADSIEVE_TRY(check_arrays(request));
    if (!(request.rescale >= kSmallestRescale && request.rescale <= kLargestRescale)) {
        return invalid("rescale: " + std::to_string(request.rescale) +
                       "; allowed is 2^-60 to 2^60; pass new scale over old scale, 1 if it did not change");
    }
    if (has_delta(*request.pipeline) && request.rescale != 1.0F)
        return invalid("rescale: " + std::to_string(request.rescale) +
                       " with delta: allowed is 1, since what all nodes have sent is in one unit; hand in gradients "
                       "of one scale");
    if (request.node_count == 0)
        return invalid("node_count: 0; allowed is 1 or more; say how many nodes' gradients are averaged");
    if (!request.second_moments.empty() && request.batch_samples == 0) {
        return invalid(
            "batch_samples: 0 with second moments; allowed is 1 or more; say how many training samples the step has");
    }
    return check_state(request);
}

}  // namespace gradsieve::codec
