// What a bind request may say about a session's tensors, against shm/device_message_check.cpp.
#include "tests/shm/device_message_samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace gradsieve::shm {
namespace {

using ::testing::HasSubstr;

/// The refusal of the sample request after `change`.
std::string refusal_after(const std::function<void(BindRequest&)>& change, std::size_t descriptor_count = 2) {
    auto request = sample_bind_request();
    change(request);
    const auto status = check_bind_request(request, three_device_tensors(), descriptor_count);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.text(), HasSubstr("allowed is"));
    return status.text();
}

TEST(DeviceMessageCheck, Sample_request_is_right) {
    EXPECT_EQ(check_bind_request(sample_bind_request(), three_device_tensors(), 2).to_string(), "ok");
}

TEST(DeviceMessageCheck, Extent_reaches_from_the_first_slice_to_the_end_of_the_last) {
    const auto tensors = three_device_tensors();
    EXPECT_EQ(device_extent_bytes(tensors[0], ElementType::kF32, 16).value(), 16U);
    EXPECT_EQ(device_extent_bytes(tensors[1], ElementType::kF32, 1000).value(), 1060U);
    EXPECT_EQ(device_extent_bytes(tensors[1], ElementType::kF16, 1000).value(), 1030U);
    EXPECT_THAT(device_extent_bytes(tensors[1], ElementType::kF32, UINT64_MAX).status().text(),
                HasSubstr("tensor 'b': 2 slices 18446744073709551615 bytes apart"));
}

TEST(DeviceMessageCheck, Tensors_must_be_on_a_device_known_and_named_once) {
    auto tensors = three_device_tensors();
    tensors[0].on_device = false;
    const auto host = check_bind_request(sample_bind_request(), tensors, 2);
    EXPECT_EQ(host.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(host.text(), HasSubstr("tensor 'a': a binding; allowed is one for a tensor that was registered as on"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[2].tensor_index = 3; }),
                HasSubstr("tensor index 3; allowed is below 3"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[2].tensor_index = 1; }),
                HasSubstr("tensor 'b': two bindings in one request"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings.clear(); }), HasSubstr("0 bindings"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings.resize(kBindingLimit + 1); }),
                HasSubstr("4097 bindings; allowed is 1 to 4096"));
}

TEST(DeviceMessageCheck, Memory_must_end_within_its_allocation) {
    const auto at = [](std::uint64_t offset) {
        return [offset](BindRequest& request) { request.bindings[0].gradient.offset_bytes = offset; };
    };
    auto request = sample_bind_request();
    at(0x100000 - 120)(request);
    EXPECT_TRUE(check_bind_request(request, three_device_tensors(), 2).is_ok()) << "to the last byte";
    EXPECT_THAT(refusal_after(at(0x100000 - 116)), HasSubstr("gradient of 120 bytes at offset 1048460; allowed is what "
                                                             "ends within its allocation of 1048576 bytes"));
    EXPECT_THAT(refusal_after(at(UINT64_MAX - 3)), HasSubstr("at offset 18446744073709551612"));
    EXPECT_THAT(refusal_after([](auto& changed) { changed.bindings[0].second_moment.allocation_bytes = 0x400 + 59; }),
                HasSubstr("second moment of 60 bytes"));
}

TEST(DeviceMessageCheck, Offsets_and_strides_are_whole_elements) {
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[0].gradient.offset_bytes = 0x202; }),
                HasSubstr("gradient at offset 514; allowed is a multiple of its element's 4 bytes"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[1].gradient.pieces[0].offset_bytes -= 1; }),
                HasSubstr("multiple of its element's 2 bytes"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[0].second_moment.offset_bytes = 2; }),
                HasSubstr("second moment at offset 2"));
    for (const std::uint64_t stride : {0U, 56U, 62U})
        EXPECT_THAT(
            refusal_after([&](auto& request) { request.bindings[0].sample_stride_bytes = stride; }),
            HasSubstr("slices " + std::to_string(stride) + " bytes apart; allowed is a multiple of 4 from 60 up"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[0].sample_stride_bytes = UINT64_MAX - 3; }),
                HasSubstr("2 slices"));
}

TEST(DeviceMessageCheck, Second_moment_is_there_exactly_where_registered) {
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[0].second_moment = {}; }),
                HasSubstr("tensor 'b': no second moment; allowed is one, as registered"));
    EXPECT_THAT(
        refusal_after([](auto& request) { request.bindings[1].second_moment = request.bindings[0].second_moment; }),
        HasSubstr("tensor 'c': a second moment; allowed is none"));
}

TEST(DeviceMessageCheck, Pieces_lie_in_their_descriptors_and_leave_no_gaps) {
    const auto piece = [](std::size_t place, std::uint8_t descriptor, std::uint64_t offset, ByteCount bytes) {
        return [=](BindRequest& request) { request.bindings[1].gradient.pieces[place] = {descriptor, offset, bytes}; };
    };
    EXPECT_THAT(refusal_after(piece(1, 2, 0, 2)), HasSubstr("descriptor 2; allowed is one of the 2 that came along"));
    EXPECT_THAT(refusal_after(piece(0, 0, 0x100000, 0x100002)), HasSubstr("piece 0 of 1048578 bytes"));
    EXPECT_THAT(refusal_after(piece(0, 0, 0xFFFFE, 0x100000)), HasSubstr("leaves no gap")) << "ends before its end";
    EXPECT_THAT(refusal_after(piece(1, 1, 2, 2)), HasSubstr("leaves no gap")) << "begins after its begin";
    EXPECT_THAT(refusal_after(piece(1, 1, 0, 0)), HasSubstr("piece 1 of 0 bytes"));
    EXPECT_THAT(refusal_after(piece(1, 1, 0, 4)),
                HasSubstr("gradient of 1048580 bytes in 2 pieces; allowed is 1048578 bytes in 1 to 8"));
    EXPECT_THAT(refusal_after([](auto& request) { request.bindings[1].gradient.pieces.clear(); }),
                HasSubstr("no gradient"));
}

TEST(DeviceMessageCheck, Sum_of_pieces_that_wraps_is_refused) {
    EXPECT_THAT(refusal_after([](auto& request) {
                    request.descriptor_bytes = {UINT64_MAX, UINT64_MAX - 1};
                    request.bindings[1].gradient.pieces = {{0, 0, UINT64_MAX}, {0, 0, UINT64_MAX}, {1, 0, 0x100004}};
                }),
                HasSubstr("beyond 2^64 bytes"));
}

TEST(DeviceMessageCheck, Descriptors_that_got_lost_are_missed) {
    EXPECT_THAT(refusal_after([](auto&) {}, 1), HasSubstr("2 allocations with 1 descriptors"));
    EXPECT_THAT(refusal_after([](auto& request) { request.descriptor_bytes.resize(9, 1); }, 9),
                HasSubstr("one descriptor for each, up to 8"));
}

}  // namespace
}  // namespace gradsieve::shm
