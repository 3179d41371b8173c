// Host memory that is registered for copies, against client/copied_pages.cpp.
#include "client/copied_pages.hpp"

#include "device_fixture.hpp"

#include "shm/layout.hpp"

namespace gradsieve::client::test {
namespace {

class CopiedPagesTest : public ::testing::Test {
protected:
    static constexpr auto kPage = shm::kPageBytes;
    [[nodiscard]] std::span<const std::byte> span(std::size_t begin, std::size_t bytes) const {
        return {pages_.get() + begin, bytes};
    }
    [[nodiscard]] std::string line(std::size_t page, std::size_t pages, int flags) const {
        return "cuMemHostRegister(" + std::to_string(reinterpret_cast<std::uintptr_t>(pages_.get()) + page * kPage) +
               ", " + std::to_string(pages * kPage) + ", " + std::to_string(flags) + ") in context (49152)";
    }
    FakeMemory memory_;
    std::shared_ptr<const CudaDriver> driver_ = load_fake();
    std::shared_ptr<std::byte> pages_{static_cast<std::byte*>(std::aligned_alloc(kPage, 16 * kPage)), std::free};
};

TEST_F(CopiedPagesTest, Whole_pages_are_registered_each_once) {
    {
        CopiedPages copied(driver_, FakeCuda::context_of(0), pages_);
        copied.add({span(5 * kPage, 3 * kPage), span(10, 20), span(kPage - 1, 2), span(9 * kPage, 0),
                    span(12 * kPage + 64, kPage - 64)},
                   false);
        copied.add({span(14 * kPage + 1, 1)}, true);
        EXPECT_EQ(FakeCuda::get().log_of("cuMemHostRegister"),
                  (Lines{line(0, 2, 1), line(5, 3, 1), line(12, 1, 1), line(14, 1, 9)}));
        EXPECT_EQ(FakeCuda::get().registered(), 4);
    }
    EXPECT_EQ(FakeCuda::get().registered(), 0);
}
TEST_F(CopiedPagesTest, What_was_refused_is_not_given_back) {
    FakeCuda::get().fail("cuMemHostRegister", 2);
    {
        CopiedPages copied(driver_, FakeCuda::context_of(0), pages_);
        copied.add({span(0, 1), span(4 * kPage, 1)}, false);
        EXPECT_EQ(FakeCuda::get().registered(), 1);
    }
    EXPECT_EQ(FakeCuda::get().log_of("cuMemHostUnregister").size(), 1U);
}
TEST_F(CopiedPagesTest, Context_that_is_gone_registers_and_takes_back_nothing) {
    FakeCuda::get().fail("cuCtxPushCurrent", 201);
    {
        CopiedPages copied(driver_, FakeCuda::context_of(0), pages_);
        copied.add({span(0, 1)}, false);
    }
    EXPECT_TRUE(FakeCuda::get().log_of("cuMemHost").empty());
}

}  // namespace
}  // namespace gradsieve::client::test
