#include "shm/session_memory.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace gradsieve::shm {
namespace {

TEST(ResultArea, Tensors_are_aligned_apart_and_zero_at_first) {
    const std::vector<ElementCount> elements{3, 0, 100};
    auto area = ResultArea::make("test", elements).value();
    EXPECT_EQ(area.offset_bytes(0), 0U);
    EXPECT_EQ(area.offset_bytes(1), 64U);
    EXPECT_EQ(area.offset_bytes(2), 64U);
    EXPECT_EQ(area.size_bytes(), 4096U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(area.tensor(2)) % 64, 0U);
    EXPECT_EQ(area.tensor(2)[99], 0.0F);
}

TEST(ResultArea, Its_descriptor_gives_nobody_a_writable_mapping) {
    auto area = ResultArea::make("test", std::vector<ElementCount>{16}).value();
    area.tensor(0)[3] = 7.0F;
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, area.fd(), 0), MAP_FAILED);
    EXPECT_EQ(errno, EPERM);
    auto reader = Segment::adopt(duplicate(area.fd()), area.size_bytes(), Access::kReadOnly, false).value();
    EXPECT_EQ(reinterpret_cast<const float*>(std::as_const(reader).bytes().data())[3], 7.0F);
}

TEST(ResultArea, Sizes_beyond_the_limit_are_refused) {
    const auto status = ResultArea::make("test", std::vector<ElementCount>{1, UINT64_MAX}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.text().find("result of tensor 1"), std::string::npos) << status.text();
}

}  // namespace
}  // namespace gradsieve::shm
