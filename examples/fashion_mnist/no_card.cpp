// What the demo's trainer says where it was built without CUDA.
#include "examples/fashion_mnist/card.hpp"

#include <stdexcept>

namespace gradsieve::example {

Card::Card(const std::vector<std::size_t>&, std::uint32_t) {
    throw std::runtime_error(
        "--place card: this build has no CUDA; build where nvcc is found, or leave the option out");
}
Card::~Card() = default;
DeviceBuffer Card::buffer(std::size_t) const { return {}; }
void Card::upload(std::size_t, std::uint32_t, std::span<const float>) {}
void Card::download(std::size_t, std::span<float>) {}

}  // namespace gradsieve::example
