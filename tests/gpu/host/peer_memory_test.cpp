// Another process's memory on several emulated cards, as two H200s were seen to treat it: kernels of a card reach it
// only where it was opened to that card, and end the process elsewhere.
#include "codec/cuda/ipc.hpp"
#include "codec/cuda/residual_norm.hpp"
#include "codec/cuda/shareable_memory.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

constexpr ElementCount kElements = 5000;
constexpr double kSquares = 4.0 * kElements;
constexpr int kBoth[] = {0, 1};

class PeerMemory : public ::testing::Test {
protected:
    PeerMemory() {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        int can_access = 0;
        EXPECT_EQ(cudaDeviceCanAccessPeer(&can_access, 1, 0), cudaSuccess);
        has_peers_ = can_access != 0;
    }
    /// Of card 0, all elements 2, behind `data`.
    static void fill(void* data) {
        const std::vector<float> values(kElements, 2.0F);
        ASSERT_EQ(cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
    }
    /// A kernel of that card looks at every element.
    static double sum_on(int device, const std::byte* data) {
        auto stream = Stream::make(device);
        EXPECT_TRUE(stream.is_ok());
        ResidualNorm norm;
        const ResidualPart part{&*stream, reinterpret_cast<const float*>(data), kElements};
        return *norm.square_sum({&part, 1});
    }
    bool has_peers_ = false;
};

class PeerHandle : public PeerMemory {
protected:
    PeerHandle() : memory_(*DeviceMemory::make(0, kElements * sizeof(float), "a gradient")) {
        fill(memory_.data());
        cudaIpcMemHandle_t native{};
        EXPECT_EQ(cudaIpcGetMemHandle(&native, memory_.data()), cudaSuccess);
        std::memcpy(handle_.data(), &native, handle_.size());
    }
    DeviceMemory memory_;
    IpcHandle handle_{};
};

TEST_F(PeerHandle, Opened_on_one_card_ends_a_kernel_of_another) {
    const auto opened = ImportedMemory::open(0, handle_, 0, memory_.size());
    ASSERT_TRUE(opened.is_ok());
    EXPECT_EQ(sum_on(0, opened->data()), kSquares);
    EXPECT_EQ(opened->data_on(0), opened->data());
    EXPECT_EQ(opened->data_on(1), nullptr);
    EXPECT_DEATH(sum_on(1, opened->data()), "");
    EXPECT_EQ(sum_on(0, opened->data()), kSquares);
}
TEST_F(PeerHandle, Opened_to_every_user_has_an_address_for_each_that_reaches_it) {
    auto opened = ImportedMemory::open(0, handle_, 8, memory_.size() - 8, kBoth);
    ASSERT_TRUE(opened.is_ok());
    EXPECT_EQ(sum_on(0, opened->data_on(0) - 8), kSquares);
    if (!has_peers_) {
        EXPECT_EQ(opened->data_on(1), nullptr);
        return;
    }
    ASSERT_NE(opened->data_on(1), nullptr);
    EXPECT_EQ(sum_on(1, opened->data_on(1) - 8), kSquares);
    EXPECT_EQ(sum_on(0, opened->data_on(0) - 8), kSquares);
    const auto* const of_second = opened->data_on(1) - 8;
    opened = ImportedMemory::open(0, handle_, 0, memory_.size());
    // Asked of the kernel: a stack of a card's kernel may be mapped where the gradient was, and be read for it.
    void* const at = const_cast<std::byte*>(of_second);
    void* const held = ::mmap(at, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT_EQ(held, at) << "closed for every user";
    if (held != MAP_FAILED) ::munmap(held, 1);
}
TEST_F(PeerHandle, Copies_reach_what_kernels_do_not) {
    const auto opened = ImportedMemory::open(0, handle_, 0, memory_.size());
    ASSERT_TRUE(opened.is_ok());
    const auto copy = DeviceMemory::make(1, memory_.size(), "a copy");
    const auto stream = Stream::make(1);
    ASSERT_TRUE(copy.is_ok() && stream.is_ok());
    EXPECT_EQ(sum_on(0, opened->data()), kSquares);
    ASSERT_TRUE(stream->make_current().is_ok());
    ASSERT_EQ(cudaMemcpyPeerAsync(copy->data(), 1, opened->data(), 0, memory_.size(),
                                  static_cast<cudaStream_t>(stream->handle())),
              cudaSuccess);
    ASSERT_TRUE(stream->synchronize().is_ok());
    EXPECT_EQ(sum_on(1, copy->data()), kSquares);
}

TEST_F(PeerMemory, Mapped_allocations_have_one_address_for_those_that_asked) {
    constexpr ByteCount kPage = ByteCount{2} << 20U;
    UniqueFd descriptor;
    const auto memory = ShareableMemory::make(0, kPage, "a gradient", descriptor);
    ASSERT_TRUE(memory.is_ok());
    fill(memory->data());
    const MemoryPiece piece{descriptor.get(), kPage, 0, kPage};
    const auto to_one = ImportedMemory::open(0, {&piece, 1});
    const auto to_both = ImportedMemory::open(0, {&piece, 1}, kBoth);
    ASSERT_TRUE(to_one.is_ok() && to_both.is_ok());
    EXPECT_EQ(sum_on(0, to_one->data_on(0)), kSquares);
    EXPECT_EQ(to_one->data_on(1), nullptr);
    EXPECT_DEATH(sum_on(1, to_one->data()), "");
    EXPECT_EQ(to_both->data_on(1), has_peers_ ? to_both->data() : nullptr);
    if (has_peers_) {
        EXPECT_EQ(sum_on(1, to_both->data_on(1)), kSquares);
    } else {
        EXPECT_DEATH(sum_on(1, to_both->data()), "");
    }
}

}  // namespace
}  // namespace gradsieve::codec::cuda
