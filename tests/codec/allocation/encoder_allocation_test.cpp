// In steady state encoding allocates the list of chunks and nothing else: payload memory comes from the pool.
#include "codec/encoder.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

namespace {
std::atomic<std::size_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
}  // namespace

// Replaced together, new and delete do match; GCC 12 looks at one of them after inlining and does not see that.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace gradsieve::codec {
namespace {

constexpr ElementCount kElements = kChunkElements + 100000;

/// Allocations of one call after some that warmed the workspace up.
std::size_t steady_allocations(const char* text, std::size_t& ret_chunks) {
    const auto pipeline = parse_pipeline(text);
    EXPECT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> gradient(kElements);
    for (float& value : gradient) value = normal(random);
    std::vector<float> residual[2] = {std::vector<float>(kElements), std::vector<float>(kElements)};
    std::vector<float> variance[2] = {std::vector<float>(kElements), std::vector<float>(kElements)};
    std::vector<float> momentum[2] = {std::vector<float>(kElements), std::vector<float>(kElements)};
    const float* samples[2] = {gradient.data(), gradient.data()};
    const float weights[2] = {0.5F, 0.5F};
    std::uint32_t hint = 0;
    EncodeRequest request;
    request.pipeline = &*pipeline;
    request.elements = kElements;
    request.samples = samples;
    request.weights = weights;
    request.selection_hint = &hint;
    EncodeWorkspace workspace;
    std::size_t counted = 0;
    for (int step = 0; step < 4; ++step) {
        // Two steps from the same state do the same work, so that the second finds every buffer grown.
        request.in = {residual[0].data(), variance[0].data(), momentum[0].data()};
        request.out = {residual[1].data(), variance[1].data(), momentum[1].data()};
        const std::size_t before = allocations.load(std::memory_order_relaxed);
        const auto result = encode_tensor(request, workspace);
        counted = allocations.load(std::memory_order_relaxed) - before;
        EXPECT_TRUE(result.is_ok() && !result->non_finite);
        ret_chunks = result->chunks.size();
        if (step == 1) residual[0] = residual[1], variance[0] = variance[1], momentum[0] = momentum[1];
    }
    return counted;
}

TEST(EncoderAllocation, Steady_state_allocates_the_result_only) {
    for (const char* text :
         {"all | f32", "all | f16", "all | bf16", "all | natural", "all | natural(none)", "all | integer(10)",
          "topk(0.1) | integer(10)", "all | sign", "all | pow2", "threshold(0.5)", "threshold(0.5) | natural",
          "topk(0.01) | f16", "variance(alpha=0.5) | f32", "variance(alpha=0.5) | pow2",
          "variance(alpha=0.5, mode=faithful) | pow2(scope=tensor)", "variance_hybrid(tau=0.5, alpha=0.5)",
          "topk(0.01) | pow2", "topk(0.01, gate=0.5) | sign", "momentum(clip=1) | topk(0.01) | pow2"}) {
        std::size_t chunks = 0;
        const std::size_t counted = steady_allocations(text, chunks);
        EXPECT_GT(chunks, 0U) << text;
        EXPECT_LE(counted, 1U) << text << ": the list of chunks";
    }
}
TEST(EncoderAllocation, The_counter_counts) {
    const std::size_t before = allocations.load(std::memory_order_relaxed);
    const std::vector<float> some(1000);
    EXPECT_EQ(allocations.load(std::memory_order_relaxed), before + 1) << some.size();
}

}  // namespace
}  // namespace gradsieve::codec
