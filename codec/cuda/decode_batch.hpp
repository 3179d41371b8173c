// A decoder's memory on one device and the steps of one batch, each enqueued on its stream: upload, lists, averages,
// answers.
// Apart from GpuDecoder so that a benchmark can time them one by one. One thread.
#pragma once

#include "codec/cuda/decode_plan.hpp"
#include "codec/cuda/gather_threads.hpp"
#include "codec/cuda/stream_event.hpp"

namespace gradsieve::codec::cuda {

class DecodeBatch {
public:
    /// Errors: kUnavailable.
    [[nodiscard]] Status open(int device, unsigned multiprocessors);

    /// Plans the batch and grows the memory to it. Nothing is enqueued. Errors: kInvalidArgument, kResourceExhausted,
    /// kUnavailable.
    [[nodiscard]] Status prepare(std::span<const GpuDecodeRequest> requests, const DevicePlace& place = {},
                                 const GpuDecoderLimits& limits = {});
    /// Each enqueues and returns; in this order, the three in the middle once for every round. Errors: kUnavailable;
    /// earlier work is then still under way.
    [[nodiscard]] Status upload();
    [[nodiscard]] Status read_lists(const DecodeRound& round);
    [[nodiscard]] Status average(const DecodeRound& round);
    [[nodiscard]] Status copy_out(const DecodeRound& round);
    [[nodiscard]] Status download();
    /// All of them.
    [[nodiscard]] Status enqueue();

    [[nodiscard]] const DecodePlan& plan() const noexcept { return plan_; }
    [[nodiscard]] const Stream& stream() const noexcept { return stream_; }
    [[nodiscard]] const StreamEvent& event() const noexcept { return event_; }
    [[nodiscard]] ByteCount device_bytes() const noexcept;
    /// What came back, once the stream is synchronized after `download`.
    [[nodiscard]] const TensorReport& report_of(std::size_t request) const;
    [[nodiscard]] std::span<const std::uint32_t> touched_of(std::size_t request) const;
    [[nodiscard]] std::span<const std::uint32_t> faults_of(std::size_t request) const;

private:
    void point_tables();
    [[nodiscard]] Status fetch();

    Stream stream_;
    StreamEvent event_;
    GatherThreads threads_;
    AverageBlocks average_blocks_;
    DecodePlan plan_;
    PinnedMemory staging_, fetches_, answers_;
    DeviceMemory upload_, entries_, list_tables_, masks_, result_staging_;
    DecodeTables tables_;
};

}  // namespace gradsieve::codec::cuda
