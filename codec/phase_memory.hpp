// The inside of PhaseMemory. Included by what runs its phases only.
#pragma once

#include "codec/phases.hpp"
#include "codec/select_topk.hpp"
#include "codec/stages/low_rank.hpp"
#include "codec/stages/sketch.hpp"

#include <optional>
#include <vector>

namespace gradsieve::codec {

struct LowRankMemory {
    MatrixShape shape;
    std::vector<float> factors;  ///< Q, transposed, its columns of norm 1: `rank` rows
    std::vector<float> left;     ///< this node's P, row by row; the orthonormal one of all once they are decoded
    std::vector<float> right;    ///< this node's Q', transposed
    std::vector<float> left_mean, right_mean;
    std::vector<double> columns;  ///< scratch
    ResultTensor left_average, right_average;
    float* factor_out = nullptr;  ///< where Q' of all belongs; null if this node has not encoded the second phase

    explicit LowRankMemory(const MatrixShape& matrix);
    LowRankMemory(const LowRankMemory&) = delete;
    [[nodiscard]] static ByteCount bytes(const MatrixShape& matrix) noexcept;

    /// Returns whether anybody sent anything. Errors: kCorrupt.
    [[nodiscard]] Result<bool> decode_first(const PhaseStep& at, std::span<const Contribution> contributions);
    /// Q' of all from the second phase's payloads; false: nobody sent anything. Errors: as decode_last_phase.
    [[nodiscard]] Result<bool> average_right(Step step, std::span<const Contribution> contributions);
    /// The result is there: Q' of all is the next step's Q, if this node takes part.
    void keep_factor();
    [[nodiscard]] Result<DecodeResult> decode_last(Step step, std::span<const Contribution> contributions,
                                                   ResultTensor& inout_result);
};

struct SketchMemory {
    SketchShape shape;
    SketchDraws draws;
    std::vector<float> cells;  ///< with room behind each row: this node's sums, and then the mean sketch
    std::vector<float> rows, row_mean;
    std::vector<ElementCount> chosen;  ///< k elements, ascending, whose exact values are sent
    std::vector<float> values, value_mean;
    ResultTensor row_average, value_average;
    SelectionList list;
    TopKCollector top_k;
    SpanCells span_cells;
    std::vector<float> estimates;  ///< of one span
    TopKHint hint;                 ///< the last k-th estimate: speed alone
    /// decode_first leaves the choice open, for a device to make; whoever needs it on the host makes it there.
    bool leaves_choice = false;
    bool is_choice_open = false;  ///< `row_mean` and `draws` say what `chosen` does not yet

    explicit SketchMemory(const SketchShape& sketch);
    SketchMemory(const SketchMemory&) = delete;
    [[nodiscard]] static ByteCount bytes(const SketchShape& sketch) noexcept;

    /// Returns whether anybody sent anything. Errors: kCorrupt.
    [[nodiscard]] Result<bool> decode_first(const PhaseStep& at, std::span<const Contribution> contributions);
    /// `chosen` is what the mean sketch says.
    void close_choice();
    /// `value_mean` from the second phase's payloads; false: nobody sent anything. Errors: kCorrupt.
    [[nodiscard]] Result<bool> average_values(Step step, std::span<const Contribution> contributions);
    [[nodiscard]] Result<DecodeResult> decode_last(Step step, std::span<const Contribution> contributions,
                                                   ResultTensor& inout_result);

private:
    void list_estimates(std::uint32_t floor);
    void choose();
};

struct PhaseMemory::Impl {
    enum class Stage : std::uint8_t {
        kNone,
        kSampled,   ///< the first phase is encoded
        kAveraged,  ///< and decoded
    };

    ElementCount elements = 0;
    std::optional<LowRankMemory> low_rank;  ///< one of the two
    std::optional<SketchMemory> sketch;
    Stage stage = Stage::kNone;
    Step step = 0;
    bool sends = false;  ///< somebody sent anything in the first phase

    Impl(const Pipeline& pipeline, ElementCount element_count);
};

// What phases do of what is sent alone, wherever the tensor lies.

/// As encode_phase says.
[[nodiscard]] Status check_phase(unsigned phase, const EncodeRequest& request, const PhaseMemory::Impl& memory);
/// A checked phase begins: the memory is this step's, and the second phase's `out.factor` is `in.factor` until
/// keep_factor.
void open_phase(unsigned phase, const EncodeRequest& request, PhaseMemory::Impl& inout_memory);
/// The payloads that a phase's numbers travel in, as those of a tensor of its own.
void append_numbers(std::span<const float> numbers, const PayloadPool& pool, EncodeResult& inout_result);
/// The last phase of that step is to be decoded. Errors: as decode_last_phase, of the step.
[[nodiscard]] Status close_phases(Step step, PhaseMemory::Impl& inout_memory);

}  // namespace gradsieve::codec
