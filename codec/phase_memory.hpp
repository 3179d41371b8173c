// The inside of PhaseMemory. Included by what runs its phases only.
#pragma once

#include "codec/low_rank.hpp"
#include "codec/phases.hpp"

#include <vector>

namespace gradsieve::codec {

struct PhaseMemory::Impl {
    enum class Stage : std::uint8_t {
        kNone,
        kSampled,   ///< the first phase is encoded
        kAveraged,  ///< and decoded
    };

    MatrixShape shape;
    std::vector<float> factors;  ///< Q, transposed, its columns of norm 1: `rank` rows
    std::vector<float> left;     ///< this node's P, row by row; the orthonormal one of all once they are decoded
    std::vector<float> right;    ///< this node's Q', transposed
    std::vector<float> left_mean, right_mean;
    std::vector<double> columns;  ///< scratch
    ResultTensor left_average, right_average;
    Stage stage = Stage::kNone;
    Step step = 0;
    bool sends = false;           ///< somebody sent anything in the first phase
    float* factor_out = nullptr;  ///< where Q' of all belongs; null if this node has not encoded the second phase

    explicit Impl(const MatrixShape& matrix);
};

// What phases do of factors alone, wherever the matrix lies.

/// As encode_phase says.
[[nodiscard]] Status check_phase(unsigned phase, const EncodeRequest& request, const PhaseMemory::Impl& memory);
/// A checked phase begins: the memory is this step's, and the second phase's `out.factor` is `in.factor` until
/// keep_factor.
void open_phase(unsigned phase, const EncodeRequest& request, PhaseMemory::Impl& inout_memory);
/// The payloads that a factor travels in, as those of a tensor of its own.
void append_factor(std::span<const float> factor, const PayloadPool& pool, EncodeResult& inout_result);
/// Q' of all from the second phase's payloads; false: nobody sent anything. Errors: as decode_last_phase.
[[nodiscard]] Result<bool> average_right(Step step, std::span<const Contribution> contributions,
                                         PhaseMemory::Impl& inout_memory);
/// The result is there: Q' of all is the next step's Q, if this node takes part.
void keep_factor(PhaseMemory::Impl& inout_memory);

}  // namespace gradsieve::codec
