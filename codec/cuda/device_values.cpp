#include "codec/cuda/device_values.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/element.hpp"

#include <bit>

namespace gradsieve::codec::cuda {
namespace {

float float_of(std::uint16_t bits, ElementType type) {
    if (type == ElementType::kBf16) return element::float_of(std::uint32_t{bits} << 16U);
    return static_cast<float>(std::bit_cast<_Float16>(bits));
}
std::uint16_t half_of(float value, ElementType type) {
    if (type == ElementType::kBf16) return static_cast<std::uint16_t>(element::bf16_bits(value));
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

Status copy(const Stream& stream, void* to, const void* from, ByteCount bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return {};
    GRADSIEVE_TRY(stream.make_current());
    GRADSIEVE_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, kind, static_cast<cudaStream_t>(stream.handle())),
                       "copying a tensor's values");
    return stream.synchronize();
}

}  // namespace

Status read_values(const Stream& stream, const void* array, ElementType type, std::span<float> ret_values) {
    if (type == ElementType::kF32)
        return copy(stream, ret_values.data(), array, ret_values.size_bytes(), cudaMemcpyDeviceToHost);
    std::vector<std::uint16_t> halves(ret_values.size());
    GRADSIEVE_TRY(copy(stream, halves.data(), array, halves.size() * sizeof(std::uint16_t), cudaMemcpyDeviceToHost));
    for (std::size_t element = 0; element < halves.size(); ++element)
        ret_values[element] = float_of(halves[element], type);
    return {};
}

Status write_values(const Stream& stream, std::span<const float> values, void* array, ElementType type) {
    if (type == ElementType::kF32)
        return copy(stream, array, values.data(), values.size_bytes(), cudaMemcpyHostToDevice);
    std::vector<std::uint16_t> halves(values.size());
    for (std::size_t element = 0; element < halves.size(); ++element) halves[element] = half_of(values[element], type);
    return copy(stream, array, halves.data(), halves.size() * sizeof(std::uint16_t), cudaMemcpyHostToDevice);
}

}  // namespace gradsieve::codec::cuda
