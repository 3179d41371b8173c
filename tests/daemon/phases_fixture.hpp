// Two daemons in one process, a rank on each, and three tensors of which two are large enough for codecs whose steps
// have two phases.
#pragma once

#include "codec/phases.hpp"
#include "codec/state_arrays.hpp"
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <array>
#include <cstring>
#include <limits>
#include <random>

namespace gradsieve::daemon::test {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Values = std::vector<float>;

inline constexpr std::uint32_t kSeed = 11;
inline constexpr std::uint32_t kLarge = 0, kSmall = 1, kBias = 2;
inline constexpr std::size_t kLargeElements = 300 * 200, kSmallElements = 40 * 30, kBiasElements = 5;
inline const float kNotANumber = std::numeric_limits<float>::quiet_NaN();

inline shm::AttachRequest request_of(Rank rank, std::uint32_t world_size, const std::string& codec) {
    return make_request(rank, world_size,
                        {{.name = "large", .shape = {300, 200}},
                         {.name = "small", .shape = {40, 6, 5}},
                         {.name = "zbias", .shape = {kBiasElements}}},
                        codec);
}
inline bool same_bits(const Values& left, const Values& right) {
    return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

/// Two daemons in one process, a rank on each.
class PhasesFixture : public ::testing::Test {
protected:
    void start(const std::string& codec, shm::NonFinitePolicy policy = shm::NonFinitePolicy::kFail) {
        for (const Rank rank : {0U, 1U}) {
            auto request = request_of(rank, 2, codec);
            request.non_finite = policy;
            ranks.push_back(&hosts[rank]->attach(request));
        }
        for (auto* rank : ranks) ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStarted, 1));
    }
    static std::array<Values, 3> draw(std::mt19937& random) {
        return {noise(kLargeElements, random), noise(kSmallElements, random), noise(kBiasElements, random)};
    }
    void hand_in(Step step, const std::array<std::array<Values, 3>, 2>& gradients) {
        for (const std::size_t node : {0U, 1U})
            for (const auto tensor : {kLarge, kSmall, kBias})
                ranks[node]->client->submit(tensor, step, gradients[node][tensor]);
    }
    void wait_step(Step step, const std::string& text = "ok: ") {
        for (auto* rank : ranks) {
            ASSERT_TRUE(wait_for(hosts, *rank, CompletionKind::kStepDone, step));
            EXPECT_THAT(text_of(rank->client->last(CompletionKind::kStepDone)), HasSubstr(text));
        }
    }
    const HostedTensor& tensor(std::size_t node, std::uint32_t index) const {
        return hosts[node]->job->tensors()[index];
    }
    Values live(std::size_t node, std::uint32_t index, float* codec::StateView::*array, std::size_t count) const {
        const auto& hosted = tensor(node, index);
        const auto committed = hosts[node]->job->groups()[0].committed;
        const float* values = hosted.generations[hosted.live_generation(committed)].arrays.*array;
        return {values, values + count};
    }
    void expect_same_results(Step step) const {
        for (const auto index : {kLarge, kSmall, kBias})
            EXPECT_TRUE(same_bits(ranks[0]->client->result(index), ranks[1]->client->result(index)))
                << "step " << step << " tensor " << index << " seed " << kSeed;
    }

    PipeNetwork network{2};
    Host first{&network, 0}, second{&network, 1};
    std::vector<Host*> hosts{&first, &second};
    std::vector<MemoryRank*> ranks;
};

}  // namespace gradsieve::daemon::test
