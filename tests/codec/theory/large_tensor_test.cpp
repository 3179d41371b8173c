// Tensors beyond 2^28 and 2^31 elements: where the index of the variance paper's word ends, and where 32-bit offsets
// would. Their arrays are mapped without memory behind them: zeros that nobody wrote, and outputs that all lie on the
// same few megabytes.
#include "codec/decoder.hpp"
#include "codec/encoder.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <vector>

namespace gradsieve::codec {
namespace {

constexpr std::size_t kWindowBytes = std::size_t{16} << 20U;

/// Address space of `elements` floats that read as zero until written.
class SparseArray {
public:
    enum class Backing { kZeros, kOneWindow };
    SparseArray(ElementCount elements, Backing backing)
        : bytes_((elements * sizeof(float) + kWindowBytes - 1) / kWindowBytes * kWindowBytes) {
        base_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base_ == MAP_FAILED || backing == Backing::kZeros) return;
        const int window = ::memfd_create("window", MFD_CLOEXEC);
        bool is_mapped = window >= 0 && ::ftruncate(window, static_cast<off_t>(kWindowBytes)) == 0;
        for (std::size_t offset = 0; is_mapped && offset < bytes_; offset += kWindowBytes)
            is_mapped = ::mmap(static_cast<std::byte*>(base_) + offset, kWindowBytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_FIXED, window, 0) != MAP_FAILED;
        if (window >= 0) ::close(window);
        if (!is_mapped) release();
    }
    SparseArray(const SparseArray&) = delete;
    SparseArray& operator=(const SparseArray&) = delete;
    ~SparseArray() { release(); }

    [[nodiscard]] bool is_mapped() const { return base_ != MAP_FAILED; }
    [[nodiscard]] float* data() const { return static_cast<float*>(base_); }

private:
    void release() {
        if (base_ != MAP_FAILED) ::munmap(base_, bytes_);
        base_ = MAP_FAILED;
    }
    std::size_t bytes_;
    void* base_ = MAP_FAILED;
};

/// A gradient that is zero but for `values`: those are sent, nothing else, and arrive where they belong.
void expect_sent(const std::string& codec, ElementCount elements, const std::map<ElementCount, float>& values) {
    const SparseArray sample(elements, SparseArray::Backing::kZeros);
    const SparseArray residual_in(elements, SparseArray::Backing::kOneWindow);
    const SparseArray residual_out(elements, SparseArray::Backing::kOneWindow);
    if (!sample.is_mapped() || !residual_in.is_mapped() || !residual_out.is_mapped())
        GTEST_SKIP() << "this system maps no " << elements * sizeof(float) << " bytes of address space without memory";
    for (const auto& [element, value] : values) sample.data()[element] = value;

    const Pipeline pipeline = *parse_pipeline(codec);
    const float* const samples[] = {sample.data()};
    const float weights[] = {1.0F};
    EncodeRequest request;
    request.pipeline = &pipeline;
    request.step = 1;
    request.elements = elements;
    request.samples = samples;
    request.weights = weights;
    request.in.residual = residual_in.data();
    request.out.residual = residual_out.data();
    EncodeWorkspace workspace;
    const auto result = encode_tensor(request, workspace);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_EQ(result->kept_elements, values.size()) << codec;

    std::map<ElementCount, float> received;
    for (const ChunkPayload& chunk : result->chunks) {
        const ElementCount first = ElementCount{chunk.chunk_index} * ElementCount{kChunkElements};
        const ElementCount here = std::min<ElementCount>(kChunkElements, elements - first);
        std::vector<float> decoded(here, 0.0F);
        const ChunkView views[] = {{0, chunk.bytes.view()}};
        const Contribution contributions[] = {{1.0F, views}};
        ASSERT_TRUE(ResultTensor(1, decoded.data(), here).decode_average(1, contributions).is_ok());
        for (ElementCount element = 0; element < here; ++element)
            if (decoded[element] != 0) received[first + element] = decoded[element];
    }
    EXPECT_EQ(received, values) << codec;
}

TEST(LargeTensor, Indices_around_2_to_the_28_arrive) {
    constexpr ElementCount kBoundary = ElementCount{1} << 28U;
    const std::map<ElementCount, float> values = {
        {0, 1.0F}, {kBoundary - 1, -2.0F}, {kBoundary, 4.0F}, {kBoundary + 16, -0.5F}};
    for (const char* codec : {"threshold(0.25) | f32", "threshold(0.25) | pow2(bits=4) | raw32",
                              "threshold(0.25) | pow2(bits=4, scope=tensor)", "topk(0.00001) | bf16"})
        expect_sent(codec, kBoundary + 17, values);
}
TEST(LargeTensor, Indices_around_2_to_the_31_arrive) {
    constexpr ElementCount kBoundary = ElementCount{1} << 31U;
    expect_sent("threshold(0.25) | f32", kBoundary + 17,
                {{kBoundary / 2, 3.0F}, {kBoundary - 1, -2.0F}, {kBoundary, 4.0F}, {kBoundary + 16, -0.5F}});
}

}  // namespace
}  // namespace gradsieve::codec
