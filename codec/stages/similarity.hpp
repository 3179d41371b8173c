// How alike two gradients of one tensor are, from signatures of a fixed size: sums of the elements with random signs in
// buckets (a count sketch whose buckets go round robin). Elements 1,024 c .. 1,024 c + 1,023 go to one bucket each, the
// buckets turned by a random offset of c, so that no stride of a matrix meets one bucket alone; signs and offsets
// follow from the tensor's id, the same in every step and on every node. Then <S(x), S(y)> has the mean <x, y> and a
// variance of at most (|x|^2 |y|^2 + <x, y>^2) / 1,024, whatever x and y are, and the signs of S(x) are SimHash bits:
// where no few elements have most of a gradient, a bit differs between x and y with the probability angle(x, y) / pi.
// Sources: Charikar 2002, Similarity Estimation Techniques from Rounding Algorithms (SimHash); Charikar, Chen,
// Farach-Colton 2002, Finding Frequent Items in Data Streams (count sketch). Plain values; any thread.
#pragma once

#include "base/id.hpp"
#include "codec/signature_draw.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec {

struct FrontStage;

inline constexpr std::size_t kSignatureBytes = kSignatureBuckets * sizeof(double);

class Signature {
public:
    /// Of an array of zeros.
    Signature() : sums_(kSignatureBuckets, 0.0) {}
    /// Of the mean gradient, the sum over samples in order of fl(weight * sample). `samples`: `elements` floats each,
    /// read once; `weights`: one for each. Adds up in the order of signature_draw.hpp, so that it is the same on every
    /// machine and device.
    Signature(TensorId tensor, std::span<const float* const> samples, std::span<const float> weights,
              ElementCount elements);

    [[nodiscard]] std::span<const double> sums() const noexcept { return sums_; }
    /// The sums of the next chunk, kSignatureBuckets of them, which were added up elsewhere.
    void add_chunk(std::span<const double> chunk_sums) noexcept;
    /// One that was kept: kSignatureBuckets sums.
    [[nodiscard]] static Signature of_sums(std::span<const double> sums);
    /// left_factor x + right_factor y, to rounding, of the gradients x and y that they are of.
    [[nodiscard]] static Signature combined(const Signature& left, double left_factor, const Signature& right,
                                            double right_factor);
    /// Estimate of |x|^2 with a standard error of at most 4.5 %; exact up to 1,024 elements.
    [[nodiscard]] double square() const noexcept;

private:
    std::vector<double> sums_;
};

/// Estimate of the cosine of the angle between two gradients of one tensor, in [-1, 1]; its standard error is at most
/// about 1/22, and less the more alike they are. Nothing where one of them is zero or not finite.
[[nodiscard]] std::optional<double> cosine_of(const Signature& left, const Signature& right) noexcept;
/// SimHash bits that differ, of kSignatureBuckets.
[[nodiscard]] std::size_t differing_bits(const Signature& left, const Signature& right) noexcept;

namespace stages {

struct Similarity {
    static const FrontStage kStage;
};

}  // namespace stages

}  // namespace gradsieve::codec
