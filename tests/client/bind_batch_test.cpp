// One bind request in the making, against client/bind_batch.cpp.
#include "client/bind_batch.hpp"

#include "device_fixture.hpp"

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BindBatchTest : public ::testing::Test {
protected:
    BindingPlan plan_of(DeviceAddress address, ByteCount bytes, std::uint32_t tensor_index = 0) {
        BindingPlan plan;
        plan.binding.tensor_index = tensor_index;
        plan.subject = "tensor 'w'";
        plan.gradient = locate_device_memory(*driver_, "w", address, bytes).value();
        return plan;
    }
    FakeMemory memory_;
    std::unique_ptr<CudaDriver> driver_ = load_fake();
};

TEST_F(BindBatchTest, Handle_travels_with_size_and_offset) {
    BindBatch batch;
    EXPECT_TRUE(batch.is_empty());
    ASSERT_TRUE(batch.add(*driver_, plan_of(FakeMemory::kLegacy + 768, 100, 7)).is_ok());
    const auto& binding = batch.request().bindings.at(0);
    EXPECT_EQ(binding.tensor_index, 7U);
    EXPECT_EQ(binding.gradient.kind, shm::MemoryKind::kIpcHandle);
    EXPECT_EQ(binding.gradient.offset_bytes, 768U);
    EXPECT_EQ(binding.gradient.allocation_bytes, FakeMemory::kBytes);
    DeviceAddress base = 0;
    std::memcpy(&base, binding.gradient.handle.data(), sizeof(base));
    EXPECT_EQ(base, FakeMemory::kLegacy);
    EXPECT_TRUE(batch.descriptors().empty());
}
TEST_F(BindBatchTest, Mapped_memory_is_cut_where_its_allocations_end) {
    BindBatch batch;
    constexpr auto kBytes = FakeMemory::kBytes;
    ASSERT_TRUE(batch.add(*driver_, plan_of(FakeMemory::kMapped + 64, 2 * kBytes)).is_ok());
    const auto& memory = batch.request().bindings[0].gradient;
    EXPECT_EQ(memory.kind, shm::MemoryKind::kDescriptors);
    ASSERT_EQ(memory.pieces.size(), 3U);
    const auto expect_piece = [&](std::size_t place, std::uint64_t offset, ByteCount bytes) {
        EXPECT_EQ(memory.pieces[place].descriptor, place);
        EXPECT_EQ(memory.pieces[place].offset_bytes, offset) << place;
        EXPECT_EQ(memory.pieces[place].bytes, bytes) << place;
    };
    expect_piece(0, 64, kBytes - 64);
    expect_piece(1, 0, kBytes);
    expect_piece(2, 0, 64);
    EXPECT_EQ(batch.request().descriptor_bytes, std::vector<ByteCount>(3, kBytes));
}
TEST_F(BindBatchTest, Tensors_in_one_allocation_share_its_descriptor) {
    BindBatch batch;
    for (std::uint32_t index = 0; index < 100; ++index)
        ASSERT_TRUE(batch.add(*driver_, plan_of(FakeMemory::kMapped + 64 * index, 64, index)).is_ok());
    EXPECT_EQ(batch.descriptors().size(), 1U);
    EXPECT_EQ(FakeCuda::get().exported(), 1);
    EXPECT_EQ(batch.request().bindings[99].gradient.pieces[0].offset_bytes, 64U * 99);
}
TEST_F(BindBatchTest, Ninth_descriptor_has_no_room_and_one_that_is_there_has) {
    BindBatch batch;
    const auto bytes = FakeMemory::kBytes;
    ASSERT_TRUE(batch.add(*driver_, plan_of(FakeMemory::kMapped, 7 * bytes)).is_ok());
    EXPECT_TRUE(batch.has_room_for(plan_of(FakeMemory::kMapped + 7 * bytes, bytes)));
    EXPECT_FALSE(batch.has_room_for(plan_of(FakeMemory::kMapped + 7 * bytes, 2 * bytes)));
    EXPECT_TRUE(batch.has_room_for(plan_of(FakeMemory::kMapped, 7 * bytes))) << "nothing new";
    auto with_moment = plan_of(FakeMemory::kMapped + 7 * bytes, bytes);
    with_moment.second_moment = plan_of(FakeMemory::kMapped + 8 * bytes, bytes).gradient;
    EXPECT_FALSE(batch.has_room_for(with_moment));
}
TEST_F(BindBatchTest, Tensor_of_more_descriptors_than_any_message_names_the_remedy) {
    EXPECT_TRUE(BindBatch::check_plan(plan_of(FakeMemory::kMapped, 8 * FakeMemory::kBytes)).is_ok());
    const auto status = BindBatch::check_plan(plan_of(FakeMemory::kMapped, 8 * FakeMemory::kBytes + 4));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("tensor 'w' lies in 9 physical allocations: allowed is up to 8"),
                                     HasSubstr("expandable_segments:False")));
}
TEST_F(BindBatchTest, Full_request_has_no_room) {
    BindBatch batch;
    BindingPlan unbinding;
    for (std::uint32_t index = 0; index < shm::kBindingLimit; ++index) {
        ASSERT_TRUE(batch.has_room_for(unbinding));
        ASSERT_TRUE(batch.add(*driver_, unbinding).is_ok());
    }
    EXPECT_FALSE(batch.has_room_for(unbinding));
    EXPECT_TRUE(batch.request().bindings[0].is_unbinding());
}
TEST_F(BindBatchTest, Memory_that_cannot_be_exported_is_an_error_and_adds_nothing) {
    BindBatch batch;
    const auto status = batch.add(*driver_, plan_of(FakeMemory::kUnexported, 64));
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(batch.is_empty());
}

}  // namespace
}  // namespace gradsieve::client::test
