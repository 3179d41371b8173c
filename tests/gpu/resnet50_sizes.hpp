// Sizes of the parameters of a ResNet-50: convolutions, batch normalizations (weight and bias) and the last layer, 25.6
// M in all. Computed, so that nobody has to trust a list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradsieve::gpu_check {

inline constexpr std::size_t kResNet50Tensors = 161;

[[nodiscard]] constexpr std::array<std::uint32_t, kResNet50Tensors> resnet50_sizes() {
    std::array<std::uint32_t, kResNet50Tensors> sizes{};
    std::size_t count = 0;
    const auto convolution = [&](std::uint32_t from, std::uint32_t to, std::uint32_t side) {
        sizes[count++] = from * to * side * side;
        sizes[count++] = to;
        sizes[count++] = to;
    };
    convolution(3, 64, 7);
    std::uint32_t from = 64;
    std::uint32_t width = 64;
    for (const unsigned blocks : {3U, 4U, 6U, 3U}) {
        for (unsigned block = 0; block < blocks; ++block) {
            convolution(from, width, 1);
            convolution(width, width, 3);
            convolution(width, 4 * width, 1);
            if (block == 0) convolution(from, 4 * width, 1);
            from = 4 * width;
        }
        width *= 2;
    }
    sizes[count++] = 2048 * 1000;
    sizes[count++] = 1000;
    return sizes;
}
inline constexpr auto kResNet50Sizes = resnet50_sizes();

}  // namespace gradsieve::gpu_check
