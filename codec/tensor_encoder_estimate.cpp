// The route of selectors that estimate a threshold: looks at the tensor until it is known, then lists what is above.
#include "codec/tensor_encoder.hpp"
#include "codec/threshold_estimate.hpp"

#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kChunkTiles = kEstimateGroupTiles * kEstimateGroups;

/// Joins the tiles' sums of a tensor in the order of threshold_estimate.hpp.
class SumJoiner {
public:
    /// The tiles' sums of one chunk, those that do not exist +0; they are used up.
    void add_chunk(std::array<double, kChunkTiles>& tiles) noexcept {
        for (std::uint32_t group = 0; group < kEstimateGroups; ++group) {
            double* sums = tiles.data() + std::size_t{group} * kEstimateGroupTiles;
            for (std::uint32_t width = kEstimateGroupTiles / 2; width > 0; width /= 2)
                for (std::uint32_t i = 0; i < width; ++i) sums[i] += sums[i + width];
        }
        for (std::uint32_t width = kEstimateGroups / 2; width > 0; width /= 2)
            for (std::uint32_t i = 0; i < width; ++i)
                tiles[std::size_t{i} * kEstimateGroupTiles] += tiles[std::size_t{i + width} * kEstimateGroupTiles];
        total_ += tiles[0];
        tiles.fill(0);
    }
    [[nodiscard]] double total() const noexcept { return total_; }

private:
    double total_ = 0;
};

}  // namespace

/// One look at a tensor, a tile at a time in ascending order.
class EstimateLook {
public:
    EstimateLook(const EstimateRule& rule, const EstimateState& state, unsigned look, const PayloadKernels& kernels)
        : rule_(rule), state_(state), look_(look), kernels_(kernels) {}

    void add_tile(const float* values, std::uint32_t count) noexcept {
        if (is_counting(rule_.is_gaussian, look_)) {
            for (unsigned number = 0; number < kCountedThresholds; ++number)
                sums_.counts[number] += kernels_.count_above(values, count, counted_floor(state_, number));
            return;
        }
        if (look_ == 0) sums_.largest = std::max(sums_.largest, kernels_.largest_magnitude(values, count));
        if (rule_.is_gaussian) {
            tile_sums_[tile_] = kernels_.signed_sums(values, count, &tile_squares_[tile_]);
        } else {
            tile_sums_[tile_] = kernels_.sum_above(values, count, state_.floor, &sums_.least);
            sums_.counts[0] += kernels_.count_above(values, count, state_.floor);
        }
        if (++tile_ == kChunkTiles) end_chunk();
    }
    [[nodiscard]] EstimateSums finish() noexcept {
        end_chunk();
        sums_.sum = sum_.total();
        sums_.squares = squares_.total();
        return sums_;
    }

private:
    void end_chunk() noexcept {
        if (tile_ == 0) return;
        sum_.add_chunk(tile_sums_);
        squares_.add_chunk(tile_squares_);
        tile_ = 0;
    }

    const EstimateRule& rule_;
    const EstimateState& state_;
    unsigned look_;
    const PayloadKernels& kernels_;
    EstimateSums sums_;
    std::array<double, kChunkTiles> tile_sums_{}, tile_squares_{};
    SumJoiner sum_, squares_;
    std::uint32_t tile_ = 0;
};

/// Adds the tiles of r from `first` on.
void TensorEncoder::look_at(ElementCount first, std::size_t elements, EstimateLook& inout_look) const {
    const float* residual = request_.out.residual + first;
    for (std::size_t done = 0; done < elements; done += kTileElements)
        inout_look.add_tile(residual + done,
                            static_cast<std::uint32_t>(std::min<std::size_t>(kTileElements, elements - done)));
}

/// The dense pass lists nothing, since nothing is known; the first look takes each span while it is in the caches.
bool TensorEncoder::estimate_floor(const EstimateRule& rule, EstimateState& ret_state) {
    EstimateLook first_look(rule, ret_state, 0, kernels_);
    for (ElementCount first = 0; first < request_.elements; first += kListSpanElements) {
        DenseSpan span = span_at(first, std::min<ElementCount>(kListSpanElements, request_.elements - first));
        span.magnitude_floor = kNeverGuess;
        if (!list_span(span)) return false;
        look_at(first, span.elements, first_look);
    }
    finish_dense_pass(plan_);
    EstimateSums sums = first_look.finish();
    for (unsigned look = 0;; ++look) {
        decide_threshold(rule, look, sums, ret_state);
        if (look + 1U == rule.looks) return true;
        EstimateLook next_look(rule, ret_state, look + 1, kernels_);
        look_at(0, request_.elements, next_look);
        sums = next_look.finish();
    }
}

bool TensorEncoder::collect_estimated() {
    const EstimateRule rule = estimate_rule(pipeline_.selector, request_.elements);
    SelectionList& list = candidates_.list;
    list.clear();
    EstimateState state;
    if (!estimate_floor(rule, state)) return false;
    candidates_.top_k.begin(list, rule.most, state.floor);
    collect_residual(false);
    static_cast<void>(candidates_.top_k.finish());
    return true;
}

}  // namespace gradsieve::codec
