// Micro-batches and second moments that ranks hand in from device memory, on a node with an emulated GPU: the average
// is the one of host memory, whatever a client says of its samples; and memory that a client does not have is refused.
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr ElementCount kElements = 5000;  // tiles of 4,096: one is cut
constexpr ByteCount kBytes = kElements * sizeof(float);
constexpr std::uint32_t kSamples = 3;
constexpr std::uint32_t kBatch = 30;
constexpr const char* kCodec = "variance(1) | f32";

std::vector<shm::TensorEntry> tensors(bool on_device) {
    return {{.name = "w",
             .shape = {kElements},
             .samples_max = kSamples,
             .has_second_moment = true,
             .on_device = on_device}};
}

/// What a rank hands in: slices one after the other, then the second moment.
struct Values {
    explicit Values(Rank rank, std::mt19937& random) {
        for (std::uint32_t sample = 0; sample < kSamples; ++sample) slices.push_back(noise(kElements, random));
        moment = noise(kElements, random);
        for (auto& value : moment) value = value * value * static_cast<float>(kBatch * (rank + 1));
    }
    std::vector<std::vector<float>> slices;
    std::vector<float> moment;
};

/// One allocation of a training process: slices, a gap behind each, and the second moment.
class Card {
public:
    static constexpr ByteCount kStride = kBytes + 64;
    static constexpr ByteCount kMomentAt = kSamples * kStride;
    static constexpr ByteCount kWhole = kMomentAt + kBytes;

    Card() {
        EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
        EXPECT_EQ(cudaMalloc(&data_, kWhole), cudaSuccess);
        EXPECT_EQ(cudaMemset(data_, 0xFF, kWhole), cudaSuccess);
    }
    ~Card() { cudaFree(data_); }
    Card(const Card&) = delete;
    Card& operator=(const Card&) = delete;

    [[nodiscard]] shm::Binding binding() const {
        cudaIpcMemHandle_t handle{};
        cudaDeviceProp properties{};
        EXPECT_EQ(cudaIpcGetMemHandle(&handle, data_), cudaSuccess);
        EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
        shm::Binding binding;
        std::memcpy(binding.device.data(), &properties.uuid, binding.device.size());
        binding.gradient.kind = shm::MemoryKind::kIpcHandle;
        std::memcpy(binding.gradient.handle.data(), &handle, sizeof(handle));
        binding.gradient.allocation_bytes = kWhole;
        binding.second_moment = binding.gradient;
        binding.second_moment.offset_bytes = kMomentAt;
        binding.sample_stride_bytes = kStride;
        return binding;
    }
    void fill(const Values& values) {
        for (std::uint32_t sample = 0; sample < kSamples; ++sample)
            std::memcpy(data_ + sample * kStride, values.slices[sample].data(), kBytes);
        std::memcpy(data_ + kMomentAt, values.moment.data(), kBytes);
    }
    [[nodiscard]] std::vector<float> average() const {
        std::vector<float> values(kElements);
        std::memcpy(values.data(), data_, kBytes);
        return values;
    }

private:
    std::byte* data_ = nullptr;
};

/// A job of two ranks on one node, in either memory.
class SamplesJob {
public:
    explicit SamplesJob(bool on_device) : on_device_(on_device) {
        for (Rank rank = 0; rank < 2; ++rank) {
            host.attach(make_request(rank, 2, tensors(on_device), kCodec));
            cards.push_back(std::make_unique<Card>());
        }
        host.turn();
        EXPECT_TRUE(client(0).has(CompletionKind::kStarted, 1));
    }
    [[nodiscard]] ClientEnd& client(Rank rank) { return *host.ranks[rank]->client; }
    /// The answer to a bind request, in words.
    std::string bound(Rank rank, const shm::Binding& binding) {
        shm::BindRequest request;
        request.number = ++asked_;
        request.bindings = {binding};
        host.job->on_bind_request(host.ranks[rank]->session, request, {});
        std::string answer = "no answer";
        static_cast<void>(wait_until([&] {
            host.turn();
            const auto message = host.ranks[rank]->socket.receive({});
            if (!message.is_ok()) return false;
            const auto parsed = shm::parse_bind_reply(message->bytes);
            answer = parsed.is_ok() ? parsed->status.to_string() : parsed.status().to_string();
            return true;
        }));
        return answer;
    }
    void bind_all() {
        for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(bound(rank, cards[rank]->binding()), "ok");
    }
    void write(Rank rank, const Values& values) {
        if (on_device_) return cards[rank]->fill(values);
        for (std::uint32_t sample = 0; sample < kSamples; ++sample)
            std::ranges::copy(values.slices[sample], client(rank).memory().slice(0, sample).begin());
        std::ranges::copy(values.moment, client(rank).memory().second_moment(0).begin());
    }
    void submit(Rank rank, Step step, std::uint32_t sample_count, const std::vector<std::uint32_t>& counts) {
        client(rank).memory().set_slice_samples(0, counts);
        client(rank).push({.kind = shm::SubmissionKind::kAverage,
                           .tensor_index = 0,
                           .step = step,
                           .sample_count = sample_count,
                           .batch_samples = counts.empty() ? 0 : kBatch,
                           .scale = 1.0});
    }
    [[nodiscard]] std::string outcome(Rank rank, Step step) {
        const bool came = wait_for({&host}, *host.ranks[rank], CompletionKind::kTensor, step);
        return came ? text_of(client(rank).last(CompletionKind::kTensor)) : "no answer";
    }
    [[nodiscard]] std::vector<float> average(Rank rank) {
        return on_device_ ? cards[rank]->average() : client(rank).result(0);
    }

    Host host;
    std::vector<std::unique_ptr<Card>> cards;

private:
    bool on_device_;
    std::uint64_t asked_ = 0;
};

struct Turn {
    std::uint32_t sample_count;
    std::vector<std::uint32_t> counts;  ///< as a client says; empty: nothing is known
};
/// Counts that make no sense among them: none for one slice, and more than there are.
const std::vector<Turn> kTurns = {{3, {10, 10, 10}}, {2, {UINT32_MAX, 1}}, {1, {}}, {3, {0, UINT32_MAX, 7}}, {1, {30}}};

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<std::uint32_t> bits;
    bits.reserve(values.size());
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
}

std::vector<std::vector<std::uint32_t>> averages_of(SamplesJob& job, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<std::uint32_t>> averages;
    for (Step step = 1; step <= kTurns.size(); ++step) {
        const auto& turn = kTurns[step - 1];
        for (Rank rank = 0; rank < 2; ++rank) {
            job.write(rank, Values(rank, random));
            job.submit(rank, step, turn.sample_count, turn.counts);
        }
        for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(job.outcome(rank, step), "ok: ") << "step " << step;
        averages.push_back(bits_of(job.average(0)));
        EXPECT_EQ(bits_of(job.average(1)), averages.back()) << "step " << step;
    }
    return averages;
}

TEST(HostedJobSamples, Averages_from_the_card_are_those_of_host_memory_bit_for_bit) {
    const auto seed = std::random_device()();
    SamplesJob in_memory(false);
    SamplesJob on_card(true);
    on_card.bind_all();
    const auto expected = averages_of(in_memory, seed);
    const auto found = averages_of(on_card, seed);
    std::size_t sent = 0;
    for (std::size_t step = 0; step < expected.size(); ++step) {
        EXPECT_EQ(found[step], expected[step]) << "step " << step + 1 << ", seed " << seed;
        sent += static_cast<std::size_t>(
            std::ranges::count_if(expected[step], [](std::uint32_t bits) { return bits != 0; }));
    }
    EXPECT_GT(sent, 0U) << "seed " << seed;
    EXPECT_LT(sent, expected.size() * kElements) << "seed " << seed;
}

TEST(HostedJobSamples, Slices_and_second_moments_that_the_memory_does_not_have_are_refused) {
    SamplesJob job(true);
    ASSERT_EQ(job.bound(0, job.cards[0]->binding()), "ok");
    const auto good = job.cards[1]->binding();
    auto apart = good;
    apart.sample_stride_bytes = Card::kWhole;
    EXPECT_THAT(job.bound(1, apart), AllOf(HasSubstr("invalid-argument: tensor 'w': gradient of"),
                                           HasSubstr("allowed is what ends within its allocation")));
    apart.sample_stride_bytes = UINT64_MAX - 3;
    EXPECT_THAT(job.bound(1, apart), HasSubstr("invalid-argument: tensor 'w': 3 slices"));
    auto close = good;
    close.sample_stride_bytes = kBytes - 4;
    EXPECT_THAT(job.bound(1, close), HasSubstr("allowed is a multiple of 4 from 20000 up"));
    auto without = good;
    without.second_moment = {};
    EXPECT_THAT(job.bound(1, without), HasSubstr("invalid-argument: tensor 'w'"));
    // A client that lies about how much there is gets as far as the GPU's thread, which asks the driver.
    auto lie = good;
    lie.gradient.allocation_bytes = ByteCount{64} << 20U;
    lie.sample_stride_bytes = ByteCount{16} << 20U;
    EXPECT_THAT(job.bound(1, lie), AllOf(HasSubstr("invalid-argument: "), HasSubstr("allowed is a range inside it")));
    lie = good;
    lie.second_moment.allocation_bytes = ByteCount{64} << 20U;
    lie.second_moment.offset_bytes = Card::kMomentAt + 4;
    EXPECT_THAT(job.bound(1, lie), AllOf(HasSubstr("invalid-argument: "), HasSubstr("allowed is a range inside it")));
    EXPECT_EQ(job.bound(1, good), "ok") << "the rank may go on";
}

TEST(HostedJobSamples, More_samples_than_there_are_slices_are_refused_and_the_step_goes_on) {
    SamplesJob job(true);
    job.bind_all();
    std::mt19937 random(1);
    for (Rank rank = 0; rank < 2; ++rank) job.write(rank, Values(rank, random));
    // What the ring refuses does not come as far; the job looks all the same.
    for (const std::uint32_t count : {0U, kSamples + 1, UINT32_MAX}) {
        job.host.job->on_submission(
            job.host.ranks[0]->session,
            {.kind = shm::SubmissionKind::kAverage, .tensor_index = 0, .step = 1, .sample_count = count, .scale = 1.0},
            Host::now());
        EXPECT_THAT(job.outcome(0, 1),
                    AllOf(HasSubstr("invalid-argument: tensor 'w': sample_count " + std::to_string(count)),
                          HasSubstr("allowed is 1 to samples_max = 3")));
    }
    for (Rank rank = 0; rank < 2; ++rank) job.submit(rank, 1, kSamples, {10, 10, 10});
    EXPECT_EQ(job.outcome(1, 1), "ok: ");
}

}  // namespace
}  // namespace gradsieve::daemon::test
