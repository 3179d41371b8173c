#include "codec/rotation.hpp"

#include "codec/payload_kernels.hpp"

#include <array>

namespace gradsieve::codec {
namespace {

using TileSigns = std::array<std::uint32_t, kTileMaskWords>;

void draw_signs(PhiloxKey key, std::uint32_t first, std::size_t elements, TileSigns& ret_signs) noexcept {
    const auto counters = static_cast<std::uint32_t>((elements + 127) / 128);
    for (std::uint32_t counter = 0; counter < counters; ++counter) {
        const PhiloxBlock block = selection_words(key, kRotationPurpose, first / 128 + counter, 0);
        for (std::uint32_t word = 0; word < 4; ++word) ret_signs[4 * counter + word] = block.words[word];
    }
}

}  // namespace

PhiloxKey rotation_key(std::uint64_t seed, TensorId tensor, Step step, std::uint32_t chunk) noexcept {
    const std::uint64_t key = mix64(mix64(mix64(mix64(seed) + tensor) + step) + chunk + 1);
    return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)};
}

void rotate_tile(PhiloxKey key, std::uint32_t first, std::span<const float> values, const PayloadKernels& kernels,
                 float* ret_rotated) noexcept {
    TileSigns signs;
    draw_signs(key, first, values.size(), signs);
    kernels.rotate(signs.data(), values.data(), static_cast<std::uint32_t>(values.size()), ret_rotated);
}

void rotate_tile_back(PhiloxKey key, std::uint32_t first, std::span<const float> rotated, const PayloadKernels& kernels,
                      float* ret_values) noexcept {
    TileSigns signs;
    draw_signs(key, first, rotated.size(), signs);
    kernels.rotate_back(signs.data(), rotated.data(), static_cast<std::uint32_t>(rotated.size()), ret_values);
}

void add_rotated_back(PhiloxKey key, std::uint32_t first, std::span<float> inout_rotated, const PayloadKernels& kernels,
                      float* inout_sums) noexcept {
    rotate_tile_back(key, first, inout_rotated, kernels, inout_rotated.data());
    for (std::size_t i = 0; i < inout_rotated.size(); ++i) inout_sums[i] = inout_sums[i] + inout_rotated[i];
}

}  // namespace gradsieve::codec
