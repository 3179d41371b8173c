// What a pipeline sends: the real encoder and decoder, step by step, over one tensor on one node, of fresh Gaussian
// numbers or of gradients that were recorded. For people who choose a codec; never on a gradient's path. Reads no
// clock: who wants times measures around the calls. One thread at a time; owns all its arrays.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "codec/encoder.hpp"
#include "codec/phases.hpp"
#include "codec/pipeline.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec {

class PipelineTrial {
public:
    /// Most elements of a trial's tensor.
    static constexpr ElementCount kMostElements = ElementCount{1} << 24U;

    struct Sent {
        ElementCount elements = 0;        ///< sent in this step
        std::uint64_t payload_bytes = 0;  ///< of all chunks, as they go over the wire, without the frame around them
    };

    /// Each step's gradient is of independent standard normal numbers. `elements`: 1 .. kMostElements; `seed`: of the
    /// noise and of unbiased quantizers. The state begins at zero. Errors: kInvalidArgument.
    [[nodiscard]] static Result<PipelineTrial> of_noise(const Pipeline& pipeline, ElementCount elements,
                                                        std::uint64_t seed);
    /// Gradients of `elements` numbers each, one behind the other, all finite: the steps take them in turn. Errors: as
    /// above, and where they are not whole gradients, one at least.
    [[nodiscard]] static Result<PipelineTrial> of_gradients(const Pipeline& pipeline, ElementCount elements,
                                                            std::vector<float> gradients, std::uint64_t seed);

    /// Encodes one more step's gradient, as one sample. With phases, up to and with the last one's payloads.
    [[nodiscard]] Result<Sent> step();
    /// What the last step sent; with phases, in the last one.
    [[nodiscard]] std::span<const ChunkPayload> payloads() const { return chunks_; }
    /// Decodes what the last step sent, as a receiver does.
    [[nodiscard]] Status decode();
    /// ||x - C(x)||^2 / ||x||^2 of the last step: x is residual plus gradient (or momentum) before it was coded, C(x)
    /// what `decode` gave. The normalized error of compression operators (Beznosikov et al. 2020); 0 if x is.
    [[nodiscard]] double normalized_error();

private:
    PipelineTrial(const Pipeline& pipeline, ElementCount elements, std::vector<float> numbers, bool is_noise,
                  std::uint64_t seed);
    [[nodiscard]] const float* gradient() const { return numbers_.data() + offset_; }
    [[nodiscard]] StateView state(std::size_t generation);
    [[nodiscard]] std::vector<ChunkView> views_of_chunks() const;
    /// What the step added to the residual of an element.
    [[nodiscard]] float handed_in(const StateView& before, ElementCount element) const;

    Pipeline pipeline_;
    ElementCount elements_;
    std::uint64_t random_;
    std::vector<float> numbers_;  ///< noise, of which each step takes another window; or gradients
    bool is_noise_;
    std::size_t offset_ = 0;                    ///< of this step's gradient
    float clip_ = 1;                            ///< what momentum(clip=..) multiplied the last step's gradient by
    std::vector<std::vector<float>> state_[2];  ///< by generation, then in the order of state_arrays()
    std::size_t live_ = 0;
    Step step_ = 0;
    std::uint32_t selection_hint_ = 0;
    EncodeWorkspace workspace_;
    std::vector<ChunkPayload> chunks_;  ///< of the last step
    std::vector<float> decoded_;
    std::optional<PhaseMemory> phases_;
};

}  // namespace gradsieve::codec
