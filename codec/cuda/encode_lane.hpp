// What an encoder does on one of its devices: plan, workspace, stream, and what comes back. The encoder drives all its
// lanes from one thread; where a round is shared, step by step, so that lanes can wait for each other's events between
// the steps.
#pragma once

#include "codec/cuda/encode_memory.hpp"
#include "codec/cuda/gpu_signer.hpp"
#include "codec/cuda/payload_fetch.hpp"
#include "codec/cuda/stream_event.hpp"

#include <memory>

namespace gradsieve::codec::cuda {

class EncodeLane {
public:
    /// `is_alone`: no other lane's events are waited for between its kernels, which may begin early then.
    [[nodiscard]] static Result<std::unique_ptr<EncodeLane>> make(int device, unsigned multiprocessors, bool is_alone);

    // ---- before a batch; nothing is under way ----
    /// Errors: kInvalidArgument.
    [[nodiscard]] Status plan(std::span<const GpuEncodeRequest> requests, const DevicePlace& place,
                              const GpuEncoderLimits& limits) {
        return batch_.plan(requests, place, limits);
    }
    /// Makes room. Errors: kResourceExhausted, kUnavailable.
    [[nodiscard]] Status prepare(const GpuEncoderLimits& limits);

    // ---- each enqueues and returns. Errors: kUnavailable ----
    /// The upload, and the rounds that concern no other device.
    [[nodiscard]] Status start(SharedCounts* shared);
    static constexpr unsigned kTopKSteps = 6, kListSteps = 2;
    /// Steps of a shared round: before each but the first, a lane waits for all others' last one.
    [[nodiscard]] static unsigned shared_steps(const RoundPlan& round) noexcept {
        return (round.has_top_k ? kTopKSteps : kListSteps) + (round.looks > 1 ? round.looks - 1 : 0);
    }
    [[nodiscard]] Status run_shared_step(std::size_t shared_round, unsigned step);
    [[nodiscard]] std::size_t shared_rounds() const noexcept { return batch_.rounds().size() - first_shared(); }
    [[nodiscard]] const RoundPlan& shared_plan(std::size_t shared_round) const {
        return batch_.rounds()[first_shared() + shared_round];
    }
    /// Results on their way back.
    [[nodiscard]] Status end();

    // ---- results, once the stream is synchronized ----
    [[nodiscard]] const TensorState& state_of(std::size_t tensor) const {
        return downloaded<TensorState>(batch_.layout().tensor_states)[tensor];
    }
    /// Adds the chunks of tensors without trouble to their results. Those beyond the batch's mirror get memory from
    /// their pools, and it is noted where their bytes are. `own_pool`: of requests that bring none.
    void take_chunks(std::span<const GpuEncodeRequest> requests, const PayloadPool& own_pool,
                     std::span<EncodeResult> inout_results);
    /// Copies the bytes of what was noted. Errors: kUnavailable.
    [[nodiscard]] Status fetch() { return fetch_payloads(stream_, memory_, places_); }

    [[nodiscard]] const EncodeBatch& batch() const noexcept { return batch_; }
    [[nodiscard]] const Stream& stream() const noexcept { return stream_; }
    [[nodiscard]] const StreamEvent& event() const noexcept { return event_; }
    [[nodiscard]] ByteCount device_bytes() const noexcept { return memory_.device_bytes() + signer_.workspace_bytes(); }
    [[nodiscard]] GpuSigner& signer() noexcept { return signer_; }

private:
    [[nodiscard]] std::size_t first_shared() const noexcept;
    [[nodiscard]] Status take_plan();
    [[nodiscard]] Status run_round(std::size_t number);
    [[nodiscard]] Status run_scope(std::size_t number);
    [[nodiscard]] Status find_clips(const RoundPlan& plan, EncodeRound round);
    [[nodiscard]] Status run_passes(std::size_t number);
    [[nodiscard]] Status run_look(const RoundPlan& plan, const EncodeRound& round);
    [[nodiscard]] Status stage(const PassPlan& pass);
    /// How a dense pass is launched on this device.
    struct PassShape {
        KernelHandle kernel = nullptr;
        std::uint32_t blocks = 0;  ///< that the device runs at a time
        std::uint32_t stages = 0;
        std::uint32_t shared_bytes = 0;
    };
    [[nodiscard]] Status launch(KernelHandle kernel, std::uint32_t blocks, const EncodeRound& round,
                                unsigned threads = kTileThreads, std::uint32_t shared_bytes = 0);
    [[nodiscard]] Status filter(const RoundPlan& plan, const EncodeRound& round);
    [[nodiscard]] Status code(const RoundPlan& plan, const EncodeRound& round);
    [[nodiscard]] EncodeRound describe(std::size_t number) const;
    [[nodiscard]] Result<PassShape> find_shape(const PassKernel& pass);
    [[nodiscard]] Result<PassShape> shape_of(const RoundPlan& round);
    [[nodiscard]] Result<ByteCount> scratch_bytes();
    template <typename T>
    [[nodiscard]] const T* downloaded(ByteCount offset) const {
        return memory_.download.as<T>(offset - batch_.layout().tensor_states);
    }

    // Constant after construction.
    Stream stream_;
    StreamEvent event_;
    int multiprocessors_ = 0;
    bool may_begin_early_ = false;
    // Of the batch under way.
    EncodeBatch batch_;
    std::shared_ptr<HostMirror> mirror_;  ///< where its payloads come to lie, and stay
    std::vector<PayloadPlace> places_;
    // Kept from batch to batch.
    EncodeMemory memory_;
    GpuSigner signer_;
    std::vector<PassShape> shapes_;
};

}  // namespace gradsieve::codec::cuda
