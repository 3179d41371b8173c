#include "exchange/round.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using Taken = Assembly::Taken;

Record make_record(RecordKind kind, std::uint32_t chunk, std::uint32_t count, std::string_view payload) {
    const auto bytes = as_bytes(payload);
    return {.header = {.tensor = 0,
                       .kind = kind,
                       .chunk = chunk,
                       .count = count,
                       .payload_bytes = static_cast<std::uint32_t>(bytes.size())},
            .payload = SharedView::take(Bytes(bytes.begin(), bytes.end()))};
}

TEST(Assembly, Is_complete_in_any_order_of_arrival) {
    Assembly assembly;
    EXPECT_EQ(assembly.take(make_record(RecordKind::kLastOfCount, 5, 3, "c")), Taken::kNew);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kChunk, 0, 0, "a")), Taken::kNew);
    EXPECT_FALSE(assembly.is_complete());
    EXPECT_EQ(assembly.take(make_record(RecordKind::kChunk, 2, 0, "b")), Taken::kNew);
    ASSERT_TRUE(assembly.is_complete());
    const auto chunks = assembly.chunks();
    ASSERT_EQ(chunks.size(), 3U);
    EXPECT_EQ(chunks[0].first, 0U);
    EXPECT_EQ(chunks[1].first, 2U);
    EXPECT_EQ(chunks[2].first, 5U);
    EXPECT_EQ(assembly.payload_bytes(), 3U);
}
TEST(Assembly, Equal_repetition_is_ignored_and_a_different_one_refused) {
    Assembly assembly;
    EXPECT_EQ(assembly.take(make_record(RecordKind::kLast, 0, 1, "a")), Taken::kNew);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kLast, 0, 1, "a")), Taken::kRepeated);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kLast, 0, 1, "b")), Taken::kConflict);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kChunk, 1, 0, "x")), Taken::kConflict) << "one more than announced";
    EXPECT_EQ(assembly.take(make_record(RecordKind::kLastOfCount, 7, 2, "x")), Taken::kConflict);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kMark, 0, 0, "")), Taken::kConflict);
    EXPECT_EQ(assembly.chunks().size(), 1U);
}
TEST(Assembly, Fewer_announced_than_present_is_refused) {
    Assembly assembly;
    EXPECT_EQ(assembly.take(make_record(RecordKind::kChunk, 0, 0, "a")), Taken::kNew);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kChunk, 1, 0, "a")), Taken::kNew);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kLastOfCount, 1, 1, "a")), Taken::kConflict);
    EXPECT_EQ(assembly.take(make_record(RecordKind::kLast, 2, 2, "a")), Taken::kConflict);
    EXPECT_FALSE(assembly.is_complete());
}
TEST(Assembly, Mark_alone_completes_a_tensor) {
    Assembly empty;
    EXPECT_EQ(empty.take(make_record(RecordKind::kMark, 0, 0, "")), Taken::kNew);
    EXPECT_TRUE(empty.is_complete());
    EXPECT_FALSE(empty.failure());
    EXPECT_TRUE(empty.chunks().empty());
    EXPECT_EQ(empty.take(make_record(RecordKind::kMark, 0, 0, "")), Taken::kRepeated);
    EXPECT_EQ(empty.take(make_record(RecordKind::kMark, 11, 0, "NaN")), Taken::kConflict);
    EXPECT_EQ(empty.take(make_record(RecordKind::kLast, 0, 1, "a")), Taken::kConflict);
    Assembly failed;
    EXPECT_EQ(failed.take(mark_of_failure(0, {StatusCode::kNonFinite, "NaN in rank 1"})), Taken::kNew);
    ASSERT_TRUE(failed.failure());
    EXPECT_EQ(failed.failure()->to_string(), "non-finite: NaN in rank 1");
}
TEST(Assembly, Records_of_chunks_assemble_again) {
    for (const auto& numbers : std::vector<std::vector<std::uint32_t>>{{}, {0}, {0, 1, 2}, {1}, {0, 4}}) {
        std::vector<std::pair<std::uint32_t, SharedView>> chunks;
        for (const auto number : numbers) chunks.emplace_back(number, SharedView::take(Bytes(number + 1)));
        Assembly assembly;
        for (const auto& record : records_of_chunks(3, chunks)) EXPECT_EQ(assembly.take(record), Taken::kNew);
        ASSERT_TRUE(assembly.is_complete());
        EXPECT_EQ(assembly.chunks().size(), numbers.size());
        Assembly again;
        for (const auto& record : assembly.records(3)) EXPECT_EQ(again.take(record), Taken::kNew);
        EXPECT_TRUE(again.is_complete());
    }
}
TEST(Round, Is_complete_once_every_member_delivered_every_tensor) {
    Round round(1, 2, 0, 2, 1);
    EXPECT_FALSE(round.has_submission());
    round.payloads[0].submitted[0] = true;
    EXPECT_TRUE(round.has_submission());
    EXPECT_FALSE(round.is_submitted());
    for (auto& tensor : round.payloads)
        EXPECT_EQ(tensor.from[1].take(make_record(RecordKind::kLast, 0, 1, "a")), Taken::kNew);
    EXPECT_TRUE(round.has_all_from(1));
    EXPECT_FALSE(round.is_complete());
    for (auto& tensor : round.payloads)
        EXPECT_EQ(tensor.from[0].take(make_record(RecordKind::kMark, 0, 0, "")), Taken::kNew);
    EXPECT_TRUE(round.is_complete());
    EXPECT_EQ(round.payload_bytes(), 2U);
}

TEST(Round, Second_phases_are_handed_in_by_nobody) {
    Round round(1, 3, 1, 2, 2);
    EXPECT_FALSE(round.is_submitted());
    for (std::size_t position = 0; position < 2; ++position) round.payloads[position].submitted = {true, true};
    EXPECT_TRUE(round.payloads[2].submitted.empty());
    EXPECT_TRUE(round.is_submitted());
    EXPECT_FALSE(round.has_all_from(1)) << "its payloads are waited for as any others";
}

}  // namespace
}  // namespace gradsieve::exchange
