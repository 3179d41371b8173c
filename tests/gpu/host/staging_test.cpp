// Where kernels of one device read and write while another device's memory is out of reach: never there, and what is
// copied is what they look at.
#include "codec/cuda/encode_batch.hpp"
#include "codec/cuda/staged_results.hpp"

#include <gtest/gtest.h>

namespace gradsieve::codec::cuda {
namespace {

constexpr std::uintptr_t kForeign = std::uintptr_t{1} << 40U;  // device 1's memory, never looked at
constexpr std::uintptr_t kOwn = std::uintptr_t{2} << 40U;
constexpr std::uintptr_t kStaging = std::uintptr_t{3} << 40U;
constexpr std::uintptr_t kAny = std::uintptr_t{1} << 40U;

template <typename T>
T* at(std::uintptr_t address) {
    return reinterpret_cast<T*>(address);
}
std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

/// A tensor of 5 chunks and a bit, shared by devices 0 and 1 that do not reach each other.
struct Encoding {
    static constexpr ElementCount kElements = 5 * kChunkElements + 100;
    Pipeline pipeline = *parse_pipeline("topk(0.01) | f32");
    const int devices[2] = {0, 1};
    PeerAccess peers = PeerAccess::none(devices);
    const float* samples[2] = {at<float>(kOwn), at<float>(kForeign + 8)};
    const ElementType types[2] = {ElementType::kF32, ElementType::kF16};
    const int sample_devices[2] = {0, 1};
    const float weights[2] = {0.25F, 0.75F};
    GpuEncodePart parts[2];
    GpuEncodeRequest request;

    Encoding() {
        const ElementCount elements[1] = {kElements};
        const auto ranges = split_over_devices(elements, 2);
        for (std::size_t device = 0; device < 2; ++device) {
            parts[device].range = ranges[0][device];
            parts[device].in.residual = parts[device].out.residual = at<float>(kOwn + (kAny >> 1U));
        }
        request.request.pipeline = &pipeline;
        request.request.elements = kElements;
        request.request.samples = samples;
        request.request.weights = weights;
        request.sample_types = types;
        request.sample_devices = sample_devices;
        request.parts = parts;
    }
};

TEST(Staging, Kernels_of_a_device_read_copies_of_what_it_does_not_reach) {
    const Encoding encoding;
    EncodeBatch batch;
    GpuEncoderLimits limits;
    limits.staging_bytes = 2 * (2 * kChunkElements + 100);  // two chunks of fp16
    ASSERT_TRUE(batch.plan({&encoding.request, 1}, {0, 2, 0, &encoding.peers}, limits).is_ok());
    ASSERT_EQ(encoding.parts[0].range.elements, 3 * kChunkElements);
    EXPECT_EQ(batch.passes().size(), 2U) << "two chunks, then one";
    EXPECT_LE(batch.staging_bytes(), limits.staging_bytes);
    Bytes upload(batch.layout().end);
    batch.write_upload(upload.data(), {upload.data(), at<std::byte>(kStaging), at<SharedCounts>(kAny)});
    ASSERT_EQ(batch.copies().size(), 3U);
    for (std::size_t number = 0; number < batch.chunks().size(); ++number) {
        const auto& chunk = reinterpret_cast<const ChunkPlan*>(upload.data() + batch.layout().chunks)[number];
        EXPECT_EQ(number_of(chunk.samples[0].data), kOwn) << "its own is read where it lies";
        const StageCopy& copy = batch.copies()[number];
        EXPECT_EQ(number_of(copy.source), kForeign + 8 + 2 * number * kChunkElements);
        EXPECT_EQ(copy.source_device, 1);
        EXPECT_EQ(copy.bytes, 2 * kChunkElements);
        EXPECT_LE(copy.offset + copy.bytes, batch.staging_bytes());
        EXPECT_EQ(number_of(chunk.samples[1].data) + 2 * number * kChunkElements, kStaging + copy.offset);
        EXPECT_EQ(copy.offset % 16, 8U) << "as its source lies";
        EXPECT_EQ(chunk.samples[1].weight, 0.75F);
        EXPECT_EQ(chunk.samples[1].type, static_cast<std::uint32_t>(ElementType::kF16));
    }
    for (std::size_t pass = 0; pass < 2; ++pass)
        EXPECT_EQ(reinterpret_cast<const std::uint32_t*>(upload.data() + batch.layout().tickets)[pass],
                  batch.passes()[pass].first_tile);
}

/// The encoder's devices reach each other, but memory of other processes is opened to each by itself.
TEST(Staging, Kernels_read_samples_at_their_devices_own_addresses) {
    Encoding encoding;
    constexpr int kSame[] = {0, 0};
    encoding.request.sample_devices = kSame;  // what any device reaches
    const float* const opened[2] = {at<float>(kOwn + kAny / 2), nullptr};
    encoding.parts[0].samples = opened;
    EncodeBatch batch;
    ASSERT_TRUE(batch.plan({&encoding.request, 1}, {0, 2, 0, &encoding.peers}, {}).is_ok());
    Bytes upload(batch.layout().end);
    batch.write_upload(upload.data(), {upload.data(), at<std::byte>(kStaging), at<SharedCounts>(kAny)});
    const auto& chunk = *reinterpret_cast<const ChunkPlan*>(upload.data() + batch.layout().chunks);
    EXPECT_EQ(number_of(chunk.samples[0].data), kOwn + kAny / 2) << "not where the request says";
    ASSERT_EQ(batch.copies().size(), 3U) << "what could not be opened is copied, chunk by chunk";
    EXPECT_EQ(number_of(batch.copies()[0].source), kForeign + 8) << "from where the memory lies";
    EXPECT_EQ(number_of(chunk.samples[1].data), kStaging + batch.copies()[0].offset);
}

TEST(Staging, Devices_that_share_a_tensor_plan_the_same_rounds_and_counts) {
    const Encoding encoding;
    EncodeBatch first;
    EncodeBatch second;
    ASSERT_TRUE(first.plan({&encoding.request, 1}, {0, 2, 0, &encoding.peers}, {}).is_ok());
    ASSERT_TRUE(second.plan({&encoding.request, 1}, {1, 2, 1, &encoding.peers}, {}).is_ok());
    EXPECT_EQ(first.shared_count(), 2U);
    EXPECT_EQ(second.shared_count(), 2U);
    ASSERT_EQ(first.rounds().size(), 1U);
    ASSERT_EQ(second.rounds().size(), 1U);
    EXPECT_TRUE(first.rounds()[0].is_shared && second.rounds()[0].is_shared);
    EXPECT_EQ(first.tensors()[0].part, 0U);
    EXPECT_EQ(second.tensors()[0].part, 1U);
    EXPECT_EQ(first.tensors()[0].keep_count, second.tensors()[0].keep_count) << "k is the whole tensor's";
}

TEST(Staging, Averages_for_a_device_out_of_reach_go_through_memory_of_the_device) {
    const int devices[2] = {0, 1};
    const PeerAccess peers = PeerAccess::none(devices);
    const GpuResult targets[4] = {{at<void>(kOwn), ElementType::kF32, true, 0},
                                  {at<void>(kForeign), ElementType::kF32, true, 1},
                                  {at<void>(kForeign + kAny / 2), ElementType::kF32, false, 1},
                                  {at<void>(kForeign + kAny / 4), ElementType::kBf16, false, 1}};
    GpuDecodeRequest request;
    request.results = targets;
    StagedResults results;
    results.add_tensor(request, {0, 2, 0, &peers});
    DeviceChunk chunk;
    chunk.first_element = 3 * kChunkElements;
    chunk.elements = 1000;
    ByteCount offset = 0;
    results.stage_chunk(chunk, offset);
    EXPECT_EQ(offset, 1000U * 4 + 1000 * 2) << "once for each type";
    EXPECT_LE(offset, results.chunk_bytes(0, 1000));
    ASSERT_EQ(chunk.results, 3U);
    std::vector<DeviceResult> rows(results.rows());
    results.write_rows(at<std::byte>(kStaging), rows.data());
    const auto* row = rows.data() + chunk.first_result;
    EXPECT_EQ(number_of(row[0].data), kOwn);
    EXPECT_TRUE(row[0].holds_last);
    EXPECT_EQ(number_of(row[1].data) + 4 * chunk.first_element, kStaging);
    EXPECT_FALSE(row[1].holds_last) << "the staging memory holds nothing of the last step";
    EXPECT_EQ(number_of(row[2].data) + 2 * chunk.first_element, kStaging + 4000);
    ASSERT_EQ(results.copies().size(), 3U);
    EXPECT_EQ(number_of(results.copies()[0].target), kForeign + 4 * chunk.first_element);
    EXPECT_EQ(number_of(results.copies()[1].target), kForeign + kAny / 2 + 4 * chunk.first_element);
    EXPECT_EQ(results.copies()[1].offset, results.copies()[0].offset);
    EXPECT_EQ(number_of(results.copies()[2].target), kForeign + kAny / 4 + 2 * chunk.first_element);
    EXPECT_EQ(results.copies()[2].bytes, 2000U);
}

TEST(Staging, Averages_are_written_at_their_devices_own_addresses) {
    void* const opened[2] = {at<void>(kOwn), at<void>(kOwn + kAny / 2)};
    void* const closed[2] = {at<void>(kForeign), nullptr};
    const GpuResult targets[2] = {{at<void>(kOwn), ElementType::kF32, false, 0, opened},
                                  {at<void>(kForeign), ElementType::kF32, false, 0, closed}};
    GpuDecodeRequest request;
    request.results = targets;
    StagedResults results;
    results.add_tensor(request, {1, 2, 1, nullptr});
    DeviceChunk chunk;
    chunk.elements = 1000;
    ByteCount offset = 0;
    results.stage_chunk(chunk, offset);
    ASSERT_EQ(chunk.results, 2U);
    std::vector<DeviceResult> rows(results.rows());
    results.write_rows(at<std::byte>(kStaging), rows.data());
    EXPECT_EQ(number_of(rows[chunk.first_result].data), kOwn + kAny / 2);
    EXPECT_EQ(number_of(rows[chunk.first_result + 1].data), kStaging);
    ASSERT_EQ(results.copies().size(), 1U);
    EXPECT_EQ(number_of(results.copies()[0].target), kForeign) << "a copy goes to where the memory lies";
}

}  // namespace
}  // namespace gradsieve::codec::cuda
