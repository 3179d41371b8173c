#include "shm/control_header.hpp"

#include "tests/shm/golden_bytes.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace gradsieve::shm {
namespace {

class ControlHeader : public testing::Test {
protected:
    ControlHeader() : memory_(layout_.total_bytes / sizeof(std::uint64_t)) {}
    std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(memory_)); }
    template <typename T>
    void spoil(std::uint64_t offset, T value) {
        std::memcpy(bytes().data() + offset, &value, sizeof(value));
    }

    const std::vector<TensorEntry> tensors_{{.name = "a", .group = "", .shape = {1}}};
    const ControlLayout layout_ = control_layout(tensors_);
    std::vector<std::uint64_t> memory_;
};

TEST_F(ControlHeader, Written_header_is_accepted) {
    write_control_header(bytes(), layout_);
    EXPECT_TRUE(check_control_header(bytes(), layout_).is_ok());
}

TEST_F(ControlHeader, Header_has_its_golden_bytes) {
    write_control_header(bytes(), layout_);
    EXPECT_EQ(hex_of(bytes().first(68)),
              "4753564354524c00"
              "04000000"
              "00040000"  // "GSVCTRL", version, header bytes
              "0090000000000000"
              "20000000"
              "40000000"  // total, capacities
              "0004000000000000"
              "000c000000000000"  // submission cells, completion cells
              "008c000000000000"  // ready words
              "0000000000000000"
              "52454459");  // "REDY"
}

TEST_F(ControlHeader, Unfinished_header_is_unavailable_and_says_try_again) {
    const auto status = check_control_header(bytes(), layout_);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.text().find("attach again in a moment"), std::string::npos) << status.text();
}

TEST_F(ControlHeader, Other_version_is_named_with_both_numbers_before_any_size_is_judged) {
    write_control_header(bytes(), layout_);
    spoil(ControlWord::kAbiVersion, std::uint32_t{7});
    spoil(ControlWord::kTotalBytes, std::uint64_t{1});
    const auto status = check_control_header(bytes(), layout_);
    EXPECT_EQ(status.code(), StatusCode::kVersionMismatch);
    EXPECT_NE(status.text().find("version 7; this side speaks version 4"), std::string::npos) << status.text();
}

TEST_F(ControlHeader, Any_other_difference_is_corrupt_and_named) {
    const std::vector<std::pair<std::uint64_t, const char*>> fields{
        {ControlWord::kMagic, "magic"},
        {ControlWord::kHeaderBytes, "header size"},
        {ControlWord::kTotalBytes, "stated size"},
        {ControlWord::kSubmissionCapacity, "submission capacity"},
        {ControlWord::kCompletionCapacity, "completion capacity"},
        {ControlWord::kSubmissionCells, "submission cells"},
        {ControlWord::kCompletionCells, "completion cells"},
        {ControlWord::kReadyWords, "ready words"},
        {ControlWord::kHeaderMark, "header mark"}};
    for (const auto& [offset, name] : fields) {
        write_control_header(bytes(), layout_);
        spoil(offset, std::uint32_t{12345});
        const auto status = check_control_header(bytes(), layout_);
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << name;
        EXPECT_NE(status.text().find(name), std::string::npos) << status.text();
        EXPECT_NE(status.text().find("allowed is"), std::string::npos) << status.text();
    }
}

TEST_F(ControlHeader, Segment_smaller_than_its_header_is_corrupt_without_being_read) {
    EXPECT_EQ(check_control_header(bytes().first(512), layout_).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace gradsieve::shm
