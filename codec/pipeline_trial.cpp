#include "codec/pipeline_trial.hpp"

#include "codec/decoder.hpp"
#include "codec/local_clip.hpp"
#include "codec/state_arrays.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

namespace gradsieve::codec {
namespace {

constexpr TensorId kTensor = 1;
/// Numbers beyond the tensor's own, so that a step's window is drawn from many: drawing all afresh would take longer
/// than encoding them.
constexpr ElementCount kMostSpareNoise = ElementCount{1} << 20U;
ElementCount spare_noise(ElementCount elements) { return std::min(kMostSpareNoise, 16 * elements); }

Status check_elements(ElementCount elements) {
    if (elements > 0 && elements <= PipelineTrial::kMostElements) return {};
    return {StatusCode::kInvalidArgument, "elements of a trial, " + std::to_string(elements) + ": allowed are 1 to " +
                                              std::to_string(PipelineTrial::kMostElements) +
                                              "; scale the results of a smaller tensor"};
}

}  // namespace

PipelineTrial::PipelineTrial(const Pipeline& pipeline, ElementCount elements, std::vector<float> numbers, bool is_noise,
                             std::uint64_t seed)
    : pipeline_(pipeline),
      elements_(elements),
      random_(seed),
      numbers_(std::move(numbers)),
      is_noise_(is_noise),
      decoded_(elements) {
    for (auto& generation : state_)
        for (const StateArray& array : state_arrays())
            generation.emplace_back(array.is_kept(pipeline_) ? size_of(array, pipeline_, elements) : 0, 0.0F);
    if (has_phases(pipeline_)) phases_.emplace(pipeline_, elements);
}

Result<PipelineTrial> PipelineTrial::of_noise(const Pipeline& pipeline, ElementCount elements, std::uint64_t seed) {
    GRADSIEVE_TRY(check_elements(elements));
    std::vector<float> noise(elements + spare_noise(elements));
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : noise) value = normal(random);
    return PipelineTrial(pipeline, elements, std::move(noise), true, seed);
}

Result<PipelineTrial> PipelineTrial::of_gradients(const Pipeline& pipeline, ElementCount elements,
                                                  std::vector<float> gradients, std::uint64_t seed) {
    GRADSIEVE_TRY(check_elements(elements));
    if (gradients.empty() || gradients.size() % elements != 0)
        return Status(StatusCode::kInvalidArgument, "gradients of a trial, " + std::to_string(gradients.size()) +
                                                        " numbers: allowed are one or more times the tensor's " +
                                                        std::to_string(elements) + "; give whole gradients");
    return PipelineTrial(pipeline, elements, std::move(gradients), false, seed);
}

StateView PipelineTrial::state(std::size_t generation) {
    StateView view;
    for (std::size_t array = 0; array < state_arrays().size(); ++array)
        if (auto& values = state_[generation][array]; !values.empty())
            view.*state_arrays()[array].values = values.data();
    return view;
}

Result<PipelineTrial::Sent> PipelineTrial::step() {
    random_ = std::mt19937_64(random_)();
    offset_ = is_noise_ ? random_ % spare_noise(elements_) : step_ % (numbers_.size() / elements_) * elements_;
    const float* const samples[] = {gradient()};
    const float weights[] = {1.0F};
    EncodeRequest request;
    request.pipeline = &pipeline_;
    request.tensor = kTensor;
    request.step = ++step_;
    request.elements = elements_;
    request.samples = samples;
    request.weights = weights;
    request.random_seed = random_;
    request.selection_seed = random_;
    request.selection_hint = &selection_hint_;
    request.in = state(live_);
    request.out = state(1 - live_);
    if (has_local_clip(pipeline_))
        clip_ = clip_factor(pipeline_.front.clip, request.node_count, residual_square_sum({gradient(), elements_}));
    Sent sent;
    const auto take = [&](EncodeResult result) {
        sent.elements += result.kept_elements;
        for (const ChunkPayload& chunk : result.chunks) sent.payload_bytes += chunk.bytes.size();
        chunks_ = std::move(result.chunks);
    };
    if (phases_) {
        GRADSIEVE_ASSIGN(auto first, encode_phase(0, request, *phases_, workspace_));
        take(std::move(first));
        const auto views = views_of_chunks();
        const Contribution contributions[] = {{1.0F, views}};
        GRADSIEVE_TRY(decode_first_phase({step_, kTensor, request.selection_seed}, contributions, *phases_));
        GRADSIEVE_ASSIGN(auto second, encode_phase(1, request, *phases_, workspace_));
        take(std::move(second));
    } else {
        GRADSIEVE_ASSIGN(auto result, encode_tensor(request, workspace_));
        take(std::move(result));
    }
    live_ = 1 - live_;
    return sent;
}

std::vector<ChunkView> PipelineTrial::views_of_chunks() const {
    std::vector<ChunkView> views;
    for (const ChunkPayload& chunk : chunks_) views.push_back({chunk.chunk_index, chunk.bytes.view()});
    return views;
}

Status PipelineTrial::decode() {
    decoded_.assign(elements_, 0.0F);
    const auto views = views_of_chunks();
    const Contribution contributions[] = {{1.0F, views}};
    ResultTensor result(kTensor, decoded_.data(), elements_);
    if (phases_) return decode_last_phase(step_, contributions, *phases_, result).status();
    return result.decode_average(step_, contributions).status();
}

float PipelineTrial::handed_in(const StateView& before, ElementCount element) const {
    const auto gamma = static_cast<float>(pipeline_.front.gamma);
    if (!has_momentum(pipeline_)) return gamma * gradient()[element];
    const auto factor = static_cast<float>(pipeline_.front.factor);
    const float own = clip_ * gradient()[element];
    const float u = factor * before.momentum[element] + own;
    return gamma * (pipeline_.front.is_nesterov ? factor * u + own : u);
}

double PipelineTrial::normalized_error() {
    const StateView before = state(1 - live_);
    const float carried = residual_factor(pipeline_.front, 1.0F);
    double lost = 0;
    double whole = 0;
    for (ElementCount i = 0; i < elements_; ++i) {
        const float own = handed_in(before, i);
        const float x = before.residual == nullptr ? own : carried * before.residual[i] + own;
        const double difference = static_cast<double>(x) - static_cast<double>(decoded_[i]);
        lost += difference * difference;
        whole += static_cast<double>(x) * static_cast<double>(x);
    }
    return whole > 0 ? lost / whole : 0;
}

}  // namespace gradsieve::codec
