#include "exchange/record.hpp"

#include <gtest/gtest.h>

#include <random>

namespace gradsieve::exchange {
namespace {

SharedView frame_of(const std::vector<RecordHeader>& headers) {
    Bytes bytes(9, std::byte{0xEE});
    for (const auto& header : headers) {
        build_record_header(bytes, header);
        for (std::uint32_t i = 0; i < header.payload_bytes; ++i) bytes.push_back(static_cast<std::byte>(i));
    }
    return SharedView::take(std::move(bytes));
}

TEST(Record, Headers_read_back_with_their_payloads) {
    const std::vector<RecordHeader> headers = {
        {.tensor = 0, .kind = RecordKind::kChunk, .chunk = 0, .payload_bytes = 5},
        {.tensor = 31, .kind = RecordKind::kLast, .chunk = 1, .count = 2, .payload_bytes = 0},
        {.tensor = (1U << 30U) - 1,
         .kind = RecordKind::kLastOfCount,
         .chunk = UINT32_MAX,
         .count = 7,
         .payload_bytes = 300},
        {.tensor = 2, .kind = RecordKind::kMark, .chunk = 11, .payload_bytes = 3}};
    const auto frame = frame_of(headers);
    ASSERT_TRUE(has_whole_records(frame, 9));
    RecordReader reader(frame, 9);
    for (const auto& header : headers) {
        const auto record = reader.next();
        ASSERT_TRUE(record);
        EXPECT_EQ(record->header, header);
        ASSERT_EQ(record->payload.bytes().size(), header.payload_bytes);
        EXPECT_EQ(record->payload.owner(), frame.owner()) << "no copy";
        if (header.payload_bytes > 2) {
            EXPECT_EQ(record->payload.bytes()[2], std::byte{2});
        }
    }
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.is_ok());
}
TEST(Record, Header_of_small_numbers_takes_four_bytes_and_none_more_than_twenty) {
    Bytes bytes;
    build_record_header(bytes,
                        {.tensor = 31, .kind = RecordKind::kLast, .chunk = 0, .count = 1, .payload_bytes = 16383});
    EXPECT_EQ(bytes.size(), 4U);
    bytes.clear();
    build_record_header(bytes, {.tensor = (1U << 30U) - 1,
                                .kind = RecordKind::kLastOfCount,
                                .chunk = UINT32_MAX,
                                .count = UINT32_MAX,
                                .payload_bytes = UINT32_MAX});
    EXPECT_EQ(bytes.size(), 20U);
}
TEST(Record, Truncated_frames_are_refused_whole) {
    const auto frame = frame_of({{.tensor = 1, .kind = RecordKind::kChunk, .chunk = 0, .payload_bytes = 4},
                                 {.tensor = 1, .kind = RecordKind::kLast, .chunk = 1, .count = 2, .payload_bytes = 4}});
    for (std::size_t count = 10; count < frame.bytes().size(); ++count) {
        if (count == 9 + 7) continue;  // exactly one record
        EXPECT_FALSE(has_whole_records(frame.part(0, count), 9)) << count;
    }
}
TEST(Record, Payload_longer_than_the_frame_is_refused) {
    Bytes bytes;
    build_record_header(bytes, {.tensor = 0, .kind = RecordKind::kChunk, .chunk = 0, .payload_bytes = UINT32_MAX});
    const auto frame = SharedView::take(std::move(bytes));
    EXPECT_FALSE(has_whole_records(frame, 0));
    EXPECT_FALSE(has_whole_records(SharedView::take({std::byte{0}}), 0));
    EXPECT_TRUE(has_whole_records(frame, 100)) << "beyond the end there is nothing";
}
TEST(Record, Random_bytes_never_read_outside) {
    std::mt19937_64 random(11);
    for (int round = 0; round < 20000; ++round) {
        Bytes bytes(random() % 40);
        for (auto& byte : bytes) byte = static_cast<std::byte>(random());
        const auto frame = SharedView::take(std::move(bytes));
        RecordReader reader(frame, 0);
        std::size_t payload_bytes = 0;
        while (const auto record = reader.next()) payload_bytes += record->payload.bytes().size();
        EXPECT_LE(payload_bytes, frame.bytes().size());
    }
}

}  // namespace
}  // namespace gradsieve::exchange
