// Averages that are compressed again by the node that owns them: two-level error feedback.
#include "codec/shard.hpp"

#include "codec/pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace gradsieve::codec {
namespace {

using ::testing::HasSubstr;

constexpr TensorId kTensor = 77;
constexpr std::size_t kNodes = 3;
/// A whole chunk and a short one.
constexpr ElementCount kElements = kChunkElements + 5000;
constexpr std::uint32_t kChunkCount = 2;
/// By node.
const std::vector<std::vector<std::uint32_t>> kChunks{{1}, {0}, {}};

Pipeline pipeline_of(const char* text) { return parse_pipeline(text).value(); }

/// Nodes that train under the sharded plan, in one process.
class Cluster {
public:
    Cluster(const char* up, const char* down) : up_(pipeline_of(up)), down_(pipeline_of(down)), result_(kElements) {
        for (std::size_t node = 0; node < kNodes; ++node) shards_.emplace_back(kTensor, kElements, kChunks[node]);
        for (auto& state : states_)
            for (auto& generation : state) generation.assign(2, std::vector<float>(kElements));
        tensor_.emplace(kTensor, result_.data(), kElements);
    }

    /// One gradient for each node; the averages are in `result` then.
    void step(const std::vector<std::vector<float>>& gradients, float rescale = 1) {
        ++step_;
        std::vector<EncodeResult> ups;
        std::vector<EncodeRequest> requests;
        for (std::size_t node = 0; node < kNodes; ++node) {
            samples_[node] = gradients[node].data();
            auto request = request_of(node, rescale);
            ups.push_back(encode_tensor(request, workspace_).value());
            requests.push_back(request);
        }
        std::vector<EncodeResult> downs;
        for (std::size_t owner = 0; owner < kNodes; ++owner) {
            std::vector<std::vector<ChunkView>> views(kNodes);
            for (std::size_t node = 0; node < kNodes; ++node)
                for (const auto& chunk : ups[node].chunks)
                    if (shards_[owner].owns(chunk.chunk_index))
                        views[node].push_back({chunk.chunk_index, {chunk.bytes.data(), chunk.bytes.size()}});
            std::vector<Contribution> contributions;
            for (const auto& view : views) contributions.push_back({1.0F / kNodes, view});
            const auto status = shards_[owner].decode_part(step_, contributions);
            ASSERT_TRUE(status.is_ok()) << status.text();
            auto encoded = shards_[owner].encode_part(requests[owner], down_, workspace_);
            ASSERT_TRUE(encoded.is_ok()) << encoded.status().text();
            downs.push_back(std::move(*encoded));
        }
        std::vector<std::vector<ChunkView>> views(kNodes);
        std::vector<Contribution> contributions;
        payload_bytes_ = 0;
        for (std::size_t node = 0; node < kNodes; ++node) {
            for (const auto& chunk : downs[node].chunks) {
                views[node].push_back({chunk.chunk_index, {chunk.bytes.data(), chunk.bytes.size()}});
                payload_bytes_ += chunk.bytes.size();
            }
            contributions.push_back({1.0F, views[node]});
        }
        ASSERT_TRUE(tensor_->decode_average(step_, contributions).is_ok());
    }

    [[nodiscard]] const std::vector<float>& result() const { return result_; }
    [[nodiscard]] ByteCount payload_bytes() const { return payload_bytes_; }
    /// What the mean still owes: all residuals of the last step.
    [[nodiscard]] double owed(ElementCount element) const {
        double sum = 0;
        for (std::size_t node = 0; node < kNodes; ++node) {
            const auto chunk = static_cast<std::uint32_t>(element / kChunkElements);
            sum += static_cast<double>(residual(node)[element]) / kNodes;
            if (shards_[node].owns(chunk)) sum += static_cast<double>(down(node)[element]);
        }
        return sum;
    }
    [[nodiscard]] const std::vector<float>& residual(std::size_t node) const { return states_[node][step_ % 2][0]; }
    [[nodiscard]] const std::vector<float>& down(std::size_t node) const { return states_[node][step_ % 2][1]; }

private:
    EncodeRequest request_of(std::size_t node, float rescale) {
        static constexpr float kWhole = 1;
        EncodeRequest request;
        request.pipeline = &up_;
        request.tensor = kTensor;
        request.step = step_;
        request.elements = kElements;
        request.samples = {&samples_[node], 1};
        request.weights = {&kWhole, 1};
        request.rescale = rescale;
        request.random_seed = node + 1;
        auto& state = states_[node];
        request.in = {.residual = state[1 - step_ % 2][0].data(), .down = state[1 - step_ % 2][1].data()};
        request.out = {.residual = state[step_ % 2][0].data(), .down = state[step_ % 2][1].data()};
        return request;
    }

    Pipeline up_, down_;
    std::vector<Shard> shards_;
    /// By node and generation: residual, and that of averages.
    std::array<std::array<std::vector<std::vector<float>>, 2>, kNodes> states_;
    std::array<const float*, kNodes> samples_{};
    std::vector<float> result_;
    std::optional<ResultTensor> tensor_;
    EncodeWorkspace workspace_;
    Step step_ = 0;
    ByteCount payload_bytes_ = 0;
};

std::vector<std::vector<float>> random_gradients(std::mt19937& random) {
    std::vector<std::vector<float>> gradients(kNodes, std::vector<float>(kElements));
    for (auto& gradient : gradients)
        for (auto& value : gradient) value = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-31F;
    return gradients;
}

TEST(Shard, What_comes_back_and_all_residuals_are_what_went_in) {
    std::mt19937 random(1);
    for (const auto& [up, down] : {std::pair("topk(0.01) | pow2(bits=4) | auto", "topk(0.01) | pow2(bits=4) | auto"),
                                   std::pair("all | sign", "all | sign"), std::pair("topk(0.1)", "all | dither(7)")}) {
        Cluster cluster(up, down);
        std::vector<double> given(kElements), got(kElements);
        for (int step = 0; step < 3; ++step) {
            const auto gradients = random_gradients(random);
            cluster.step(gradients);
            double worst = 0;
            for (ElementCount element = 0; element < kElements; ++element) {
                for (const auto& gradient : gradients)
                    given[element] += static_cast<double>(gradient[element]) / kNodes;
                got[element] += static_cast<double>(cluster.result()[element]);
                worst = std::max(worst, std::fabs(got[element] + cluster.owed(element) - given[element]));
            }
            EXPECT_LT(worst, 1e-4) << up << ", step " << step;
        }
    }
}
TEST(Shard, Sends_the_largest_of_the_averages_of_each_chunk) {
    std::mt19937 random(2);
    Cluster cluster("all | f32", "topk(0.001) | f32");
    const auto gradients = random_gradients(random);
    cluster.step(gradients);
    for (std::uint32_t chunk = 0; chunk < kChunkCount; ++chunk) {
        const ElementCount first = chunk * kChunkElements;
        const auto count = std::min(kChunkElements, kElements - first);
        std::vector<float> magnitudes(count);
        for (ElementCount at = 0; at < count; ++at) {
            float mean = 0;
            for (const auto& gradient : gradients) mean += 1.0F / kNodes * gradient[first + at];
            magnitudes[at] = std::fabs(mean);
        }
        const auto k = static_cast<std::ptrdiff_t>(static_cast<double>(count) / 1000);
        std::nth_element(magnitudes.begin(), magnitudes.begin() + (k - 1), magnitudes.end(), std::greater<>());
        const auto* result = cluster.result().data() + first;
        EXPECT_EQ(std::count_if(result, result + count, [](float value) { return value != 0; }), k);
        EXPECT_TRUE(std::all_of(result, result + count, [&](float value) {
            return value == 0 || std::fabs(value) >= magnitudes[static_cast<std::size_t>(k - 1)];
        }));
    }
    EXPECT_GT(cluster.payload_bytes(), 0U);
}
TEST(Shard, State_of_chunks_of_others_is_not_touched) {
    std::mt19937 random(3);
    Cluster cluster("topk(0.01)", "topk(0.01)");
    cluster.step(random_gradients(random));
    for (std::size_t node = 0; node < kNodes; ++node)
        for (std::uint32_t chunk = 0; chunk < kChunkCount; ++chunk) {
            const auto* down = cluster.down(node).data() + chunk * kChunkElements;
            const auto count = std::min(kChunkElements, kElements - chunk * kChunkElements);
            const bool is_own = std::ranges::count(kChunks[node], chunk) > 0;
            EXPECT_EQ(std::any_of(down, down + count, [](float value) { return value != 0; }), is_own)
                << node << " " << chunk;
        }
}
TEST(Shard, Residual_of_averages_follows_the_gradients_scale) {
    std::mt19937 random(4);
    Cluster cluster("all | f32", "topk(0.001) | f32");
    cluster.step(random_gradients(random));
    const auto before = cluster.down(0);
    cluster.step(std::vector<std::vector<float>>(kNodes, std::vector<float>(kElements)), 4);
    for (ElementCount at = kChunkElements; at < kElements; ++at)
        ASSERT_EQ(cluster.down(0)[at] + cluster.result()[at], 4 * before[at]);
}
TEST(Shard, Steps_that_only_add_up_send_nothing_and_keep_what_is_owed) {
    std::mt19937 random(5);
    Cluster cluster("accumulate(2) | topk(0.01)", "topk(0.01)");
    for (int step = 1; step <= 4; ++step) {
        const auto before = step == 1 ? std::vector<float>(kElements) : cluster.down(0);
        cluster.step(random_gradients(random));
        EXPECT_EQ(cluster.payload_bytes() > 0, step % 2 == 0);
        EXPECT_EQ(cluster.down(0) == before, step % 2 == 1);
    }
}
TEST(Shard, What_is_owed_of_a_chunk_that_is_given_up_goes_on_in_the_nodes_own_residual) {
    const Shard shard(kTensor, kElements, {1});
    std::vector<float> down(kElements, 3), residual(kElements, 1);
    down[5] = 0;
    shard.give_up(0, down.data(), residual.data(), 0.25F);
    for (ElementCount element = 0; element < kElements; ++element) {
        const bool is_given_up = element < kChunkElements;
        ASSERT_EQ(down[element], is_given_up ? 0 : 3) << element;
        ASSERT_EQ(residual[element], is_given_up && element != 5 ? 1 + 3 / 0.25F : 1) << "a quarter of it in the mean";
    }
}
TEST(Shard, Chunks_of_another_nodes_shard_are_corrupt) {
    Shard shard(kTensor, kElements, {1});
    EXPECT_EQ(shard.elements(), kElements - kChunkElements);
    const auto payload = build_exact_chunk(std::vector<float>(kChunkElements, 1.0F));
    const std::vector<ChunkView> views{{0, payload}};
    const std::vector<Contribution> contributions{{1.0F, views}};
    const auto status = shard.decode_part(1, contributions);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.text(), HasSubstr("chunk 0 is of another node's shard"));
    EncodeWorkspace workspace;
    const auto up = pipeline_of("all | f32");
    EncodeRequest request;
    request.pipeline = &up;
    request.step = 1;
    EXPECT_THAT(shard.encode_part(request, up, workspace).status().text(), HasSubstr("call decode_part"));
}
TEST(Shard, Codecs_of_averages_keep_a_residual_at_most) {
    for (const char* text : {"topk(0.01) | pow2(bits=4) | auto", "all | bf16", "all | sign", "randk(0.1)", "all | f32"})
        EXPECT_TRUE(check_down_pipeline(pipeline_of(text)).is_ok()) << text;
    for (const auto& [text, why] :
         {std::pair("momentum | topk(0.1)", "in front"), std::pair("lowrank(2, columns=square)", "two phases"),
          std::pair("topk(0.1, scope=model)", "several tensors"), std::pair("variance(1.5)", "no variance"),
          std::pair("all | sign(scale=none)", "votes"), std::pair("similarity | topk(0.1)", "in front")}) {
        const auto status = check_down_pipeline(pipeline_of(text));
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(status.text(), HasSubstr(why));
    }
}

}  // namespace
}  // namespace gradsieve::codec
