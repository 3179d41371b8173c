// What the decoder's sections share: payloads made by the CPU's encoder, device memory with poison and guard zones, and
// one call that decodes a batch on GPU and CPU and compares everything. Threads only inside a call.
#pragma once

#include "codec/cuda/gpu_decoder.hpp"
#include "gpu_check.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gradsieve::gpu_check {

/// A payload that tests may copy and spoil.
struct CodedChunk {
    std::uint32_t chunk_index = 0;
    Bytes bytes;
};

/// Calls `work(i)` for every i < `count` on all cores.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work);
/// `count` values, near normal, from integers alone.
[[nodiscard]] std::vector<float> make_gradient_pool(std::size_t count, std::uint64_t seed);
/// One node's chunks of a tensor: two samples, fresh state. `samples`: `elements` floats each.
[[nodiscard]] std::vector<CodedChunk> encode_on_cpu(const codec::Pipeline& pipeline, ElementCount elements,
                                                    std::span<const float* const> samples,
                                                    std::uint64_t random_seed = 0);

/// One node's part of one step.
struct NodeStep {
    float factor = 1;
    std::vector<CodedChunk> chunks;
};
/// A tensor's results on both sides, and what each step's nodes sent.
struct DecodeCase {
    std::string name;
    ElementCount elements = 0;
    std::vector<std::vector<NodeStep>> steps;
};

/// How a case's results are laid out; chosen by number, so that a batch has all of them.
struct ResultLayout {
    codec::cuda::ElementType type = codec::cuda::ElementType::kF32;
    std::size_t offset_elements = 0;  ///< from a 256-byte boundary
    bool holds_last = true;
};
[[nodiscard]] std::vector<ResultLayout> result_layouts(std::size_t variant);

/// Decodes batches of cases step after step on both sides. Poisons results that hold nothing, checks guard zones, bits
/// of every result, digests, counts and error texts.
class DecodeComparison {
public:
    /// `variant` of the first case; the others follow, and one in four is added to a base. `devices`: the decoder's, in
    /// its order, if there are several; the results lie on them in turn.
    DecodeComparison(codec::cuda::GpuDecoder& decoder, std::vector<DecodeCase> cases, std::size_t variant,
                     std::vector<int> devices = {});
    ~DecodeComparison();
    void run_step(std::size_t step, Report& report);
    /// Decodes refused so far.
    [[nodiscard]] std::size_t refused() const noexcept { return refused_; }

private:
    struct Side;
    struct PlacedResult;
    /// One device's results, with guard zones, and what was seen of them after a step.
    struct Memory {
        int device = 0;
        codec::cuda::DeviceMemory data;
        std::vector<std::byte> seen;
    };
    void place_results(std::size_t variant);
    void add_base(std::size_t place, std::size_t variant);
    void poison(bool is_all);
    void compare(std::size_t place, const Result<codec::DecodeResult>& gpu, const Result<codec::DecodeResult>& cpu,
                 std::size_t step, Report& report);

    codec::cuda::GpuDecoder& decoder_;
    std::vector<DecodeCase> cases_;
    std::vector<Side> sides_;
    std::vector<Memory> memories_;
    std::vector<std::vector<codec::cuda::DeviceRange>> ranges_;  ///< of each case; empty with one device
    std::size_t refused_ = 0;
};

/// Ends the program with CUDA's words if a call failed: nothing after it would mean anything.
void require_cuda(int error, const char* doing);

}  // namespace gradsieve::gpu_check
