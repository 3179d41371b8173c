#include "examples/fashion_mnist/card.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace gradsieve::example {
namespace {

void must(cudaError_t error, const char* doing) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(doing) + ": " + cudaGetErrorString(error));
}

}  // namespace

Card::Card(const std::vector<std::size_t>& elements, std::uint32_t samples) : elements_(elements) {
    std::size_t total = 0;
    for (const auto count : elements) {
        offsets_.push_back(total);
        total += (count * samples + 63) / 64 * 64;
    }
    must(cudaMalloc(reinterpret_cast<void**>(&block_), total * sizeof(float)), "memory on the card");
    cudaStream_t stream = nullptr;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream on the card");
    stream_ = stream;
}

Card::~Card() {
    static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream_)));
    static_cast<void>(cudaFree(block_));
}

float* Card::slice(std::size_t tensor, std::uint32_t sample) const {
    return block_ + offsets_[tensor] + sample * elements_[tensor];
}

DeviceBuffer Card::buffer(std::size_t tensor) const {
    DeviceBuffer buffer;
    buffer.pointer = slice(tensor, 0);
    buffer.elements = elements_[tensor];
    buffer.stream = stream_;
    return buffer;
}

void Card::upload(std::size_t tensor, std::uint32_t sample, std::span<const float> values) {
    must(cudaMemcpyAsync(slice(tensor, sample), values.data(), values.size_bytes(), cudaMemcpyHostToDevice,
                         static_cast<cudaStream_t>(stream_)),
         "copying a gradient to the card");
}

void Card::download(std::size_t tensor, std::span<float> ret_values) {
    auto* const stream = static_cast<cudaStream_t>(stream_);
    must(cudaMemcpyAsync(ret_values.data(), slice(tensor, 0), ret_values.size_bytes(), cudaMemcpyDeviceToHost, stream),
         "copying an average from the card");
    must(cudaStreamSynchronize(stream), "waiting for the card");
}

}  // namespace gradsieve::example
