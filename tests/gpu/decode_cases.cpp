#include "decode_cases.hpp"

#include <fmt/format.h>

#include <array>

namespace gradsieve::gpu_check {

using codec::IndexCoderKind;
using codec::QuantizerKind;
using codec::SelectorKind;

namespace {

/// What a step does to a tensor, so that clearing and skipping show.
enum class Sent : std::uint8_t { kAll, kSomeChunks, kOneNode, kNothing };

Sent sent_in(std::size_t place, std::size_t step) {
    constexpr Sent kOrders[3][kDecodeSteps] = {{Sent::kAll, Sent::kNothing, Sent::kAll, Sent::kSomeChunks},
                                               {Sent::kAll, Sent::kSomeChunks, Sent::kOneNode, Sent::kNothing},
                                               {Sent::kAll, Sent::kOneNode, Sent::kAll, Sent::kAll}};
    return kOrders[place % 3][step];
}

void drop_parts(Sent sent, std::vector<NodeStep>& inout_nodes) {
    for (std::size_t node = 0; node < inout_nodes.size(); ++node) {
        auto& chunks = inout_nodes[node].chunks;
        if (sent == Sent::kNothing || (sent == Sent::kOneNode && node != inout_nodes.size() / 2)) chunks.clear();
        if (sent == Sent::kSomeChunks && chunks.size() > 1) chunks.erase(chunks.begin() + (node % 2));
    }
}

}  // namespace

std::vector<codec::NamedPipeline> pipelines_with_coders() {
    std::vector<codec::NamedPipeline> result;
    constexpr std::array kCoders{IndexCoderKind::kAuto, IndexCoderKind::kRice, IndexCoderKind::kBitmap,
                                 IndexCoderKind::kRaw32, IndexCoderKind::kEliasFano};
    for (const auto& named : codec::every_pipeline()) {
        codec::Front front = named.pipeline.front;
        front.is_rotated = false;
        if (!(front == codec::Front{})) continue;  // no payload tells of it
        const bool has_indices =
            named.pipeline.selector.kind != SelectorKind::kAll || named.pipeline.quantizer.kind == QuantizerKind::kPow2;
        for (const IndexCoderKind coder : kCoders) {
            if ((!has_indices || codec::is_keyed(named.pipeline.selector)) && coder != IndexCoderKind::kAuto) continue;
            result.push_back(named);
            result.back().pipeline.index_coder = coder;
            result.back().name = codec::canonical_text(result.back().pipeline, codec::Knobs::kKeep);
            const std::uint32_t bits = codec::code_bits(named.pipeline.quantizer);
            if (coder != IndexCoderKind::kAuto || bits < 2 || bits > 8) continue;
            result.push_back(result.back());
            result.back().pipeline.has_entropy = true;
            result.back().name = codec::canonical_text(result.back().pipeline, codec::Knobs::kKeep);
        }
    }
    return result;
}

DecodeCase make_case(const codec::NamedPipeline& named, ElementCount elements, std::size_t nodes, std::size_t place,
                     const std::vector<float>& pool) {
    DecodeCase one;
    one.name = fmt::format("{} of {} from {} nodes", named.name, elements, nodes);
    one.elements = elements;
    for (std::size_t step = 0; step < kDecodeSteps; ++step) {
        std::vector<NodeStep> parts(nodes);
        for (std::size_t node = 0; node < nodes; ++node) {
            const std::size_t offset = 7 * place + 31 * node + 101 * step;
            const std::array<const float*, 2> samples = {pool.data() + offset, pool.data() + offset + 1000};
            parts[node].factor = static_cast<float>(node + 1) / static_cast<float>(nodes * (nodes + 1) / 2);
            parts[node].chunks = encode_on_cpu(named.pipeline, elements, samples, node + 1);
        }
        drop_parts(sent_in(place, step), parts);
        one.steps.push_back(std::move(parts));
    }
    return one;
}

}  // namespace gradsieve::gpu_check
