#include "codec/reuse.hpp"

#include "codec/payload.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace gradsieve::codec {
namespace {

constexpr std::uint8_t kReuseVersion = 5;

Status refuse(const Status& status, std::size_t node, std::uint32_t chunk) {
    return status.with_context("contribution " + std::to_string(node) + ": chunk " + std::to_string(chunk));
}

}  // namespace

void build_reuse(Step step, std::byte* ret_bytes) noexcept {
    ret_bytes[0] = std::byte{kReuseVersion};
    ret_bytes[1] = std::byte{kReuseForm};
    for (std::size_t byte = 0; byte < sizeof(step); ++byte)
        ret_bytes[2 + byte] = static_cast<std::byte>(step >> (8 * byte));
}

bool is_reuse(ByteView payload) noexcept { return payload.size() >= 2 && payload[1] == std::byte{kReuseForm}; }

Result<Step> parse_reuse(ByteView payload) {
    ByteReader reader(payload);
    const auto version = reader.read<std::uint8_t>();
    const auto form = reader.read<std::uint8_t>();
    const auto step = reader.read<std::uint64_t>();
    if (!reader.is_ok() || payload.size() != kReuseBytes)
        return corrupt_payload("that stands for an earlier one, of bytes", payload.size(), std::to_string(kReuseBytes));
    if (version != kReuseVersion)
        return corrupt_payload("that stands for an earlier one, of version", version, std::to_string(kReuseVersion));
    if (form != kReuseForm) return corrupt_payload("form", form, std::to_string(kReuseForm));
    return Step{step};
}

ByteCount reuse_bytes(const Pipeline& pipeline, ElementCount elements, std::size_t nodes) noexcept {
    constexpr ByteCount kGenerations = 2;
    const ElementCount whole = elements / kChunkElements;
    const ElementCount rest = elements % kChunkElements;
    ByteCount payload = whole * (most_payload_bytes(pipeline, kChunkElements) + sizeof(Bytes) + sizeof(ChunkView));
    if (rest > 0) payload += most_payload_bytes(pipeline, rest) + sizeof(Bytes) + sizeof(ChunkView);
    return kGenerations * nodes * payload;
}

HeldPayloads::HeldPayloads(const Pipeline& pipeline, ElementCount elements, std::size_t nodes)
    : pipeline_(pipeline), elements_(elements), nodes_(nodes) {}

HeldView HeldPayloads::of(std::size_t node) const noexcept {
    if (node >= nodes_.size()) return {};
    return {nodes_[node].held.step, nodes_[node].held.chunks};
}

Status HeldPayloads::resolve(std::size_t node, const Contribution& contribution) {
    const Payload& held = nodes_[node].held;
    const auto& chunks = contribution.chunks;
    for (std::size_t at = 0; at < chunks.size(); ++at) {
        const std::uint32_t number = chunks[at].chunk_index;
        if (!is_reuse(chunks[at].bytes))
            return refuse(corrupt_payload("beside one that stands for an earlier one, form",
                                          chunks[at].bytes.size() < 2 ? 0U : static_cast<unsigned>(chunks[at].bytes[1]),
                                          std::to_string(kReuseForm) + " for all chunks of a tensor, or for none"),
                          node, number);
        const auto step = parse_reuse(chunks[at].bytes);
        if (!step.is_ok()) return refuse(step.error(), node, number);
        if (held.step == 0 || *step != held.step)
            return refuse(corrupt_payload(
                              "that stands for the one of step", *step,
                              held.step == 0 ? std::string("none: the node has sent none since the start")
                                             : "step " + std::to_string(held.step) + ", of which its last one is held"),
                          node, number);
        if (at >= held.chunks.size() || held.chunks[at].chunk_index != number)
            return refuse(corrupt_payload("that stands for one of chunk", number, "the chunks that step's had"), node,
                          number);
    }
    if (chunks.size() != held.chunks.size())
        return refuse(corrupt_payload("chunks that stand for earlier ones", chunks.size(),
                                      std::to_string(held.chunks.size()) + ", as many as that step's had"),
                      node, chunks.back().chunk_index);
    resolved_.push_back({contribution.factor, held.chunks});
    return {};
}

/// Nodes that agree about the codec stay within; what does not is decoded, and not kept.
bool HeldPayloads::is_within_bounds(const Contribution& contribution) const noexcept {
    return std::ranges::all_of(contribution.chunks, [&](const ChunkView& chunk) {
        const ElementCount first = chunk.chunk_index * kChunkElements;
        return first < elements_ &&
               chunk.bytes.size() <= most_payload_bytes(pipeline_, std::min(kChunkElements, elements_ - first));
    });
}

void HeldPayloads::copy(Step step, const Contribution& contribution, Payload& ret_payload) {
    const auto& chunks = contribution.chunks;
    ret_payload.step = step;
    if (ret_payload.memory.size() < chunks.size()) ret_payload.memory.resize(chunks.size());
    ret_payload.chunks.clear();
    for (std::size_t at = 0; at < chunks.size(); ++at) {
        ret_payload.memory[at].assign(chunks[at].bytes.begin(), chunks[at].bytes.end());
        ret_payload.chunks.push_back({chunks[at].chunk_index, ret_payload.memory[at]});
    }
}

Result<std::span<const Contribution>> HeldPayloads::take(Step step, std::span<const Contribution> contributions) {
    GRADSIEVE_CHECK(nodes_.size() == contributions.size());
    resolved_.clear();
    for (std::size_t node = 0; node < contributions.size(); ++node) {
        const auto& chunks = contributions[node].chunks;
        if (std::ranges::any_of(chunks, [](const ChunkView& chunk) { return is_reuse(chunk.bytes); })) {
            GRADSIEVE_TRY(resolve(node, contributions[node]));
            continue;
        }
        resolved_.push_back(contributions[node]);
        if (!chunks.empty() && chunks.size() <= elements_ / kChunkElements + 1 && is_within_bounds(contributions[node]))
            copy(step, contributions[node], nodes_[node].open);
    }
    return std::span<const Contribution>(resolved_);
}

void HeldPayloads::commit(Step step) noexcept {
    for (Node& node : nodes_) {
        if (node.open.step == step) std::swap(node.held, node.open);
        node.open.step = 0;
    }
}

}  // namespace gradsieve::codec
