// Reads the IDX files of Fashion-MNIST (Debian: dataset-fashion-mnist), gzipped or not. Loaded once, then read-only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::example {

inline constexpr std::size_t kImagePixels = 28 * 28;
inline constexpr std::size_t kClasses = 10;

struct Dataset {
    std::vector<float> pixels;         ///< images x kImagePixels, scaled to zero mean and unit variance
    std::vector<std::uint8_t> labels;  ///< 0 .. kClasses-1
    [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
    [[nodiscard]] std::span<const float> image(std::size_t index) const {
        return std::span(pixels).subspan(index * kImagePixels, kImagePixels);
    }
};

/// `prefix` is "train" or "t10k". Throws std::runtime_error naming the file, what was found and which package brings
/// it.
[[nodiscard]] Dataset load_dataset(const std::string& folder, const std::string& prefix);

}  // namespace gradsieve::example
