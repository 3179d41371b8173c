// The part of sketch that touches every element of a tensor, in the memory of one device; cells and values go to the
// host and come from there. Several tensors at a time, with one copy each way and one wait for all. The same bits as
// codec/stages/sketch.hpp and what SketchMemory chooses. GPU worker thread.
#pragma once

#include "codec/cuda/device.hpp"
#include "codec/cuda/gpu_decoder.hpp"
#include "codec/cuda/round_trip.hpp"
#include "codec/low_pass.hpp"
#include "codec/stages/sketch.hpp"

#include <optional>
#include <span>
#include <vector>

namespace gradsieve::codec::cuda {

/// ret_rows = this node's cells, as finish_sketch leaves them. `values`: the tensor, device memory, at least one
/// element and at most 2^32 - 1.
struct InsertWork {
    SketchShape shape;
    PhiloxKey key;
    const float* values = nullptr;
    std::span<float> ret_rows;
};
/// ret_chosen = the elements that the mean sketch `rows` points to; and, with a residual, ret_values = what it holds
/// there, which is then 0, as momentum is, if there is one.
struct ChooseWork {
    SketchShape shape;
    PhiloxKey key;
    std::span<const float> rows;
    float* residual = nullptr;  ///< device memory, as momentum
    float* momentum = nullptr;
    std::span<ElementCount> ret_chosen;
    std::span<float> ret_values;  ///< of no residual: empty
};
/// residual = what the low-pass of the pipeline keeps of it; device memory.
struct FilterWork {
    float* residual = nullptr;
    const float* before = nullptr;
    LowPassFactors factors;
    ElementCount elements = 0;
};
/// `values` of `chosen` into every result of this device (`data` and `type` of each), zeros elsewhere, and the digest
/// that ResultTensor::write_list gives.
struct ScatterWork {
    ElementCount elements = 0;
    TensorId tensor = 0;
    Step step = 0;
    std::span<const ElementCount> chosen;
    std::span<const float> values;
    std::vector<GpuResult> results;
    std::uint64_t* ret_digest = nullptr;  ///< null: nobody asks
};

class GpuSketch {
public:
    /// Calls nothing of CUDA. `multiprocessors`: of the device.
    GpuSketch(int device, int multiprocessors)
        : device_(device), multiprocessors_(multiprocessors), trip_(device, "cells of sketch") {}

    /// Behind what `stream` of the device holds; waits for it. Errors: kResourceExhausted (memory for cells),
    /// kUnavailable (the device failed: what was to be written is unspecified).
    [[nodiscard]] Status insert(const Stream& stream, std::span<const InsertWork> work);
    [[nodiscard]] Status choose(const Stream& stream, std::span<const ChooseWork> work);
    [[nodiscard]] Status filter(const Stream& stream, std::span<const FilterWork> work);
    [[nodiscard]] Status scatter(const Stream& stream, std::span<const ScatterWork> work);

    [[nodiscard]] ByteCount workspace_bytes() const noexcept { return trip_.bytes() + scratch_.size(); }

private:
    [[nodiscard]] Status fit_scratch(const Stream& stream, ByteCount bytes);

    int device_ = 0;
    int multiprocessors_ = 1;
    RoundTrip trip_;
    DeviceMemory scratch_;  ///< of one tensor after the other; grows to its largest use
};

}  // namespace gradsieve::codec::cuda
