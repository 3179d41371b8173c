// Broken and hostile frames: counted, named, never fatal, and no wrong bits come of them.
#include "exchange/record.hpp"
#include "tests/exchange/sim.hpp"

#include <gtest/gtest.h>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;

SimOptions three_nodes() { return {.ranks = {{0}, {1}, {}}, .spec = make_spec(2, 3, 1)}; }

class Hostile : public testing::Test {
protected:
    Hostile() : sim(three_nodes()), hash(job_hash(sim.key())) { sim.attach_all(); }
    void send(PeerIndex from, FrameType type, Step step, Bytes body, std::optional<Epoch> epoch = std::nullopt) {
        auto& machine = *sim.node(0).machine;
        const auto own = machine.snapshot(sim.now()).epoch;
        machine.on_frame(from, static_cast<std::uint16_t>(type), epoch.value_or(own), step,
                         SharedView::take(std::move(body)), sim.now());
        sim.deliver_actions(0);
    }
    void expect_refused(const std::string& part) {
        const auto shot = sim.node(0).machine->snapshot(sim.now());
        EXPECT_EQ(shot.frames_refused, ++refused) << shot.last_refusal;
        EXPECT_TRUE(has(shot.last_refusal, part)) << shot.last_refusal;
        EXPECT_FALSE(sim.node(0).end);
    }
    Bytes records(const RecordHeader& header, std::size_t payload_bytes) {
        auto body = build_data_prefix(hash, 0);
        build_record_header(body, header);
        body.resize(body.size() + payload_bytes, std::byte{9});
        return body;
    }
    Sim sim;
    std::uint64_t hash;
    std::uint64_t refused = 0;
};

TEST_F(Hostile, Each_kind_of_wrong_frame_is_counted_and_named) {
    const Ack ack{.stream = 2};
    send(1, FrameType::kAck, 1, build_message(hash, ack), 12345);
    expect_refused("another epoch");
    send(2, FrameType::kAck, 1, build_message(hash, ack));
    expect_refused("node c: acknowledgement of a node without ranks");
    send(1, FrameType::kAck, 1, build_message(hash + 1, ack));
    expect_refused("another job");
    send(1, FrameType::kAck, 1, Bytes(5));
    expect_refused("less than 8 bytes");
    send(1, static_cast<FrameType>(99), 1, build_message(hash, ack));
    expect_refused("unknown frame type 99");
    send(1, FrameType::kAck, 9, build_message(hash, ack));
    expect_refused("acknowledgement of step 9");
    send(1, FrameType::kAck, 1, build_message(hash, Ack{.stream = 70}));
    expect_refused("unknown group");
    send(1, FrameType::kRecords, 1,
         records({.tensor = 77, .kind = RecordKind::kLast, .chunk = 0, .count = 1, .payload_bytes = 1}, 1));
    expect_refused("not in the job");
    send(1, FrameType::kRecords, 1,
         records({.tensor = 0, .kind = RecordKind::kLast, .chunk = 0, .count = 1, .payload_bytes = 10}, 3));
    expect_refused("do not parse");
    send(1, FrameType::kRecords, 7,
         records({.tensor = 0, .kind = RecordKind::kLast, .chunk = 0, .count = 1, .payload_bytes = 1}, 1));
    expect_refused("records of step 7 before step 1");
    send(1, FrameType::kRecords, 1,
         records({.tensor = 0, .kind = RecordKind::kChunk, .chunk = 1U << 30U, .payload_bytes = 1}, 1));
    expect_refused("not in the job's table");
    auto relay = build_relay_prefix(hash, 0, 0);
    build_record_header(relay, {.tensor = 0, .kind = RecordKind::kMark});
    send(1, FrameType::kRelay, 1, relay);
    expect_refused("that were not asked for");
    send(1, FrameType::kProgress, 9, build_message(hash, Progress{.stream = 2, .late_ranks = {}}));
    expect_refused("progress of step 9");
    send(1, FrameType::kRankDied, 0, build_message(hash, RankDied{.rank = 50, .text = ""}));
    expect_refused("unknown rank");
    send(1, FrameType::kDetached, 0, build_message(hash, Detached{.ranks = {{.rank = 0, .last_steps = {5}}}}));
    expect_refused("has not detached");
    send(1, FrameType::kCheck, 1, build_message(hash, Check{.digests = {{0, 1}}}));
    expect_refused("does not name the node's ranks");
    send(1, FrameType::kFetch, 1, build_message(hash, Fetch{.wants = {{.origin = 0, .tensor = 1000}}}));
    expect_refused("fetch of a tensor");
    send(1, FrameType::kVerdict, 0,
         build_message(hash, Verdict{.reason = {.code = StatusCode::kTimeout, .text = ""}, .groups = {}}));
    expect_refused("verdict that does not fit");
    send(1, FrameType::kRefuse, 0, build_message(hash, Reason{.code = StatusCode::kMismatch, .text = "go away"}));
    EXPECT_FALSE(sim.node(0).end) << sim.text();
}
TEST_F(Hostile, Different_content_of_a_record_is_refused_and_the_first_stays) {
    auto first = records({.tensor = 0, .kind = RecordKind::kLast, .chunk = 0, .count = 1, .payload_bytes = 8}, 8);
    send(1, FrameType::kRecords, 1, first);
    auto second = first;
    second.at(second.size() - 1) = std::byte{1};
    send(1, FrameType::kRecords, 1, first);
    EXPECT_EQ(sim.node(0).machine->snapshot(sim.now()).frames_refused, 0U) << "an equal repetition is fine";
    send(1, FrameType::kRecords, 1, second);
    expect_refused("tensor 'ta', chunk 0: differs from what was sent before");
}
TEST_F(Hostile, Refusal_from_a_member_that_never_spoke_ends_the_job_but_not_from_a_stranger) {
    send(2, FrameType::kRefuse, 0, build_message(hash, Reason{.code = StatusCode::kMismatch, .text = "go away"}));
    expect_refused("refusal of a job that is running");
}
TEST_F(Hostile, Random_bytes_of_every_type_change_nothing) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 20000; ++round) {
        Bytes body(random() % 60);
        for (auto& byte : body) byte = static_cast<std::byte>(random());
        if (body.size() >= 8 && round % 4 != 0) {
            Bytes prefix;
            ByteWriter(prefix).write(hash);
            std::copy(prefix.begin(), prefix.end(), body.begin());
        }
        const auto type = static_cast<FrameType>(16 + random() % 20);
        if (type == FrameType::kEnd || type == FrameType::kRankDied || type == FrameType::kVerdict ||
            type == FrameType::kDetached || type == FrameType::kQuery || type == FrameType::kComplaint ||
            type == FrameType::kBroadcastAsk)
            continue;  // a member may end the job: that is no broken frame
        send(1, type, random() % 3, std::move(body));
        ASSERT_FALSE(sim.node(0).end) << sim.text();
    }
    EXPECT_GT(sim.node(0).machine->snapshot(sim.now()).frames_refused, 1000U);
}
TEST_F(Hostile, Random_bytes_of_the_ending_types_never_crash) {
    std::mt19937_64 random(4);
    for (int round = 0; round < 300; ++round) {
        Sim victim(three_nodes());
        victim.attach_all();
        for (int frame = 0; frame < 30; ++frame) {
            Bytes body;
            ByteWriter(body).write(hash);
            for (std::size_t i = random() % 12; i > 0; --i) body.push_back(static_cast<std::byte>(random() % 20));
            victim.node(0).machine->on_frame(1, static_cast<std::uint16_t>(16 + random() % 20),
                                             victim.node(0).machine->snapshot(victim.now()).epoch, random() % 3,
                                             SharedView::take(std::move(body)), victim.now());
            (void)victim.node(0).machine->take_actions();
        }
        victim.node(0).machine->on_time(victim.now() + 1s);
    }
}

/// Valid frames with flipped bits: the machine may refuse or end, but never delivers wrong bits as right... unless the
/// flipped bits are payload, which the transport's checksum guards; so payloads stay as they are here.
TEST(HostileRuns, Mutated_control_frames_never_break_a_promise) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        auto options = SimOptions{.ranks = {{0}, {1}, {2}}, .spec = make_spec(3, 3, 2)};
        options.seed = seed;
        Sim sim(options);
        std::mt19937_64 random(seed);
        sim.train(6);
        sim.filter = [&](std::size_t from, const SendFrame& frame) {
            if (frame.is_bulk || random() % 8 != 0) return true;
            SendFrame broken = frame;
            Bytes body(frame.parts[0].bytes().begin(), frame.parts[0].bytes().end());
            body[random() % body.size()] ^= static_cast<std::byte>(1U << (random() % 8));
            if (random() % 4 == 0) body.resize(random() % body.size());
            broken.parts = {SharedView::take(std::move(body))};
            sim.at(200us, [&sim, from, broken] { sim.deliver(from, broken.to, broken); });
            return false;
        };
        (void)sim.run_until_done(60s);
        for (const auto& violation : sim.violations()) {
            const bool is_bits = has(violation, "wrong bits") || has(violation, "decoded");
            EXPECT_FALSE(is_bits) << sim.text();
        }
    }
}

}  // namespace
}  // namespace gradsieve::exchange
