#include "codec/cuda/gpu_decoder.hpp"

#include "codec/cuda/decode_batch.hpp"

#include <utility>

namespace gradsieve::codec::cuda {
namespace {

class Decoder final : public GpuDecoder {
public:
    [[nodiscard]] Status open(int device) { return batch_.open(device); }
    ~Decoder() override {
        if (is_under_way_) static_cast<void>(batch_.stream().synchronize());  // before its memory goes
    }

    [[nodiscard]] Status begin(std::span<const GpuDecodeRequest> tensors) override {
        if (is_under_way_)
            return {StatusCode::kFailedPrecondition,
                    "GPU decoder: begin during a batch: allowed is one batch at a time; finish it first"};
        GRADSIEVE_TRY(batch_.prepare(tensors));
        is_under_way_ = true;
        Status status = enqueue();
        if (status.is_ok()) return status;
        static_cast<void>(batch_.stream().synchronize());
        is_under_way_ = false;
        forget_touched();
        return status;
    }

    [[nodiscard]] Status finish(std::span<Result<DecodeResult>> ret_results) override {
        if (!is_under_way_)
            return {StatusCode::kFailedPrecondition,
                    "GPU decoder: finish without a batch: allowed is once after each begin; begin first"};
        is_under_way_ = false;
        if (Status status = batch_.stream().synchronize(); !status.is_ok()) {
            forget_touched();
            return status;
        }
        const auto requests = batch_.plan().requests();
        if (ret_results.size() != requests.size())
            return {StatusCode::kInvalidArgument, "GPU decoder: results " + std::to_string(ret_results.size()) +
                                                      ": allowed is one for each of " +
                                                      std::to_string(requests.size()) + " requests; hand over as many"};
        for (std::size_t request = 0; request < requests.size(); ++request) {
            ret_results[request] = result_of(request);
            remember_touched(request, ret_results[request].is_ok());
        }
        return {};
    }

    [[nodiscard]] const Stream& stream() const noexcept override { return batch_.stream(); }
    [[nodiscard]] ByteCount workspace_bytes() const noexcept override { return batch_.device_bytes(); }

private:
    Status enqueue() {
        if (batch_.plan().requests().empty()) return {};
        GRADSIEVE_TRY(batch_.upload());
        for (const DecodeRound& round : batch_.plan().rounds()) {
            GRADSIEVE_TRY(batch_.read_lists(round));
            GRADSIEVE_TRY(batch_.average(round));
        }
        return batch_.download();
    }

    Result<DecodeResult> result_of(std::size_t request) const {
        const DecodePlan& plan = batch_.plan();
        if (!plan.plan_of(request).refusal.is_ok()) return plan.plan_of(request).refusal;
        const TensorReport& report = batch_.report_of(request);
        if (report.has_bad_list != 0 || report.has_bad_value != 0)
            return explain_refusal(plan.requests()[request].elements, plan.payloads_of(request),
                                   batch_.faults_of(request));
        return DecodeResult{report.digest, report.touched_elements};
    }

    /// After an error nobody knows what the results hold: every tile is written next time.
    void remember_touched(std::size_t request, bool is_ok) const {
        TouchedTiles* const touched = batch_.plan().requests()[request].touched;
        if (touched == nullptr) return;
        touched->words.clear();
        if (!is_ok) return;
        const auto words = batch_.touched_of(request);
        touched->words.assign(words.begin(), words.end());
    }

    void forget_touched() const {
        for (std::size_t request = 0; request < batch_.plan().requests().size(); ++request)
            remember_touched(request, false);
    }

    DecodeBatch batch_;
    bool is_under_way_ = false;
};

}  // namespace

Result<std::unique_ptr<GpuDecoder>> GpuDecoder::make(int device) {
    auto decoder = std::make_unique<Decoder>();
    GRADSIEVE_TRY(decoder->open(device));
    return Result<std::unique_ptr<GpuDecoder>>(std::move(decoder));
}

}  // namespace gradsieve::codec::cuda
