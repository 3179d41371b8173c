// Every message against golden bytes that were written from the page on the wire format, and against broken bytes.
#include "exchange/messages.hpp"

#include "exchange/job_machine.hpp"
#include "exchange/record.hpp"
#include "tests/exchange/golden_frames.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace gradsieve::exchange {
namespace {

constexpr std::uint64_t kHash = 0x1122334455667788ULL;

Bytes golden(const std::string& name) {
    auto bytes = read_golden_frame(std::string(GOLDEN_DIRECTORY) + "/" + name + ".hex");
    EXPECT_FALSE(bytes.empty()) << name;
    return bytes;
}

struct Case {
    std::string name;
    std::function<Bytes()> build;
    std::function<Result<Bytes>(ByteView)> rebuild;  ///< parse, then build again
};

template <typename T>
Case make_case(const std::string& name, const T& message, Result<T> (*parse)(ByteView)) {
    return {name, [message] { return build_message(kHash, message); },
            [parse](ByteView body) -> Result<Bytes> {
                const auto parsed = parse(body);
                if (!parsed.is_ok()) return parsed.error();
                return build_message(kHash, *parsed);
            }};
}

const JobSpec& example_spec() {
    static const JobSpec spec{.world_size = 3,
                              .non_finite_policy = 1,
                              .codec = "all | f32",
                              .tensors = {{.name = "w", .group = "g", .shape = {10, 300}, .rule = "r"}}};
    return spec;
}

std::vector<Case> cases() {
    return {
        make_case<Prepared>("prepared",
                            {.key = {"job", "run"},
                             .nonce = 0x0102030405060708ULL,
                             .sequence = 300,
                             .ranks = {0, 2},
                             .next_steps = {1},
                             .kept_steps = {},
                             .spec = example_spec()},
                            parse_prepared),
        make_case<Prepared>("prepared_kept",
                            {.key = {"job", "run"},
                             .nonce = 0x0102030405060708ULL,
                             .sequence = 1,
                             .ranks = {0, 2},
                             .next_steps = {1},
                             .kept_steps = {{.steps = {301, 300}}},
                             .spec = example_spec()},
                            parse_prepared),
        make_case<Prepared>("prepared_epochs",
                            {.key = {"job", "run"},
                             .nonce = 0x0102030405060708ULL,
                             .sequence = 1,
                             .ranks = {0, 2},
                             .next_steps = {1},
                             .kept_steps = {{.steps = {301, 300}, .epochs = {0xE0E1E2E3E4E5E6E7ULL, 0}}},
                             .spec = example_spec()},
                            parse_prepared),
        make_case<Start>("start",
                         {.spec_digest = 0xA0A1A2A3A4A5A6A7ULL,
                          .members = {{.peer = 1, .nonce = 5, .ranks = {0, 2}}, {.peer = 0, .nonce = 6, .ranks = {1}}},
                          .first_steps = {1, 200}},
                         parse_start),
        make_case<Reason>("reason", {.code = StatusCode::kMismatch, .text = "no"}, parse_reason),
        make_case<Ack>("acknowledgement", {.stream = 2, .is_aborted = true, .digest = 0xB0B1B2B3B4B5B6B7ULL},
                       parse_ack),
        make_case<Credit>("credit", {.stream = 3, .bytes = 70000}, parse_credit),
        make_case<Progress>(
            "progress",
            {.stream = 2, .is_submitted = true, .is_complete = false, .is_reply = true, .late_ranks = {7, 130}},
            parse_progress),
        make_case<Fetch>("fetch", {.wants = {{.origin = 1, .tensor = 200}, {.origin = 2, .tensor = 0}}}, parse_fetch),
        make_case<Complaint>("complaint", {.reason = {.code = StatusCode::kPeerFailed, .text = "b"}, .failed = {1}},
                             parse_complaint),
        make_case<Query>("query", {.attempt = 2, .reason = {.code = StatusCode::kTimeout, .text = "t"}}, parse_query),
        make_case<Report>("report",
                          {.attempt = 2,
                           .is_refused = false,
                           .coordinator = 0,
                           .groups = {{.done = 300, .is_complete = true}, {.done = 0, .is_complete = false}}},
                          parse_report),
        make_case<Verdict>("verdict",
                           {.reason = {.code = StatusCode::kPeerFailed, .text = "b"},
                            .groups = {{.target = 301, .source = 2}, {.target = 0, .source = 0}}},
                           parse_verdict),
        make_case<RankDied>("rank_died", {.rank = 3, .text = "signal 9"}, parse_rank_died),
        make_case<Detached>("detached",
                            {.ranks = {{.rank = 3, .last_broadcast = 1, .last_check = 2, .last_steps = {100, 200}}}},
                            parse_detached),
        make_case<BroadcastAsk>("broadcast_ask", {.tensor = 4, .root = 1}, parse_broadcast_ask),
        make_case<SnapshotAsk>("snapshot_ask", {.group = 300}, parse_snapshot_ask),
        make_case<SnapshotAnswer>("snapshot_answer",
                                  {.group = 1,
                                   .reason = {.code = StatusCode::kResourceExhausted, .text = "full"},
                                   .digest = 0xD0D1D2D3D4D5D6D7ULL,
                                   .bytes = 70000},
                                  parse_snapshot_answer),
        make_case<Check>("check", {.digests = {{0, 0xC0C1C2C3C4C5C6C7ULL}, {2, 1}}}, parse_check),
    };
}

std::string hex(const Bytes& bytes) {
    std::string text;
    for (const auto byte : bytes) {
        const auto value = std::to_integer<unsigned>(byte);
        text += "0123456789abcdef"[value >> 4U];
        text += "0123456789abcdef"[value & 15U];
        text += ' ';
    }
    return text;
}

TEST(Messages, Are_the_golden_bytes_and_read_back) {
    for (const auto& test : cases()) {
        const auto expected = golden(test.name);
        EXPECT_EQ(hex(test.build()), hex(expected)) << test.name;
        const auto rebuilt = test.rebuild(expected);
        ASSERT_TRUE(rebuilt.is_ok()) << test.name << rebuilt.error().text();
        EXPECT_EQ(hex(*rebuilt), hex(expected)) << test.name;
    }
}
TEST(Messages, Data_frames_are_the_golden_bytes) {
    auto records = build_data_prefix(kHash, kFlagCreditWanted);
    const auto add = [&records](const RecordHeader& header, std::string_view payload) {
        build_record_header(records, header);
        for (const auto byte : as_bytes(payload)) records.push_back(byte);
    };
    add({.tensor = 1, .kind = RecordKind::kChunk, .chunk = 0, .payload_bytes = 2}, "ab");
    add({.tensor = 1, .kind = RecordKind::kLast, .chunk = 1, .count = 2, .payload_bytes = 1}, "c");
    add({.tensor = 40, .kind = RecordKind::kLastOfCount, .chunk = 9, .count = 3, .payload_bytes = 0}, "");
    add({.tensor = 2, .kind = RecordKind::kMark, .chunk = 0, .payload_bytes = 0}, "");
    add({.tensor = 3, .kind = RecordKind::kMark, .chunk = 11, .payload_bytes = 3}, "NaN");
    EXPECT_EQ(hex(records), hex(golden("records")));
    EXPECT_TRUE(has_whole_records(SharedView::take(records), parse_data_prefix(records, false)->first_byte));

    const auto relay = build_relay_prefix(kHash, 0, 200);
    EXPECT_EQ(hex(relay), hex(golden("relay")));
    EXPECT_EQ(parse_data_prefix(relay, true)->origin, 200U);

    auto broadcast = build_data_prefix(kHash, 0);
    const auto header =
        build_piece_header({.ask = {.tensor = 4, .root = 1}, .total_bytes = 1048579, .first_byte = 1048576});
    broadcast.insert(broadcast.end(), header.begin(), header.end());
    for (const auto byte : as_bytes("xyz")) broadcast.push_back(byte);
    EXPECT_EQ(hex(broadcast), hex(golden("broadcast")));
    const auto piece = parse_broadcast_piece(broadcast);
    ASSERT_TRUE(piece.is_ok());
    EXPECT_EQ(piece->first_byte, 1048576U);
    EXPECT_EQ(piece->header_bytes + 3, broadcast.size());
}
TEST(Messages, Truncated_and_lengthened_bodies_are_refused_by_name) {
    for (const auto& test : cases()) {
        auto bytes = test.build();
        for (std::size_t count = 0; count < bytes.size(); ++count)
            EXPECT_EQ(test.rebuild(ByteView(bytes).first(count)).status().code(), StatusCode::kCorrupt)
                << test.name << " cut to " << count;
        bytes.push_back(std::byte{0});
        const auto status = test.rebuild(bytes).status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << test.name;
        EXPECT_NE(status.text().find("allowed is"), std::string::npos) << status.text();
    }
}
TEST(Messages, Mutated_bodies_never_crash) {
    std::mt19937_64 random(5);
    for (const auto& test : cases()) {
        const auto good = test.build();
        for (int round = 0; round < 3000; ++round) {
            auto bytes = good;
            for (int flips = 0; flips < 2; ++flips) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
            if (const auto rebuilt = test.rebuild(bytes); rebuilt.is_ok()) {
                EXPECT_LE(rebuilt->size(), bytes.size());
            }
        }
    }
}
TEST(Messages, Text_is_cut_at_its_limit) {
    const auto body = build_message(kHash, Reason{.code = StatusCode::kInternal, .text = std::string(10000, 'x')});
    const auto parsed = parse_reason(body);
    ASSERT_TRUE(parsed.is_ok());
    EXPECT_EQ(parsed->text.size(), kMessageTextLimitBytes);
}
TEST(Messages, Every_frame_type_has_a_name_and_unknown_ones_say_so) {
    for (std::uint16_t type = 16; type <= 37; ++type)
        EXPECT_EQ(frame_type_name(type).find("unknown"), std::string::npos) << type;
    EXPECT_EQ(frame_type_name(38), "unknown (38)");
    EXPECT_TRUE(is_for_every_job(16));
    EXPECT_FALSE(is_for_every_job(17));
}
TEST(JobHash, Differs_by_name_and_run_and_stands_first_in_every_body) {
    EXPECT_NE(job_hash({"a", "b"}), job_hash({"b", "a"}));
    EXPECT_NE(job_hash({"a", "1"}), job_hash({"a", "2"}));
    EXPECT_EQ(job_of_frame(build_message(kHash, RankDied{})), kHash);
    EXPECT_FALSE(job_of_frame(Bytes(7)));
}

}  // namespace
}  // namespace gradsieve::exchange
