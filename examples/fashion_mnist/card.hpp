// Gradients on a GPU for the demo: one block of device memory, each tensor's micro-batches a part of it, as a
// framework's caching allocator would hand it out. The demo computes on the CPU and copies; a real trainer's gradients
// are there already. One thread; throws std::runtime_error with CUDA's words.
#pragma once

#include <gradsieve/gradsieve.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace gradsieve::example {

class Card {
public:
    /// `elements`: of each tensor; every tensor has room for `samples` slices.
    Card(const std::vector<std::size_t>& elements, std::uint32_t samples);
    Card(const Card&) = delete;
    Card& operator=(const Card&) = delete;
    ~Card();

    /// What bind_device wants for a tensor.
    [[nodiscard]] DeviceBuffer buffer(std::size_t tensor) const;
    /// Enqueues a copy of one micro-batch's gradient onto the card. `values` stays until `download`.
    void upload(std::size_t tensor, std::uint32_t sample, std::span<const float> values);
    /// The tensor's average, copied back.
    void download(std::size_t tensor, std::span<float> ret_values);

private:
    [[nodiscard]] float* slice(std::size_t tensor, std::uint32_t sample) const;

    std::vector<std::size_t> elements_;
    std::vector<std::size_t> offsets_;  ///< of each tensor's first slice, in floats
    float* block_ = nullptr;
    void* stream_ = nullptr;
};

}  // namespace gradsieve::example
