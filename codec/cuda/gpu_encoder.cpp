#include "codec/cuda/gpu_encoder.hpp"

#include "codec/cuda/encode_lane.hpp"
#include "codec/cuda/gpu_difference.hpp"
#include "codec/entropy_coder.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {
namespace {

class Encoder final : public GpuEncoder {
public:
    Encoder(std::span<const int> devices, const GpuEncoderLimits& limits, PeerAccess peers,
            std::vector<std::unique_ptr<EncodeLane>> lanes)
        : limits_(limits),
          peers_(std::move(peers)),
          lanes_(std::move(lanes)),
          // What was sent is each device's own.
          follower_(devices,
                    {.uses_peers = false, .multiprocessors = limits.multiprocessors, .mirrors = limits.mirrors}) {}
    ~Encoder() override {
        if (is_under_way_) static_cast<void>(synchronize());
    }

    Status begin(std::span<const GpuEncodeRequest> tensors) override;
    Status finish(std::span<EncodeResult> ret_results) override;
    const Stream& stream(std::size_t place) const noexcept override { return lanes_[place]->stream(); }
    ByteCount workspace_bytes(std::size_t place) const noexcept override {
        return lanes_[place]->device_bytes() + follower_.workspace_bytes(place);
    }
    bool is_direct(std::size_t place) const noexcept override {
        return peers_.is_direct(lanes_[place]->stream().device());
    }
    std::uint64_t threshold_misses() const noexcept override { return threshold_misses_; }
    const std::optional<Signature>& signature(std::size_t tensor) const noexcept override {
        return signatures_[tensor];
    }
    Result<std::vector<Signature>> sign(std::span<const GpuEncodeRequest> tensors) override;

private:
    DevicePlace place_of(std::size_t lane) const {
        return {lane, lanes_.size(), lanes_[lane]->stream().device(), &peers_};
    }
    Status prepare_signers(std::span<const GpuEncodeRequest> tensors, bool is_of_all);
    Status start_signers();
    Signature joined(std::size_t array) const;
    void take_signatures(std::span<const EncodeResult> results);
    Status prepare(std::span<const GpuEncodeRequest> tensors);
    Status hold_back_others();
    Status enqueue();
    Status enqueue_shared(std::size_t round);
    Status wait_for_others(std::size_t place);
    Status synchronize() const;
    void take_result(std::size_t tensor, EncodeResult& ret_result);
    void join_counts(std::size_t tensor);
    void code_values(const EncodeRequest& request, EncodeResult& inout_result);

    // Constant after construction.
    GpuEncoderLimits limits_;
    PeerAccess peers_;
    std::vector<std::unique_ptr<EncodeLane>> lanes_;  ///< one per device
    // Of the batch under way.
    std::span<const GpuEncodeRequest> requests_;
    bool is_under_way_ = false;
    std::vector<std::optional<Signature>> signatures_;  ///< of the batch that was finished last
    // Kept from batch to batch.
    PinnedMemory shared_;  ///< SharedCounts
    PayloadPool pool_;     ///< of requests that bring none
    EntropyScratch entropy_;
    SentFollower follower_;
    std::uint64_t threshold_misses_ = 0;
};

Status Encoder::begin(std::span<const GpuEncodeRequest> tensors) {
    if (is_under_way_) {
        return {StatusCode::kFailedPrecondition,
                "a batch of " + std::to_string(requests_.size()) +
                    " tensors is under way on this encoder; allowed is one at a time; call finish first"};
    }
    GRADSIEVE_TRY(prepare(tensors));
    if (const Status status = enqueue(); !status.is_ok()) {
        static_cast<void>(synchronize());
        return status;
    }
    is_under_way_ = true;
    return {};
}

Status Encoder::prepare(std::span<const GpuEncodeRequest> tensors) {
    for (std::size_t place = 0; place < lanes_.size(); ++place)
        GRADSIEVE_TRY(lanes_[place]->plan(tensors, place_of(place), limits_));
    requests_ = tensors;
    for (const auto& lane : lanes_) GRADSIEVE_TRY(lane->prepare(limits_));
    GRADSIEVE_TRY(prepare_signers(tensors, false));
    const ByteCount bytes = lanes_.front()->batch().shared_count() * sizeof(SharedCounts);
    if (bytes > shared_.size()) {
        shared_ = {};
        GRADSIEVE_ASSIGN(shared_, PinnedMemory::make(bytes, "counts that GPUs share"));
    }
    return {};
}

/// The other devices begin behind what the first one's stream holds.
Status Encoder::hold_back_others() {
    if (lanes_.size() < 2) return {};
    GRADSIEVE_TRY(lanes_.front()->event().record(stream(0)));
    for (std::size_t place = 1; place < lanes_.size(); ++place)
        GRADSIEVE_TRY(lanes_.front()->event().hold_back(stream(place)));
    return {};
}

Status Encoder::enqueue() {
    GRADSIEVE_TRY(hold_back_others());
    for (const auto& lane : lanes_) GRADSIEVE_TRY(lane->start(shared_.as<SharedCounts>()));
    for (std::size_t round = 0; round < lanes_.front()->shared_rounds(); ++round) GRADSIEVE_TRY(enqueue_shared(round));
    return start_signers();
}

/// Each device's part of what is to be signed.
Status Encoder::prepare_signers(std::span<const GpuEncodeRequest> tensors, bool is_of_all) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
        GpuSigner& signer = lanes_[lane]->signer();
        signer.clear();
        for (const GpuEncodeRequest& tensor : tensors) {
            if (!is_of_all && !tensor.wants_signature) continue;
            const GpuEncodePart part = part_of(tensor, place_of(lane));
            std::vector<StagedSamples::Source> samples;
            for (std::size_t sample = 0; sample < tensor.request.samples.size(); ++sample) {
                samples.push_back(sample_source(tensor, part, place_of(lane), sample));
                samples.back().weight = tensor.request.weights[sample];
            }
            signer.add(tensor.request.tensor, part.range, samples);
        }
        GRADSIEVE_TRY(signer.prepare(lanes_[lane]->stream(), limits_.staging_bytes));
    }
    return {};
}

Status Encoder::start_signers() {
    for (const auto& lane : lanes_) GRADSIEVE_TRY(lane->signer().start(lane->stream()));
    return {};
}

/// The parts stand in ascending order.
Signature Encoder::joined(std::size_t array) const {
    Signature signature;
    for (const auto& lane : lanes_) lane->signer().add_chunks(array, signature);
    return signature;
}

void Encoder::take_signatures(std::span<const EncodeResult> results) {
    signatures_.assign(results.size(), std::nullopt);
    std::size_t array = 0;
    for (std::size_t tensor = 0; tensor < results.size(); ++tensor) {
        if (!requests_[tensor].wants_signature) continue;
        if (!results[tensor].non_finite) signatures_[tensor] = joined(array);
        ++array;
    }
}

Result<std::vector<Signature>> Encoder::sign(std::span<const GpuEncodeRequest> tensors) {
    if (is_under_way_)
        return Status(StatusCode::kFailedPrecondition,
                      "a batch of " + std::to_string(requests_.size()) +
                          " tensors is under way on this encoder; allowed is one thing at a time; call finish first");
    GRADSIEVE_TRY(prepare_signers(tensors, true));
    Status status = hold_back_others();
    if (status.is_ok()) status = start_signers();
    if (Status waited = synchronize(); status.is_ok()) status = std::move(waited);
    GRADSIEVE_TRY(std::move(status));
    std::vector<Signature> signatures;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) signatures.push_back(joined(tensor));
    return signatures;
}

/// Every lane's step, then an event of each: what a step left for the others is there when their next one begins.
Status Encoder::enqueue_shared(std::size_t round) {
    const unsigned steps = EncodeLane::shared_steps(lanes_.front()->shared_plan(round));
    for (unsigned step = 0; step < steps; ++step) {
        for (std::size_t place = 0; place < lanes_.size(); ++place) {
            if (step > 0) GRADSIEVE_TRY(wait_for_others(place));
            GRADSIEVE_TRY(lanes_[place]->run_shared_step(round, step));
        }
        for (const auto& lane : lanes_) GRADSIEVE_TRY(lane->event().record(lane->stream()));
    }
    return {};
}

Status Encoder::wait_for_others(std::size_t place) {
    for (std::size_t other = 0; other < lanes_.size(); ++other)
        if (other != place) GRADSIEVE_TRY(lanes_[other]->event().hold_back(stream(place)));
    return {};
}

/// Waits for all, also where one has failed.
Status Encoder::synchronize() const {
    Status first;
    for (const auto& lane : lanes_)
        if (auto status = lane->stream().synchronize(); first.is_ok()) first = std::move(status);
    return first;
}

Status Encoder::finish(std::span<EncodeResult> ret_results) {
    if (!is_under_way_) {
        return {StatusCode::kFailedPrecondition,
                "no batch is under way on this encoder; allowed is one finish per begin; call begin first"};
    }
    if (ret_results.size() != requests_.size()) {
        return {StatusCode::kInvalidArgument, "results: " + std::to_string(ret_results.size()) + " for " +
                                                  std::to_string(requests_.size()) +
                                                  " tensors; allowed is one per tensor; pass as many as to begin"};
    }
    is_under_way_ = false;
    Status copying;
    for (const auto& lane : lanes_)
        if (auto status = lane->end(); copying.is_ok()) copying = std::move(status);
    GRADSIEVE_TRY(synchronize());
    GRADSIEVE_TRY(copying);
    for (std::size_t tensor = 0; tensor < requests_.size(); ++tensor) take_result(tensor, ret_results[tensor]);
    take_signatures(ret_results);
    for (const auto& lane : lanes_) lane->take_chunks(requests_, pool_, ret_results);
    for (const auto& lane : lanes_) GRADSIEVE_TRY(lane->fetch());
    for (std::size_t tensor = 0; tensor < requests_.size(); ++tensor)
        if (requests_[tensor].request.pipeline->has_entropy)
            code_values(requests_[tensor].request, ret_results[tensor]);
    return follower_.follow(requests_, ret_results);
}

/// The entropy stage is the host's: it reads payloads that have arrived there anyway.
void Encoder::code_values(const EncodeRequest& request, EncodeResult& inout_result) {
    const PayloadPool& pool = request.payloads != nullptr ? *request.payloads : pool_;
    for (ChunkPayload& chunk : inout_result.chunks) {
        const ElementCount first = chunk.chunk_index * kChunkElements;
        chunk.bytes =
            code_entropy(std::move(chunk.bytes), std::min(kChunkElements, request.elements - first), pool, entropy_);
    }
}

/// Everything but the chunks. The parts stand in ascending order, so the first with trouble has the first element of
/// it.
void Encoder::take_result(std::size_t tensor, EncodeResult& ret_result) {
    ret_result = {};
    ret_result.variance_source = lanes_.front()->batch().variance_source(tensor);
    if (requests_[tensor].scope && requests_[tensor].scope->phase != ScopePhase::kSettle) join_counts(tensor);
    const TensorState* decided = nullptr;
    const TensorPlan* plan = nullptr;
    for (const auto& lane : lanes_) {
        if (lane->batch().tensors()[tensor].elements == 0) continue;
        const TensorState& state = lane->state_of(tensor);
        if (state.non_finite != kAllFinite) {
            ret_result.non_finite = NonFinite{static_cast<std::uint32_t>(state.non_finite & 0xFFFFU),
                                              lane->batch().range(tensor).first + (state.non_finite >> 16U)};
            return;
        }
        plan = &lane->batch().tensors()[tensor];
        decided = &state;  // the same on every device that has a part
    }
    if (plan == nullptr || static_cast<Selection>(plan->selection) != Selection::kBest) return;
    if (requests_[tensor].scope) return;
    threshold_misses_ += decided->is_missed;
    std::uint32_t* hint = requests_[tensor].request.selection_hint;
    const std::uint32_t candidates = decided->is_missed != 0 ? decided->relisted : decided->listed;
    if (hint != nullptr) *hint = candidates >= plan->keep_count ? decided->prefix : 0U;
}

void Encoder::join_counts(std::size_t tensor) {
    open_counts(requests_[tensor]);
    for (std::size_t place = 0; place < lanes_.size(); ++place) {
        const EncodeBatch& batch = lanes_[place]->batch();
        const TensorPlan& plan = batch.tensors()[tensor];
        const ScopePlan& scope = batch.scope(tensor);
        if (plan.elements > 0)
            take_counts(requests_[tensor], place, scope.level,
                        shared_.as<SharedCounts>()[scope.first_count + plan.part]);
    }
}

}  // namespace

Result<std::unique_ptr<GpuEncoder>> GpuEncoder::make(std::span<const int> devices, const GpuEncoderLimits& limits) {
    std::vector<std::unique_ptr<EncodeLane>> lanes;
    for (const int device : devices) {
        GRADSIEVE_ASSIGN(auto lane, EncodeLane::make(device, limits.multiprocessors, devices.size() == 1));
        lanes.push_back(std::move(lane));
    }
    PeerAccess peers = PeerAccess::none(devices);
    if (limits.uses_peers) {
        GRADSIEVE_ASSIGN(peers, PeerAccess::open(devices));
    }
    GpuEncoderLimits own = limits;
    if (own.mirrors == nullptr) own.mirrors = std::make_shared<MirrorPool>();
    return std::unique_ptr<GpuEncoder>(std::make_unique<Encoder>(devices, own, std::move(peers), std::move(lanes)));
}

}  // namespace gradsieve::codec::cuda
