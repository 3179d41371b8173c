#include "codec/cuda/gpu_decoder.hpp"

#include "codec/cuda/decode_batch.hpp"
#include "codec/difference.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace gradsieve::codec::cuda {
namespace {

class Decoder final : public GpuDecoder {
public:
    Decoder(const GpuDecoderLimits& limits, PeerAccess peers) : limits_(limits), peers_(std::move(peers)) {}
    [[nodiscard]] Status open(std::span<const int> devices) {
        for (const int device : devices) {
            lanes_.push_back(std::make_unique<DecodeBatch>());
            GRADSIEVE_TRY(lanes_.back()->open(device, limits_.multiprocessors));
        }
        return {};
    }
    ~Decoder() override {
        if (is_under_way_) static_cast<void>(synchronize());  // before its memory goes
    }

    [[nodiscard]] Status begin(std::span<const GpuDecodeRequest> tensors) override {
        if (is_under_way_)
            return {StatusCode::kFailedPrecondition,
                    "GPU decoder: begin during a batch: allowed is one batch at a time; finish it first"};
        for (std::size_t place = 0; place < lanes_.size(); ++place)
            GRADSIEVE_TRY(
                lanes_[place]->prepare(tensors, {place, lanes_.size(), stream(place).device(), &peers_}, limits_));
        is_under_way_ = true;
        Status status = enqueue();
        if (status.is_ok()) return status;
        static_cast<void>(synchronize());
        is_under_way_ = false;
        forget_touched();
        return status;
    }

    [[nodiscard]] Status finish(std::span<Result<DecodeResult>> ret_results) override {
        if (!is_under_way_)
            return {StatusCode::kFailedPrecondition,
                    "GPU decoder: finish without a batch: allowed is once after each begin; begin first"};
        is_under_way_ = false;
        if (Status status = synchronize(); !status.is_ok()) {
            forget_touched();
            return status;
        }
        const auto requests = lanes_.front()->plan().requests();
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

    [[nodiscard]] const Stream& stream(std::size_t place) const noexcept override { return lanes_[place]->stream(); }
    [[nodiscard]] ByteCount workspace_bytes(std::size_t place) const noexcept override {
        return lanes_[place]->device_bytes();
    }

private:
    Status enqueue() {
        if (lanes_.size() > 1) {
            GRADSIEVE_TRY(lanes_.front()->event().record(stream(0)));
            for (std::size_t place = 1; place < lanes_.size(); ++place)
                GRADSIEVE_TRY(lanes_.front()->event().hold_back(stream(place)));
        }
        for (const auto& lane : lanes_) GRADSIEVE_TRY(lane->enqueue());
        return {};
    }

    /// Waits for all, also where one has failed.
    Status synchronize() const {
        Status first;
        for (const auto& lane : lanes_)
            if (auto status = lane->stream().synchronize(); first.is_ok()) first = std::move(status);
        return first;
    }

    /// The devices' parts stand in ascending order: the first error is that of the first corrupt chunk.
    Result<DecodeResult> result_of(std::size_t request) const {
        constexpr auto kNone = std::numeric_limits<ElementCount>::max();
        DecodeResult sum;
        ElementCount bad_sum = kNone;
        for (const auto& lane : lanes_) {
            const DecodePlan& plan = lane->plan();
            if (!plan.plan_of(request).refusal.is_ok()) return plan.plan_of(request).refusal;
            const TensorReport& report = lane->report_of(request);
            if (report.has_bad_list != 0 || report.has_bad_value != 0)
                return explain_refusal(plan.requests()[request].elements, plan.payloads_of(request),
                                       lane->faults_of(request));
            sum.digest += report.digest;
            sum.touched_elements += report.touched_elements;
            if (report.bad_sum != 0) bad_sum = std::min<ElementCount>(bad_sum, ~report.bad_sum);
        }
        if (bad_sum == kNone) return sum;
        if (ElementCount* const first = lanes_.front()->plan().requests()[request].ret_bad_sum; first != nullptr)
            *first = bad_sum;
        return not_a_finite_sum();
    }

    /// After an error nobody knows what the results hold: every tile is written next time.
    void remember_touched(std::size_t request, bool is_ok) const {
        TouchedTiles* const touched = lanes_.front()->plan().requests()[request].touched;
        if (touched == nullptr) return;
        touched->words.clear();
        if (!is_ok) return;
        touched->words.resize(lanes_.front()->touched_of(request).size());
        for (const auto& lane : lanes_) {
            const auto words = lane->touched_of(request);
            for (std::size_t word = 0; word < words.size(); ++word) touched->words[word] |= words[word];
        }
    }

    void forget_touched() const {
        for (std::size_t request = 0; request < lanes_.front()->plan().requests().size(); ++request)
            remember_touched(request, false);
    }

    GpuDecoderLimits limits_;
    PeerAccess peers_;
    std::vector<std::unique_ptr<DecodeBatch>> lanes_;  ///< one per device
    bool is_under_way_ = false;
};

}  // namespace

Result<std::unique_ptr<GpuDecoder>> GpuDecoder::make(std::span<const int> devices, const GpuDecoderLimits& limits) {
    PeerAccess peers = PeerAccess::none(devices);
    if (limits.uses_peers) {
        GRADSIEVE_ASSIGN(peers, PeerAccess::open(devices));
    }
    auto decoder = std::make_unique<Decoder>(limits, std::move(peers));
    GRADSIEVE_TRY(decoder->open(devices));
    return Result<std::unique_ptr<GpuDecoder>>(std::move(decoder));
}

}  // namespace gradsieve::codec::cuda
