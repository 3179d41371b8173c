// The words that devices write, against client/ready_words.cpp.
#include "client/ready_words.hpp"

#include "device_fixture.hpp"

#include <array>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReadyWordsTest : public ::testing::Test {
protected:
    ReadyWordsTest() { words_.emplace(driver_, std::span(memory_->words).subspan(kBefore, kCount), memory_); }

    struct Pages {
        alignas(4096) std::array<std::uint32_t, 3072> words{};
    };
    static constexpr std::size_t kBefore = 1020;  // words 4 and 5 lie on either side of a page's end
    static constexpr std::size_t kCount = 8;

    [[nodiscard]] std::uint32_t word(std::uint32_t tensor_index) const {
        return memory_->words[kBefore + tensor_index];
    }
    Result<DeviceAddress> address(std::uint32_t tensor_index, int device = 0) {
        const ContextScope scope(*driver_, FakeCuda::context_of(device));
        return words_->address_of(FakeCuda::context_of(device), tensor_index);
    }
    Status write(std::uint32_t tensor_index, Step step) {
        return words_->write(FakeCuda::stream_of(0), address(tensor_index).value(), tensor_index, step);
    }
    static std::string text(const void* pointer) { return std::to_string(reinterpret_cast<std::uintptr_t>(pointer)); }

    FakeMemory fake_;
    std::shared_ptr<const CudaDriver> driver_ = load_fake();
    std::shared_ptr<Pages> memory_ = std::make_shared<Pages>();
    std::optional<ReadyWords> words_;
};

TEST_F(ReadyWordsTest, Whole_pages_are_registered_once_for_all_contexts) {
    EXPECT_EQ(address(0).value(), FakeCuda::device_address_of(&memory_->words[kBefore]));
    EXPECT_EQ(address(7, 1).value(), FakeCuda::device_address_of(&memory_->words[kBefore + 7]));
    EXPECT_THAT(FakeCuda::get().log_of("cuMemHostRegister"),
                ElementsAre("cuMemHostRegister(" + text(memory_.get()) + ", 8192, 3) in context (49152)"));
    EXPECT_THAT(FakeCuda::get().log_of("cuMemHostGetDevicePointer"),
                ElementsAre("cuMemHostGetDevicePointer(" + text(memory_.get()) + ")",
                            "cuMemHostGetDevicePointer(" + text(memory_.get()) + ")"))
        << "in each context, and where the pages begin";
}
TEST_F(ReadyWordsTest, Low_bits_of_the_step_reach_the_word_of_the_tensor_alone) {
    ASSERT_TRUE(write(5, 0x7'0000'0009).is_ok());
    ASSERT_TRUE(write(4, 0xFFFF'FFFF).is_ok());
    EXPECT_EQ(word(5), 9U);
    EXPECT_EQ(word(4), 0xFFFF'FFFFU);
    for (const std::uint32_t other : {0, 1, 2, 3, 6, 7}) EXPECT_EQ(word(other), 0U);
    EXPECT_THAT(FakeCuda::get().log_of("cuStreamWriteValue32").front(),
                HasSubstr("(20480, " + std::to_string(address(5).value()) + ", 9, 0)"))
        << "stream, address, value, and the flags that leave the fence";
}
TEST_F(ReadyWordsTest, Pages_are_given_back_at_the_end) {
    ASSERT_TRUE(write(1, 3).is_ok());
    words_.reset();
    EXPECT_THAT(FakeCuda::get().log_of("cuMemHostUnregister"),
                ElementsAre("cuMemHostUnregister(" + text(memory_.get()) + ")"));
    EXPECT_EQ(FakeCuda::get().registered(), 0);
    EXPECT_EQ(memory_.use_count(), 1) << "let go";
}
TEST_F(ReadyWordsTest, Pages_that_a_device_may_still_write_stay_registered_and_mapped) {
    ASSERT_TRUE(write(1, 3).is_ok());
    FakeCuda::get().hold_writes(true);
    ASSERT_TRUE(write(1, 4).is_ok());
    words_.reset();
    EXPECT_EQ(FakeCuda::get().registered(), 1);
    EXPECT_EQ(memory_.use_count(), 2) << "kept";
    FakeCuda::get().hold_writes(false);
    EXPECT_EQ(word(1), 4U) << "the device found its memory";
}
TEST_F(ReadyWordsTest, Context_that_is_gone_took_the_registration_along) {
    ASSERT_TRUE(address(0).is_ok());
    FakeCuda::get().fail("cuCtxPushCurrent", 201);
    words_.reset();
    EXPECT_THAT(FakeCuda::get().log_of("cuMemHostUnregister"), IsEmpty());
    EXPECT_EQ(memory_.use_count(), 1);
}
TEST_F(ReadyWordsTest, Never_asked_for_touches_no_driver) {
    FakeCuda::get().clear_log();
    words_.reset();
    EXPECT_THAT(FakeCuda::get().log(), IsEmpty());
}
TEST_F(ReadyWordsTest, Registration_that_failed_is_tried_again) {
    FakeCuda::get().fail("cuMemHostRegister", 2);
    EXPECT_EQ(address(0).status().code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(address(0).is_ok());
    EXPECT_EQ(FakeCuda::get().registered(), 1);
}
TEST_F(ReadyWordsTest, Host_that_cannot_write_words_names_the_remedy) {
    for (const char* call : {"cuMemHostRegister", "cuMemHostGetDevicePointer", "cuStreamWriteValue32"}) {
        FakeCuda::get().fail(call, 801);
        const auto found = address(0);
        const auto status = found.is_ok() ? words_->write(FakeCuda::stream_of(0), *found, 0, 1) : found.status();
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << call;
        EXPECT_THAT(status.text(), AllOf(HasSubstr(std::string(call) + " answered 801, not supported"),
                                         HasSubstr("allowed are"), HasSubstr("register the tensor without on_device")));
    }
}
TEST_F(ReadyWordsTest, Write_that_failed_is_not_waited_for) {
    ASSERT_TRUE(address(0).is_ok());
    FakeCuda::get().fail("cuStreamWriteValue32", 700);
    EXPECT_THAT(write(0, 1).text(), HasSubstr("cuStreamWriteValue32 answered 700"));
    EXPECT_EQ(word(0), 0U);
    words_.reset();
    EXPECT_EQ(FakeCuda::get().registered(), 0);
}

}  // namespace
}  // namespace gradsieve::client::test
