// The sharded plan: chunks of first payloads go to their owners alone, and what these send is the result.
#include "exchange/shards.hpp"
#include "exchange/record.hpp"
#include "tests/exchange/sim.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace gradsieve::exchange {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Of the four tensors 'tb', 'tc' (three chunks) and 'td' are sharded; their second payloads come behind all tensors.
constexpr TensorNumber kPlain = 0, kOne = 1, kThree = 2;
constexpr std::uint32_t kOneShard = 4, kThreeShard = 5;

SimOptions three_nodes(std::uint8_t policy = 0) {
    return {.ranks = {{0}, {1}, {2, 3}}, .spec = make_sharded_spec(4, 4, 1, policy)};
}

/// Numbers and chunks of the records in a frame.
std::vector<std::pair<std::uint32_t, std::uint32_t>> records_in(const SendFrame& frame) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> records;
    if (frame.type != static_cast<std::uint16_t>(FrameType::kRecords)) return records;
    const auto prefix = parse_data_prefix(frame.parts[0].bytes(), false);
    RecordReader reader(frame.parts[0], prefix->first_byte);
    while (const auto record = reader.next())
        if (record->header.kind != RecordKind::kMark) records.emplace_back(record->header.tensor, record->header.chunk);
    return records;
}
bool has_number(const SendFrame& frame, std::uint32_t number) {
    return std::ranges::any_of(records_in(frame), [number](const auto& record) { return record.first == number; });
}

TEST(ShardOwners, Are_the_members_with_the_fewest_elements_so_far) {
    const auto owners = shard_owners(make_sharded_spec(4, 4, 1), 3);
    EXPECT_THAT(owners[kPlain], IsEmpty());
    EXPECT_THAT(owners[kOne], ElementsAre(0));
    EXPECT_THAT(owners[kThree], ElementsAre(1, 2, 0));
    EXPECT_THAT(owners[3], ElementsAre(0)) << "20,480 elements so far, the others have a chunk each";
    EXPECT_THAT(shard_owners(make_sharded_spec(4, 4, 1), 1)[kThree], ElementsAre(0, 0, 0));
}
TEST(ShardOwners, Shards_of_large_tensors_differ_by_less_than_a_chunk) {
    auto spec = make_sharded_spec(4, 3, 1);
    spec.tensors[1].shape = {25, kChunkElements};
    spec.tensors[2].shape = {7 * kChunkElements + 4097};
    for (const std::size_t members : {2U, 3U, 16U, 100U}) {
        const auto owners = shard_owners(spec, members);
        std::vector<ElementCount> elements(members);
        ElementCount all = 0;
        for (const TensorNumber tensor : {1U, 2U}) {
            const auto count = spec.tensors[tensor].elements();
            ASSERT_EQ(owners[tensor].size(), (count + kChunkElements - 1) / kChunkElements);
            for (std::size_t chunk = 0; chunk < owners[tensor].size(); ++chunk)
                elements[owners[tensor][chunk]] += std::min(kChunkElements, count - chunk * kChunkElements);
            all += count;
        }
        const auto [least, most] = std::ranges::minmax(elements);
        EXPECT_LE(most - least, kChunkElements);
        EXPECT_EQ(std::accumulate(elements.begin(), elements.end(), ElementCount{0}), all);
    }
}
TEST(Shards, Are_sent_to_their_owners_and_come_from_them_alone) {
    Sim sim(three_nodes());
    using Way = std::pair<std::size_t, std::size_t>;  // from, to
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Way>> ways;
    sim.filter = [&](std::size_t from, const SendFrame& frame) {
        for (const auto& record : records_in(frame)) ways[record].emplace_back(from, frame.to);
        return true;
    };
    sim.attach_all();
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) {
        ASSERT_EQ(sim.node(node).committed[0], 1U) << sim.text();
        for (TensorNumber tensor = 0; tensor < 4; ++tensor)
            EXPECT_EQ(sim.node(node).areas.at({tensor, 1}), sim.expected_bits(tensor, 1));
    }
    for (auto& entry : ways) std::ranges::sort(entry.second);
    EXPECT_THAT((ways[{kOne, 0}]), ElementsAre(Way{1, 0}, Way{2, 0}));
    EXPECT_THAT((ways[{kOneShard, 0}]), ElementsAre(Way{0, 1}, Way{0, 2}));
    EXPECT_THAT((ways[{kThree, 0}]), ElementsAre(Way{0, 1}, Way{2, 1}));
    EXPECT_THAT((ways[{kThree, 1}]), ElementsAre(Way{0, 2}, Way{1, 2}));
    EXPECT_THAT((ways[{kThreeShard, 0}]), ElementsAre(Way{1, 0}, Way{1, 2}));
    EXPECT_THAT((ways[{kThreeShard, 1}]), ElementsAre(Way{2, 0}, Way{2, 1}));
    EXPECT_EQ((ways[{kPlain, 0}].size()), 6U) << "to all";
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Shards, Of_a_single_node_need_no_frames) {
    Sim sim({.ranks = {{0, 1}}, .spec = make_sharded_spec(2, 4, 2)});
    sim.train(5);
    ASSERT_TRUE(sim.run_until_done(20s)) << sim.text();
    EXPECT_EQ(sim.node(0).committed[0], 5U);
    EXPECT_EQ(sim.node(0).frames, 0U);
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Shards, Of_more_nodes_than_chunks_train_to_the_end) {
    Sim sim({.ranks = {{0}, {1}, {2}, {3}, {4}}, .spec = make_sharded_spec(5, 2, 1)});
    sim.train(10, 20ms);
    ASSERT_TRUE(sim.run_until_done(20s)) << sim.text();
    for (std::size_t node = 0; node < sim.size(); ++node) {
        EXPECT_EQ(sim.node(node).committed[0], 10U) << sim.text();
        const auto shot = sim.node(node).machine->snapshot(sim.now());
        EXPECT_EQ(shot.frames_refused, 0U) << shot.last_refusal;
        EXPECT_EQ(shot.payload_bytes_retained, 0U);
        EXPECT_EQ(shot.digests_different, 0U);
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}

class ShardsNonFinite : public testing::TestWithParam<std::uint8_t> {};
TEST_P(ShardsNonFinite, follow_the_policy_on_every_node) {
    for (Rank bad = 0; bad < 4; ++bad)
        for (const TensorNumber tensor : {kOne, kThree}) {
            Sim sim(three_nodes(GetParam()));
            sim.make_non_finite(bad, tensor, 1);
            sim.attach_all();
            sim.submit_all(1);
            sim.run_quiet();
            for (std::size_t node = 0; node < 3; ++node) {
                const auto& status = sim.node(node).results.at({tensor, 1});
                EXPECT_EQ(status.code(), GetParam() == 0 ? StatusCode::kNonFinite : StatusCode::kOk) << status.text();
                EXPECT_EQ(sim.node(node).nan_results.at({tensor, 1}), GetParam() == 1);
                EXPECT_EQ(sim.node(node).committed[0], GetParam() == 2 ? 1U : 0U) << sim.text();
            }
            sim.submit_all(2);
            sim.run_quiet();
            for (std::size_t node = 0; node < 3; ++node) EXPECT_EQ(sim.node(node).committed[0], 2U) << sim.text();
            EXPECT_TRUE(sim.violations().empty()) << sim.text();
        }
}
INSTANTIATE_TEST_SUITE_P(Shards, ShardsNonFinite, testing::Values<std::uint8_t>(0, 1, 2));

TEST(Shards, Lost_payloads_of_either_way_are_fetched_after_the_deadline) {
    for (const auto number : {kThree, TensorNumber{kThreeShard}}) {
        Sim sim(three_nodes());
        sim.attach_all();
        int seen = 0;
        sim.filter = [&](std::size_t, const SendFrame& frame) { return !has_number(frame, number) || ++seen > 1; };
        sim.submit_all(1);
        sim.run_for(1500ms);
        EXPECT_LT(sim.node(0).committed[0] + sim.node(1).committed[0] + sim.node(2).committed[0], 3U);
        sim.run_for(1500ms);
        for (std::size_t node = 0; node < 3; ++node) EXPECT_EQ(sim.node(node).committed[0], 1U) << sim.text();
        EXPECT_TRUE(sim.violations().empty()) << sim.text();
    }
}
TEST(Shards, Owner_that_dies_before_it_has_sent_leaves_one_verdict) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.filter = [&](std::size_t from, const SendFrame& frame) {
        if (from != 1 || !has_number(frame, kThreeShard)) return true;
        sim.at(0ms, [&sim] { sim.kill(1); });
        return false;
    };
    sim.submit_all(1);
    sim.run_for(10s);
    for (const std::size_t node : {0U, 2U}) {
        ASSERT_TRUE(sim.node(node).end) << sim.text();
        EXPECT_EQ(sim.node(node).committed[0], 0U);
        EXPECT_FALSE(sim.node(node).results.at({kThree, 1}).is_ok());
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Shards, What_a_dead_owner_sent_to_one_node_reaches_the_other_from_there) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.filter = [&](std::size_t from, const SendFrame& frame) {
        if (from != 1 || !has_number(frame, kThreeShard)) return true;
        sim.at(30ms, [&sim] { sim.kill(1); });
        return frame.to == 2;
    };
    sim.submit_all(1);
    sim.run_for(10s);
    for (const std::size_t node : {0U, 2U}) {
        EXPECT_EQ(sim.node(node).committed[0], 1U) << sim.text();
        EXPECT_EQ(sim.node(node).areas.at({kThree, 1}), sim.expected_bits(kThree, 1));
    }
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}
TEST(Shards, Chunks_for_another_owner_and_of_another_than_the_owner_are_refused) {
    Sim sim(three_nodes());
    sim.attach_all();
    sim.run_quiet();
    const auto deliver = [&](std::size_t from, std::size_t to, std::uint32_t number, std::uint32_t chunk) {
        Bytes body = build_data_prefix(job_hash(sim.key()), 0);
        build_record_header(body, {.tensor = number, .chunk = chunk, .payload_bytes = 0});
        SendFrame frame{.to = static_cast<PeerIndex>(to),
                        .is_bulk = true,
                        .type = static_cast<std::uint16_t>(FrameType::kRecords),
                        .epoch = sim.node(to).machine->snapshot(sim.now()).epoch,
                        .step = 1,
                        .parts = {}};
        frame.parts.push_back(SharedView::take(std::move(body)));
        sim.deliver(from, to, frame);
    };
    deliver(2, 1, kThree, 1);  // node 2's own
    EXPECT_THAT(sim.node(1).machine->snapshot(sim.now()).last_refusal, HasSubstr("another node's shard"));
    deliver(2, 1, kThreeShard, 0);  // node 1's own
    deliver(2, 1, kThreeShard, 2);  // node 0's
    deliver(2, 1, kThree, 3);       // nobody's
    EXPECT_EQ(sim.node(1).machine->snapshot(sim.now()).frames_refused, 4U);
    sim.submit_all(1);
    sim.run_quiet();
    for (std::size_t node = 0; node < 3; ++node) EXPECT_EQ(sim.node(node).committed[0], 1U) << sim.text();
    EXPECT_TRUE(sim.violations().empty()) << sim.text();
}

}  // namespace
}  // namespace gradsieve::exchange
