// Skipped steps, of pipelines of which has_reuse holds: in place of a payload a node sends a reuse record, which stands
// for the last payload that it sent in full. Everybody adds that one again, and the sender's residual keeps the
// difference. With p = fl(beta c) r + gamma g, what is to be sent, and d, what the node's last payload decodes to, a
// step is skipped only if |p - d|^2 <= (1 - x) |p|^2, x being the pipeline's share: a contraction with delta = 1 / x
// (Beznosikov et al. 2020, class B3), computed and not estimated. Which steps are worth looking at, signatures tell
// (similarity.hpp), since S(p) = fl(beta c) S(r) + gamma S(g).
//
// A node keeps its own last payload in its state (sent_state.hpp), and skips by that. Nodes hold each other's payloads
// in memory alone, those of the last committed step that had one: a step without a result changes nothing that is held.
// After a start nobody holds anything, and a node that skips sends the payload's own bytes, so that averages are the
// same ones.
#pragma once

#include "codec/decoder.hpp"
#include "codec/encoder.hpp"
#include "codec/sent_state.hpp"
#include "codec/stages/similarity.hpp"

#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec {

/// Of a reuse record: version, form, and the step whose payload it stands for.
inline constexpr std::size_t kReuseBytes = 10;
/// Writes kReuseBytes.
void build_reuse(Step step, std::byte* ret_bytes) noexcept;
/// Whether it says that it is one; it may still be damaged.
[[nodiscard]] bool is_reuse(ByteView payload) noexcept;
/// The step. Errors: kCorrupt.
[[nodiscard]] Result<Step> parse_reuse(ByteView payload);

/// Payloads of one step, which somebody else holds.
struct HeldView {
    Step step = 0;  ///< 0: none
    std::span<const ChunkView> chunks;
};

/// What all nodes' last payloads of one tensor were. `take` on one thread at a time, with `commit` never during it;
/// views from `of` hold until the next `commit`.
class HeldPayloads {
public:
    HeldPayloads(const Pipeline& pipeline, ElementCount elements, std::size_t nodes);

    /// Puts in place of a node's reuse records the payloads that they stand for, and copies those of nodes that sent
    /// in full, for commit(step). Contributions as for ResultTensor::decode_average, one for each node. The answer
    /// borrows from `contributions` and from this object, until the next call of either method. Errors: kCorrupt,
    /// naming contribution and chunk: a record that does not parse, that names another step than the one whose payload
    /// is held, or stands for a chunk that it did not have; records for a part of the tensor.
    [[nodiscard]] Result<std::span<const Contribution>> take(Step step, std::span<const Contribution> contributions);
    /// That step counts: what it brought replaces what was held. Any other step's is dropped.
    void commit(Step step) noexcept;
    [[nodiscard]] HeldView of(std::size_t node) const noexcept;

private:
    struct Payload {
        Step step = 0;  ///< 0: none
        std::vector<Bytes> memory;
        std::vector<ChunkView> chunks;
    };
    struct Node {
        Payload held, open;
    };
    [[nodiscard]] Status resolve(std::size_t node, const Contribution& contribution);
    [[nodiscard]] bool is_within_bounds(const Contribution& contribution) const noexcept;
    static void copy(Step step, const Contribution& contribution, Payload& ret_payload);

    Pipeline pipeline_;
    ElementCount elements_;
    std::vector<Node> nodes_;
    std::vector<Contribution> resolved_;
};
/// Most memory that HeldPayloads of so many nodes take.
[[nodiscard]] ByteCount reuse_bytes(const Pipeline& pipeline, ElementCount elements, std::size_t nodes) noexcept;

struct ReuseEncode {
    EncodeResult encoded;
    /// The payload of an earlier step answers this one: records, or that payload itself where the others do not hold
    /// it.
    bool is_reuse = false;
    bool has_records = false;
    /// Estimate of the share of |p|^2 that the last payload takes away; none without one, or where p is zero.
    std::optional<double> share;
};

/// As encode_tensor, but skips where that is allowed; what decides is in `request.in`, so that a step that is done
/// again gives the same average. `held`: what the others hold of this node; `gradient`: of this step's mean gradient.
/// Errors: as encode_tensor.
[[nodiscard]] Result<ReuseEncode> encode_or_reuse(const EncodeRequest& request, const HeldView& held,
                                                  const Signature& gradient, EncodeWorkspace& workspace);

}  // namespace gradsieve::codec
