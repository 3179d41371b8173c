// One node's part of a tensor under the sharded plan: it averages the chunks that it owns and sends the average on,
// compressed again, with an error feedback of its own (two-level error feedback: Tang, Lian, Yu, Zhang, Liu 2019,
// DoubleSqueeze, arXiv:1905.05957); each node's own residual is kept by the codec that it sends its gradients by.
//
//     encode_tensor -> chunks go to their owners -> decode_part -> encode_part -> payloads of all nodes ->
//     ResultTensor::decode_average, each with the factor 1
//
// Any thread, one at a time.
#pragma once

#include "codec/decoder.hpp"
#include "codec/encoder.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec {

/// What an average may be sent on by: no front, no state but a residual, one phase, values that are averaged, a
/// selection within one tensor. Errors: kInvalidArgument (what of it does not fit, and what does).
[[nodiscard]] Status check_down_pipeline(const Pipeline& down);

/// What averages of a tensor are sent on by: its own quantizer where its codec sends every element, so that what is
/// exact stays so, else `down`, which check_down_pipeline takes. Nothing where it cannot be sharded: its steps have two
/// phases anyway, its averages are votes, it keeps the average itself (delta), or all nodes hold its payloads
/// (similarity's skip) or select together.
[[nodiscard]] std::optional<Pipeline> down_pipeline(const Pipeline& pipeline, const Pipeline& down);

class Shard {
public:
    /// `chunks`: those of a tensor of `elements` that this node owns, strictly ascending; there may be none.
    Shard(TensorId tensor, ElementCount elements, std::vector<std::uint32_t> chunks);
    Shard(Shard&&) noexcept;
    Shard& operator=(Shard&&) noexcept;
    ~Shard();

    /// Elements of the chunks.
    [[nodiscard]] ElementCount elements() const noexcept { return elements_; }
    [[nodiscard]] bool owns(std::uint32_t chunk) const noexcept;
    [[nodiscard]] ElementCount chunk_elements(std::uint32_t chunk) const noexcept;

    /// The node does not own the chunk any more: its residual of averages in `down` goes on in the node's own, which
    /// counts with `share` in the mean, (0, 1], and is zero then. Both arrays are the whole tensor's. Element by
    /// element, so that a process that is killed meanwhile leaves one of them half done at most.
    void give_up(std::uint32_t chunk, float* down, float* residual, float share) const noexcept;

    /// The weighted mean of what all nodes sent of the chunks; contributions have no others. Errors: kCorrupt, as
    /// ResultTensor::decode_average.
    [[nodiscard]] Status decode_part(Step step, std::span<const Contribution> contributions);
    /// Codes the mean plus the residual in `in.down`, chunk by chunk: k of a top-k is of a chunk's elements. `request`
    /// is that of the tensor's encode_tensor; its samples are not read, and of its state only `down` is. Where its
    /// pipeline waits (accumulate) nothing is sent and the residual stays. Errors: kInvalidArgument (no mean of that
    /// step; as encode_tensor).
    [[nodiscard]] Result<EncodeResult> encode_part(const EncodeRequest& request, const Pipeline& down,
                                                   EncodeWorkspace& workspace);

private:
    TensorId tensor_;
    ElementCount all_elements_;
    std::vector<std::uint32_t> chunks_;
    ElementCount elements_;
    std::vector<std::uint32_t> hints_;  ///< of each chunk's selection
    std::unique_ptr<float[]> mean_;     ///< the chunks, one behind the other
    ResultTensor average_;
    Step step_ = 0;  ///< of the mean; 0: there is none
};

}  // namespace gradsieve::codec
