#include "exchange/cost_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace gradsieve::exchange {
namespace {

/// Pieces that the backward pass hands over one after the other. PyTorch's buckets of 25 MB are about as many of a
/// model of ResNet-50's size.
constexpr unsigned kPieces = 16;
constexpr std::size_t kMostStages = 7;

double link_seconds(const LinkFacts& link, double bytes) {
    return 8 * bytes * link.wire_per_byte / link.bits_per_second;
}
double host_seconds(const LinkFacts& link, double bytes) { return bytes * link.host_seconds_per_byte; }

/// When the last piece has left the last stage, if each comes out of the backward pass in its turn and every stage
/// takes `stages[s]` seconds for one, in order; counted from the step's begin.
double end_of_pipe(const StepFacts& step, std::span<const double> stages) {
    const double backward = step.step_seconds * step.backward_share;
    std::array<double, kMostStages> free{};
    double left = 0;
    for (unsigned piece = 0; piece < kPieces; ++piece) {
        left = step.step_seconds - backward + backward * (piece + 1) / kPieces;
        for (std::size_t stage = 0; stage < stages.size(); ++stage) {
            left = std::max(left, free[stage]) + stages[stage];
            free[stage] = left;
        }
    }
    return left;
}

/// When the first piece comes out of the backward pass.
double first_piece(const StepFacts& step) {
    return step.step_seconds - step.step_seconds * step.backward_share * (1 - 1.0 / kPieces);
}

void settle(const StepFacts& step, double end, StepCost& inout_cost) {
    inout_cost.exposed_seconds = std::max(0.0, end - step.step_seconds);
    inout_cost.step_seconds = step.step_seconds + inout_cost.exposed_seconds;
}

}  // namespace

StepCost gather_cost(const StepFacts& step, const LinkFacts& link, const CodecFacts& codec) {
    const auto elements = static_cast<double>(step.elements);
    const double others = step.nodes - 1.0;
    StepCost cost;
    cost.sent_bytes = others * elements * codec.bytes_per_element;
    cost.link_seconds = link_seconds(link, cost.sent_bytes);
    const double host = host_seconds(link, cost.sent_bytes);
    const double encode = elements * codec.encode_seconds_per_element;
    const double decode = elements * codec.decode_seconds_per_element * step.nodes;
    const double latency = others > 0 ? link.latency_seconds : 0;
    cost.exchange_seconds = encode + host + cost.link_seconds + latency + decode;
    const double stages[] = {encode / kPieces, host / kPieces, cost.link_seconds / kPieces, decode / kPieces};
    // The same workers encode and decode: from the first piece on, they have both to do.
    settle(step, std::max(end_of_pipe(step, stages), first_piece(step) + encode + decode) + latency, cost);
    return cost;
}

StepCost sharded_cost(const StepFacts& step, const LinkFacts& link, const CodecFacts& codec, const CodecFacts& down) {
    const auto elements = static_cast<double>(step.elements);
    // Chunks are whole: the step waits for a node that owns the most.
    const double chunks = std::ceil(elements / static_cast<double>(kChunkElements));
    const double most = std::min(elements, std::ceil(chunks / step.nodes) * static_cast<double>(kChunkElements));
    const double others = step.nodes - 1.0;
    StepCost cost;
    cost.sent_bytes = others * elements / step.nodes * (codec.bytes_per_element + down.bytes_per_element);
    // What it gets of its chunks comes in by the same link at least as long as what it sends of the others goes out.
    const double up_bytes = others > 0 ? std::max(elements - most, others * most) * codec.bytes_per_element : 0;
    const double down_bytes = others * most * down.bytes_per_element;
    cost.link_seconds = link_seconds(link, up_bytes + down_bytes);
    const double encode = elements * codec.encode_seconds_per_element;
    const double average =
        step.nodes * most * codec.decode_seconds_per_element + most * down.encode_seconds_per_element;
    const double decode = elements * down.decode_seconds_per_element;
    const double latency = others > 0 ? 2 * link.latency_seconds : 0;
    cost.exchange_seconds =
        encode + average + decode + host_seconds(link, up_bytes + down_bytes) + cost.link_seconds + latency;
    const double stages[] = {
        encode / kPieces,  host_seconds(link, up_bytes) / kPieces,   link_seconds(link, up_bytes) / kPieces,
        average / kPieces, host_seconds(link, down_bytes) / kPieces, link_seconds(link, down_bytes) / kPieces,
        decode / kPieces};
    // One link for both ways, and the same workers for all coding.
    const double coded = first_piece(step) + encode + average + decode;
    const double sent = first_piece(step) + (encode + average + decode) / kPieces + cost.link_seconds;
    settle(step, std::max({end_of_pipe(step, stages), coded, sent}) + latency, cost);
    return cost;
}

StepCost ring_cost(const StepFacts& step, const LinkFacts& link, double bytes_per_element,
                   double sum_seconds_per_byte) {
    const double others = step.nodes - 1.0;
    StepCost cost;
    cost.sent_bytes = 2 * others / step.nodes * static_cast<double>(step.elements) * bytes_per_element;
    cost.link_seconds = link_seconds(link, cost.sent_bytes);
    const double host = host_seconds(link, cost.sent_bytes) + cost.sent_bytes / 2 * sum_seconds_per_byte;
    const double messages = 2 * others * link.latency_seconds;
    cost.exchange_seconds = host + cost.link_seconds + kPieces * messages;
    const double stages[] = {host / kPieces, cost.link_seconds / kPieces + messages};
    settle(step, end_of_pipe(step, stages), cost);
    return cost;
}

}  // namespace gradsieve::exchange
