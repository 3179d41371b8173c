// One tensor of a job as this node keeps it: which codec, two generations of state, the averaged result, and what the
// local ranks handed in for the open step. Owned by its job; touched by the conductor, and by one codec worker while a
// task for it is out (never both at once).
#pragma once

#include "base/clock.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/decoder.hpp"
#include "codec/encoder.hpp"
#include "codec/model_scope.hpp"
#include "codec/phases.hpp"
#include "codec/pipeline.hpp"
#include "codec/reuse.hpp"
#include "codec/shard.hpp"
#include "codec/stages/similarity.hpp"
#include "exchange/job_machine.hpp"
#include "shm/segment.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon {

class Session;
class GpuWorker;
struct GpuBuffer;
struct HostedScope;

/// A generation is live if its stamp is the newest one not above the group's committed step.
struct Generation {
    codec::StateView arrays;
    std::byte* steering = nullptr;  ///< of one tensor of a group with a budget: its controller (budget_steering.hpp)
    Step stamp = 0;                 ///< the step that wrote it
    bool is_valid = true;           ///< false while, and after, a step wrote it without success
    double scale = 0;               ///< scale of the gradients in it; 0 = nothing in it yet
};

/// What one local rank handed in for the open step.
struct RankInput {
    Session* session = nullptr;
    std::uint32_t tensor_index = 0;  ///< the session's own number for the tensor
    std::uint32_t sample_count = 1;
    std::uint64_t batch_samples = 0;
    double scale = 1.0;
};

struct TensorTotals {
    ElementCount kept_elements = 0;  // of the last step
    ByteCount payload_bytes = 0;     // of the last step
    ByteCount payload_bytes_all = 0;
    std::uint64_t steps = 0;
    double residual_norm = 0;
    Step residual_step = 0;
    codec::VarianceSource variance_source = codec::VarianceSource::kNone;
    std::optional<double> similarity;        // of the last step's gradient to that of the committed step before it
    std::optional<std::size_t> bits_differ;  // between their signatures
    std::optional<double> reuse_share;       // of what was to be sent, that the payload before would have taken away
    std::uint64_t reused_steps = 0;          // in which a record stood for a payload
    ByteCount reuse_saved_bytes = 0;         // of the payloads that they stood for, less their own
};

/// What coding a tensor took in its newest step: encoding, and decoding all that came for it.
struct CodingTime {
    Step step = 0;
    double ms = 0;
    bool has_encoded = false;
    /// Tasks of a step that has ended come late, and count for nothing.
    void add(Step of, double took_ms, bool is_encode) noexcept {
        if (of < step) return;
        if (of > step) *this = {.step = of};
        ms += took_ms;
        has_encoded = has_encoded || is_encode;
    }
    [[nodiscard]] bool was_encoded(Step of) const noexcept { return step == of && has_encoded; }
};

struct CodecTask;

struct HostedTensor {
    // constant after construction
    exchange::TensorNumber number = 0;
    TensorId id = 0;
    std::string name;
    exchange::GroupNumber group = 0;
    ElementCount elements = 0;
    codec::Pipeline written;   ///< as the codec's text has it
    codec::Pipeline pipeline;  ///< what is encoded by: that, at another density, or plain; changes between steps only
    std::string codec_text;    ///< of `pipeline`
    Epoch epoch = 0;           ///< the job's, constant once it has started
    // the state's arrays lie in the job's state segment
    std::array<Generation, 2> generations;
    std::uint32_t selection_hint = 0;
    bool on_device = false;    ///< gradients and results lie in the ranks' device memory, state on `gpu`
    GpuWorker* gpu = nullptr;  ///< codes the tensor; set when the rank that brings its state binds it
    /// Where the ranks' memory lies on several GPUs: what each of the worker's devices codes, and its state, as
    /// `generations` has it otherwise.
    std::vector<codec::cuda::DeviceRange> gpu_ranges;
    std::vector<std::array<codec::StateView, 2>> gpu_states;
    std::optional<codec::ResultTensor> result;  ///< none on a device
    std::vector<RankInput> inputs;              ///< one per local rank, ascending by rank
    std::size_t tasks_out = 0;
    TensorTotals totals;
    CodingTime coding;
    /// Of the open step's gradient and of the last committed one's, where the pipeline measures similarity.
    std::optional<codec::Signature> open_signature, sent_signature;
    HostedScope* scope = nullptr;  ///< of pipelines that select over several tensors; constant after lay_out_scopes
    std::optional<codec::ScopeMember> member;
    std::optional<codec::PhaseMemory> phases;  ///< of codecs whose steps have two; constant after lay_out_phases
    std::optional<codec::HeldPayloads> held;   ///< of pipelines that may skip; constant after the start
    std::size_t own_node = 0;                  ///< of those whose payloads are held

    std::optional<codec::Pipeline> down;  ///< under the sharded plan: what averages are sent on by
    std::optional<codec::Shard> shard;    ///< likewise; from the job's start on
    /// The generation whose `down` still has what an earlier life kept of chunks that are others' by now.
    std::optional<std::size_t> stale_down;

    /// Rounds of payloads of a step: 2 of codecs that have phases, and under the sharded plan.
    [[nodiscard]] bool has_two_phases() const noexcept { return phases || down; }
    [[nodiscard]] std::size_t live_generation(Step committed) const noexcept;
    /// Gradients of that scale may follow those in `in`. Errors: kInvalidArgument (delta has one scale).
    [[nodiscard]] Status check_scale(const Generation& in, double scale) const;
    // pipelines that may skip: before the first step, and when one is encoded
    void start_reuse(std::span<const exchange::Member> members, PeerIndex self);
    void note_reuse(const CodecTask& task);
};

/// One piece of work for a codec thread; filled by the conductor, run once, read by the conductor.
struct CodecTask {
    enum class Kind : std::uint8_t { kEncode, kDecode, kScopePhase };
    Kind kind = Kind::kEncode;
    std::uint64_t job_hash = 0;
    HostedTensor* tensor = nullptr;
    Step step = 0;
    // encode
    std::vector<const float*> samples;
    std::vector<const float*> second_moments;
    std::vector<float> weights;
    codec::EncodeRequest request;
    std::size_t out_generation = 0;
    double scale = 1.0;
    bool wants_residual_norm = false;
    unsigned step_phase = 0;  ///< also of decode: which of the tensor's two, where it has phases
    std::optional<Result<codec::EncodeResult>> encoded;
    double residual_norm = 0;
    std::optional<codec::Signature> signature;  ///< pipelines that measure similarity
    // pipelines that may skip: before encoding, and after
    codec::HeldView held;  ///< this node's
    std::optional<double> reuse_share;
    bool has_records = false;  ///< in place of what `held` has
    // a phase of a scope: as for encode, the same task from phase to phase; the cut has a task of its own
    codec::ScopePhase phase = codec::ScopePhase::kObserve;
    codec::ScopeTerms terms;
    std::vector<codec::ScopeMember*> cut_members;
    std::uint32_t next_hint = 0;      ///< of the cut
    ElementCount phase_elements = 0;  ///< element visits
    // decode
    std::vector<exchange::NodePayload> payloads;
    std::vector<float> factors;  ///< per payload: fl(local ranks / world size)
    bool keeps_state = false;    ///< delta: this node sends nothing in the step, and what encoding keeps stays as it is
    std::optional<Result<codec::DecodeResult>> decoded;
    Duration took{};             ///< its share, where a GPU codes several at once
    TimePoint began{}, ended{};  ///< of a scope's member: the first phase, and the last

    // on a GPU: one per local rank, in rank order; empty on the CPU. Samples and state are device memory then.
    std::vector<GpuBuffer*> gpu_buffers;
    std::vector<std::uint32_t> gpu_sample_counts;       ///< slices filled, per local rank
    std::vector<codec::cuda::GpuEncodePart> gpu_parts;  ///< encode on several GPUs: one per device
    bool fills_not_a_number = false;                    ///< decode: no payloads, the results become NaN

    void run(codec::EncodeWorkspace& workspace);
    // pipelines that may skip: what encoding came to, and what other nodes' records stand for
    void take_reuse(codec::ReuseEncode outcome, std::optional<codec::Signature> gradient);
    [[nodiscard]] Result<std::span<const codec::Contribution>> resolve(
        std::span<const codec::Contribution> contributions);
    /// Nothing of the step comes after it but what others send: encode and decode.
    [[nodiscard]] bool is_last_phase() const noexcept { return !tensor->has_two_phases() || step_phase == 1; }
    /// Whether a GPU has a part in it: factors alone, as first phases decode to, are the host's.
    [[nodiscard]] bool is_for_gpu() const noexcept {
        return tensor->on_device && (kind == Kind::kEncode || fills_not_a_number || is_last_phase());
    }
    /// Element visits, to decide whether it is worth a hop to another thread.
    [[nodiscard]] ElementCount work_elements() const noexcept;

private:
    void run_phase(codec::EncodeWorkspace& workspace);
    void run_encode(codec::EncodeWorkspace& workspace);
    [[nodiscard]] Result<codec::EncodeResult> encode(codec::EncodeWorkspace& workspace);
    [[nodiscard]] Result<codec::DecodeResult> decode(std::span<const codec::Contribution> contributions);
    void encode_or_reuse(codec::EncodeWorkspace& workspace);
    void run_decode();
    [[nodiscard]] Result<codec::DecodeResult> decode_average(std::span<const codec::Contribution> contributions);
    void measure_residual();
    void sign_gradient();
};

}  // namespace gradsieve::daemon
