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

}  // namespace gradsieve::codec
