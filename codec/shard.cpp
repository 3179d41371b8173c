#include "codec/shard.hpp"

#include "codec/pipeline_text.hpp"
#include "codec/stages/accumulate.hpp"

#include <algorithm>
#include <atomic>

namespace gradsieve::codec {
namespace {

ElementCount elements_of(ElementCount elements, std::span<const std::uint32_t> chunks) {
    ElementCount sum = 0;
    for (const auto chunk : chunks) sum += std::min(kChunkElements, elements - chunk * kChunkElements);
    return sum;
}

/// Chunks of one tensor draw other numbers than one another.
TensorId id_of_chunk(TensorId tensor, std::uint32_t chunk) { return mix64(tensor ^ mix64(chunk + 1)); }

}  // namespace

Status check_down_pipeline(const Pipeline& down) {
    const auto text = canonical_text(down, Knobs::kKeep);
    const auto refuse = [&](std::string_view what) {
        return Status(StatusCode::kInvalidArgument,
                      "codec '" + text + "' for averages of the sharded plan: " + std::string(what) +
                          ": allowed are a selector that keeps a residual or nothing, a quantizer and coders; "
                          "use topk(0.01) | pow2(bits=4) | auto");
    };
    if (!(down.front == Front{}) || down.measures_similarity) return refuse("it has a stage for gradients in front");
    if (has_phases(down)) return refuse("it has two phases itself");
    if (has_model_scope(down)) return refuse("it selects over several tensors");
    if (has_variance(down)) return refuse("averages have no variance");
    if (combine_of(down.quantizer.kind) != Combine::kGather) return refuse("it votes");
    return {};
}

std::optional<Pipeline> down_pipeline(const Pipeline& pipeline, const Pipeline& down) {
    if (has_phases(pipeline) || has_model_scope(pipeline) || has_delta(pipeline) || has_reuse(pipeline) ||
        combine_of(pipeline.quantizer.kind) != Combine::kGather)
        return std::nullopt;
    if (!sends_all(pipeline.selector) || has_rotation(pipeline)) return down;
    auto same = pipeline;
    same.front = {};
    same.measures_similarity = false;
    return same;
}

Shard::Shard(TensorId tensor, ElementCount elements, std::vector<std::uint32_t> chunks)
    : tensor_(tensor),
      all_elements_(elements),
      chunks_(std::move(chunks)),
      elements_(elements_of(elements, chunks_)),
      hints_(chunks_.size(), 0),
      mean_(std::make_unique<float[]>(elements_)),
      average_(tensor, mean_.get(), elements_) {}
Shard::Shard(Shard&&) noexcept = default;
Shard& Shard::operator=(Shard&&) noexcept = default;
Shard::~Shard() = default;

bool Shard::owns(std::uint32_t chunk) const noexcept { return std::ranges::binary_search(chunks_, chunk); }

ElementCount Shard::chunk_elements(std::uint32_t chunk) const noexcept {
    return std::min(kChunkElements, all_elements_ - chunk * kChunkElements);
}

void Shard::give_up(std::uint32_t chunk, float* down, float* residual, float share) const noexcept {
    const ElementCount first = chunk * kChunkElements;
    for (ElementCount element = first; element < first + chunk_elements(chunk); ++element) {
        if (down[element] == 0) continue;
        residual[element] += down[element] / share;
        std::atomic_ref(down[element]).store(0, std::memory_order_release);  // behind the other store
    }
}

Status Shard::decode_part(Step step, std::span<const Contribution> contributions) {
    step_ = 0;
    std::vector<std::vector<ChunkView>> views(contributions.size());
    std::vector<Contribution> placed;
    for (std::size_t node = 0; node < contributions.size(); ++node) {
        for (const auto& view : contributions[node].chunks) {
            const auto found = std::ranges::lower_bound(chunks_, view.chunk_index);
            if (found == chunks_.end() || *found != view.chunk_index)
                return {StatusCode::kCorrupt, "contribution " + std::to_string(node) + ": chunk " +
                                                  std::to_string(view.chunk_index) +
                                                  " is of another node's shard: allowed are this one's"};
            views[node].push_back({static_cast<std::uint32_t>(found - chunks_.begin()), view.bytes});
        }
        placed.push_back({contributions[node].factor, views[node]});
    }
    GRADSIEVE_TRY(average_.decode_average(step, placed).status());
    step_ = step;
    return {};
}

Result<EncodeResult> Shard::encode_part(const EncodeRequest& request, const Pipeline& down,
                                        EncodeWorkspace& workspace) {
    if (step_ != request.step || request.step == 0)
        return Status(StatusCode::kInvalidArgument, "average of step " + std::to_string(request.step) +
                                                        ": allowed once its payloads are decoded; call decode_part");
    const bool keeps = has_residual(down);
    const bool waits = is_waiting(*request.pipeline, request.step);
    EncodeResult all;
    constexpr float kWhole = 1;
    ElementCount first = 0;
    for (std::size_t place = 0; place < chunks_.size(); ++place) {
        const auto chunk = chunks_[place];
        const auto elements = chunk_elements(chunk);
        const auto offset = chunk * kChunkElements;
        const float* sample = mean_.get() + first;
        first += elements;
        EncodeRequest part = request;
        part.pipeline = &down;
        part.tensor = id_of_chunk(tensor_, chunk);
        part.elements = elements;
        part.samples = {&sample, 1};
        part.weights = {&kWhole, 1};
        part.second_moments = {};
        part.batch_samples = 0;
        part.node_count = 1;
        part.selection_hint = &hints_[place];
        part.in = part.out = {};
        if (keeps) {
            part.in.residual = request.in.down + offset;
            part.out.residual = request.out.down + offset;
        }
        if (waits) {
            if (keeps)
                std::transform(part.in.residual, part.in.residual + elements, part.out.residual,
                               [&](float value) { return value * request.rescale; });
            continue;
        }
        GRADSIEVE_ASSIGN(auto encoded, encode_tensor(part, workspace));
        if (encoded.non_finite)
            return Status(StatusCode::kNonFinite,
                          "average at element " + std::to_string(offset + encoded.non_finite->element) +
                              ": not finite: allowed are finite sums; lower the gradients' scale");
        GRADSIEVE_CHECK(encoded.chunks.size() <= 1);
        all.kept_elements += encoded.kept_elements;
        for (auto& payload : encoded.chunks) all.chunks.push_back({chunk, std::move(payload.bytes)});
    }
    return all;
}

}  // namespace gradsieve::codec
