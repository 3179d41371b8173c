#include "exchange/outbox.hpp"

#include "exchange/record.hpp"
#include "exchange/round_watcher.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

namespace gradsieve::exchange {
namespace {

class OutboxTest : public testing::Test {
protected:
    OutboxTest() {
        context.hash = 1;
        context.nodes.resize(2);
        context.peers.resize(2);
        context.limits = {.credit_bytes = 100, .frame_target_bytes = 40};
    }
    void add(std::uint32_t tensor, std::size_t bytes, Step step = 1) {
        OutRecord record{
            .tensor = tensor, .chunk = 0, .header = {}, .payload = SharedView::take(Bytes(bytes, std::byte{7}))};
        build_record_header(record.header, {.tensor = tensor,
                                            .kind = RecordKind::kLast,
                                            .chunk = 0,
                                            .count = 1,
                                            .payload_bytes = static_cast<std::uint32_t>(bytes)});
        outbox->add(1, key(step), std::move(record));
    }
    static OutKey key(Step step) { return {.step = step, .stream = kFirstGroupStream, .origin = 0}; }
    std::vector<SendFrame> frames() {
        std::vector<SendFrame> sent;
        for (auto& action : std::exchange(context.actions, {})) sent.push_back(std::get<SendFrame>(std::move(action)));
        return sent;
    }
    static std::vector<std::uint32_t> tensors(const SendFrame& frame) {
        Bytes body;
        for (const auto& part : frame.parts) body.insert(body.end(), part.bytes().begin(), part.bytes().end());
        const auto view = SharedView::take(std::move(body));
        std::vector<std::uint32_t> found;
        RecordReader reader(view, parse_data_prefix(view.bytes(), false)->first_byte);
        while (const auto record = reader.next()) found.push_back(record->header.tensor);
        EXPECT_TRUE(reader.is_ok());
        return found;
    }
    static bool wants_credit(const SendFrame& frame) {
        return parse_data_prefix(frame.parts[0].bytes(), false)->flags == kFlagCreditWanted;
    }

    JobContext context;
    std::unique_ptr<Outbox> outbox = [this] {
        context.nodes.resize(2);
        return std::make_unique<Outbox>(context);
    }();
};

struct FrameWatcher final : RoundWatcher {
    void on_record_in(std::uint32_t, Step, PeerIndex, bool, bool) override {}
    void on_record_out(std::uint32_t tensor, Step step, PeerIndex to, std::uint64_t frame) override {
        told.push_back({tensor, step, to, frame});
    }
    std::vector<std::array<std::uint64_t, 4>> told;
};

TEST_F(OutboxTest, Watcher_is_told_which_tensors_travel_in_which_frame) {
    add(0, 10);
    outbox->flush();
    EXPECT_EQ(frames().at(0).number, 0U) << "nobody watches";
    FrameWatcher watcher;
    context.spec.tensors.resize(4);
    context.watcher = &watcher;
    add(1, 10, 2);
    add(1, 3, 2);
    add(2, 10, 2);
    outbox->flush();
    add(3, 10, 3);
    outbox->flush();
    const auto sent = frames();
    ASSERT_EQ(sent.size(), 2U);
    EXPECT_EQ(sent[0].number, 1U);
    EXPECT_EQ(sent[1].number, 2U);
    EXPECT_EQ(watcher.told, (std::vector<std::array<std::uint64_t, 4>>{{1, 2, 1, 1}, {2, 2, 1, 1}, {3, 3, 1, 2}}));
    outbox->add(1, {.step = 3, .stream = kBroadcastStream, .origin = 0},
                {.tensor = 0, .chunk = 0, .header = {}, .payload = SharedView::take(Bytes(4))});
    outbox->flush();
    EXPECT_EQ(frames().at(0).number, 0U) << "broadcasts belong to no step";
    EXPECT_EQ(watcher.told.size(), 3U);
}
TEST_F(OutboxTest, Records_gather_until_the_target_is_reached) {
    add(0, 10);
    add(1, 10);
    EXPECT_TRUE(frames().empty());
    add(2, 11);
    const auto sent = frames();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(tensors(sent[0]), (std::vector<std::uint32_t>{0, 1, 2}));
    EXPECT_TRUE(sent[0].is_bulk);
    EXPECT_EQ(sent[0].step, 1U);
}
TEST_F(OutboxTest, Flush_and_completion_send_what_is_there) {
    add(0, 10);
    outbox->flush();
    EXPECT_EQ(frames().size(), 1U);
    add(1, 10);
    outbox->complete(1, key(1));
    EXPECT_EQ(frames().size(), 1U);
    outbox->flush();
    EXPECT_TRUE(frames().empty());
    EXPECT_TRUE(outbox->is_empty(1));
}
TEST_F(OutboxTest, Large_record_travels_alone_and_without_a_copy) {
    add(0, 10);
    add(1, 60);
    add(2, 10);
    outbox->flush();
    const auto sent = frames();
    ASSERT_EQ(sent.size(), 3U);
    EXPECT_EQ(tensors(sent[1]), (std::vector<std::uint32_t>{1}));
    ASSERT_EQ(sent[1].parts.size(), 2U);
    EXPECT_EQ(sent[1].parts[1].bytes().size(), 60U);
    EXPECT_EQ(sent[0].parts.size(), 1U);
}
TEST_F(OutboxTest, Bytes_in_flight_stay_within_the_window_but_for_one_reserved_record) {
    context.limits.frame_target_bytes = 1000;
    for (std::uint32_t tensor = 0; tensor < 9; ++tensor) add(8 - tensor, 30);
    outbox->flush();
    auto sent = frames();
    std::multiset<std::uint32_t> seen;
    for (const auto& frame : sent)
        for (const auto tensor : tensors(frame)) seen.insert(tensor);
    EXPECT_EQ(seen, (std::multiset<std::uint32_t>{8, 7, 6, 0})) << "three fit into 100 bytes; tensor 0 is the lowest";
    EXPECT_TRUE(wants_credit(sent.back()));
    EXPECT_EQ(outbox->in_flight_bytes(1), 120U);
    outbox->flush();
    EXPECT_TRUE(frames().empty()) << "the reserve is spent until credit comes";
    outbox->on_credit(1, kFirstGroupStream, 1, 120);
    EXPECT_FALSE(frames().empty());
}
TEST_F(OutboxTest, Record_larger_than_the_window_still_leaves) {
    add(0, 500);
    outbox->flush();
    const auto sent = frames();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_TRUE(wants_credit(sent[0]));
}
TEST_F(OutboxTest, Acknowledgement_returns_the_credit_of_its_steps_and_late_credit_counts_once) {
    add(0, 90, 1);
    add(0, 90, 2);
    outbox->flush();
    ASSERT_EQ(frames().size(), 2U) << "the second as the reserved one";
    outbox->on_acknowledged(1, kFirstGroupStream, 1);
    EXPECT_EQ(outbox->in_flight_bytes(1), 90U);
    outbox->on_credit(1, kFirstGroupStream, 1, 90);
    EXPECT_EQ(outbox->in_flight_bytes(1), 90U);
    outbox->on_credit(1, kFirstGroupStream, 2, UINT64_MAX);
    EXPECT_EQ(outbox->in_flight_bytes(1), 0U);
}
TEST_F(OutboxTest, Forgetting_frees_the_window_and_drops_what_waits) {
    add(0, 90);
    add(1, 90);
    add(2, 90);
    outbox->flush();
    (void)frames();
    outbox->forget(1, key(1));
    EXPECT_EQ(outbox->in_flight_bytes(1), 0U);
    EXPECT_TRUE(outbox->is_empty(1));
}
TEST_F(OutboxTest, Receiver_returns_credit_from_half_a_window_on_or_when_asked) {
    outbox->on_received(1, kFirstGroupStream, 1, 30, false);
    EXPECT_TRUE(frames().empty());
    outbox->on_received(1, kFirstGroupStream, 1, 30, false);
    auto sent = frames();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].type, static_cast<std::uint16_t>(FrameType::kCredit));
    EXPECT_EQ(parse_credit(sent[0].parts[0].bytes())->bytes, 60U);
    outbox->on_received(1, kFirstGroupStream, 2, 1, true);
    sent = frames();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(parse_credit(sent[0].parts[0].bytes())->bytes, 1U);
}
TEST_F(OutboxTest, Own_acknowledgement_replaces_credit) {
    outbox->on_received(1, kFirstGroupStream, 1, 40, false);
    outbox->on_own_acknowledgement(kFirstGroupStream, 1);
    outbox->on_received(1, kFirstGroupStream, 2, 40, false);
    EXPECT_TRUE(frames().empty());
}

TEST_F(OutboxTest, Frames_of_our_own_payloads_ask_for_an_answer_where_links_are_measured) {
    add(0, 10);
    outbox->flush();
    auto sent = frames();
    EXPECT_FALSE(wants_credit(sent.at(0)));
    EXPECT_EQ(sent.at(0).answered_bytes, 0U);
    context.are_answers_wanted = true;
    add(1, 11);
    add(2, 12);
    outbox->flush();
    OutRecord relayed{.tensor = 3, .chunk = 0, .header = {}, .payload = SharedView::take(Bytes(5, std::byte{7}))};
    outbox->add(1, {.step = 1, .stream = kFirstGroupStream, .origin = 1}, std::move(relayed));
    OutRecord broadcast{.tensor = 4, .chunk = 0, .header = {}, .payload = SharedView::take(Bytes(5, std::byte{7}))};
    outbox->add(1, {.step = 1, .stream = kBroadcastStream, .origin = 0}, std::move(broadcast));
    outbox->flush();
    sent = frames();
    ASSERT_EQ(sent.size(), 3U);
    ByteCount answered = 0;
    for (const auto& frame : sent) answered += frame.answered_bytes;
    EXPECT_EQ(answered, 23U) << "neither what another node made nor a broadcast";
    EXPECT_EQ(std::ranges::count_if(sent, [](const auto& frame) { return frame.answered_bytes > 0; }), 1);
}
TEST_F(OutboxTest, An_answer_tells_how_much_has_arrived) {
    const auto credit = [](Stream stream) { return build_message(1, Credit{.stream = stream, .bytes = 23}); };
    constexpr auto kType = static_cast<std::uint16_t>(FrameType::kCredit);
    EXPECT_EQ(credited_bytes(kType, credit(kFirstGroupStream)), 23U);
    EXPECT_EQ(credited_bytes(kType, credit(kBroadcastStream)), std::nullopt);
    EXPECT_EQ(credited_bytes(kType + 1, credit(kFirstGroupStream)), std::nullopt);
    EXPECT_EQ(credited_bytes(kType, ByteView(credit(kFirstGroupStream)).first(9)), std::nullopt);
}

}  // namespace
}  // namespace gradsieve::exchange
