// What ranks bind of a job's tensors in device memory, on a node with three emulated GPUs.
#include "daemon/hosted_job.hpp"

#include "tests/daemon/job_host.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

namespace gradsieve::daemon::test {
namespace {

using shm::CompletionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr ElementCount kElements = 1000;
constexpr ByteCount kBytes = kElements * sizeof(float);

/// Before anything asks the card how many it is.
const bool has_three_gpus = ::setenv("GRADSIEVE_EMULATED_GPUS", "3", 1) == 0;

std::vector<shm::TensorEntry> device_tensors() {
    return {{.name = "b", .shape = {kElements}, .on_device = true},
            {.name = "w", .shape = {kElements}, .on_device = true}};
}
constexpr std::uint32_t kB = 0;
constexpr std::uint32_t kW = 1;

/// One allocation of a training process.
class Allocation {
public:
    explicit Allocation(int device) {
        EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
        EXPECT_EQ(cudaMalloc(&data_, kBytes), cudaSuccess);
        EXPECT_EQ(cudaMemset(data_, 0xFF, kBytes), cudaSuccess);
        EXPECT_EQ(cudaGetDeviceProperties(&properties_, device), cudaSuccess);
    }
    ~Allocation() { cudaFree(data_); }
    Allocation(const Allocation&) = delete;
    Allocation& operator=(const Allocation&) = delete;

    [[nodiscard]] shm::Binding binding(std::uint32_t tensor_index) const {
        cudaIpcMemHandle_t handle{};
        EXPECT_EQ(cudaIpcGetMemHandle(&handle, data_), cudaSuccess);
        shm::Binding binding;
        binding.tensor_index = tensor_index;
        binding.gradient.kind = shm::MemoryKind::kIpcHandle;
        std::memcpy(binding.gradient.handle.data(), &handle, sizeof(handle));
        binding.gradient.allocation_bytes = kBytes;
        std::memcpy(binding.device.data(), &properties_.uuid, binding.device.size());
        binding.sample_stride_bytes = kBytes;
        return binding;
    }
    void fill(const std::vector<float>& values) { std::memcpy(data_, values.data(), kBytes); }
    [[nodiscard]] std::vector<float> values() const { return {data_, data_ + kElements}; }
    [[nodiscard]] std::string uuid() const {
        return gpu_uuid_text(std::as_bytes(std::span(properties_.uuid.bytes).first<16>()));
    }

private:
    float* data_ = nullptr;
    cudaDeviceProp properties_{};
};

class HostedJobBind : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(has_three_gpus);
        for (Rank rank = 0; rank < 2; ++rank) host.attach(make_request(rank, 2, device_tensors(), "topk(0.1) | f32"));
        host.turn();
        ASSERT_TRUE(first().client->has(CompletionKind::kStarted, 1));
    }
    [[nodiscard]] MemoryRank& first() { return *host.ranks[0]; }
    [[nodiscard]] MemoryRank& second() { return *host.ranks[1]; }

    void ask(MemoryRank& rank, std::vector<shm::Binding> bindings) {
        shm::BindRequest request;
        request.number = ++asked_;
        request.bindings = std::move(bindings);
        host.job->on_bind_request(rank.session, request, {});
        host.turn();
    }
    /// What came on the rank's socket; nothing if nothing is there.
    [[nodiscard]] static std::optional<Status> reply(MemoryRank& rank) {
        const auto message = rank.socket.receive({});
        if (!message.is_ok()) return std::nullopt;
        const auto parsed = shm::parse_bind_reply(message->bytes);
        EXPECT_TRUE(parsed.is_ok()) << parsed.status().to_string();
        return parsed.is_ok() ? parsed->status : parsed.status();
    }
    /// The answer to what the rank asked, in words.
    [[nodiscard]] std::string awaited(MemoryRank& rank) {
        std::optional<Status> status;
        const bool came = wait_until([&] {
            host.turn();
            status = reply(rank);
            return status.has_value();
        });
        return came ? status->to_string() : "no answer";
    }
    void broadcast_w(Step number, Rank root) {
        for (auto* rank : {&first(), &second()})
            rank->client->push(
                {.kind = shm::SubmissionKind::kBroadcast, .tensor_index = kW, .step = number, .root = root});
        for (auto* rank : {&first(), &second()})
            ASSERT_TRUE(wait_for({&host}, *rank, CompletionKind::kBroadcast, number));
    }

    Host host;

private:
    std::uint64_t asked_ = 0;
};

TEST_F(HostedJobBind, Answers_wait_until_all_local_ranks_have_asked) {
    const Allocation here(0);
    const Allocation there(1);
    ask(second(), {there.binding(kW)});
    EXPECT_FALSE(reply(second())) << "which GPUs share the work is not known yet";
    ask(second(), {there.binding(kB)});
    EXPECT_THAT(awaited(second()), HasSubstr("busy: another bind request of this rank is under way"));
    ask(first(), {here.binding(kW)});
    EXPECT_EQ(awaited(first()), "ok");
    EXPECT_EQ(awaited(second()), "ok");
    EXPECT_TRUE(host.log.has("info device tensors are shared by GPUs " + here.uuid() + ", " + there.uuid()));
    ask(second(), {there.binding(kB)});
    EXPECT_EQ(awaited(second()), "ok") << "nobody is waited for from then on";
}
TEST_F(HostedJobBind, Dying_rank_ends_the_holding) {
    const Allocation here(0);
    ask(first(), {here.binding(kW)});
    ASSERT_FALSE(reply(first()));
    host.job->on_session_gone(second().session, "its process (pid 4711 of alice) died", Host::now());
    EXPECT_THAT(awaited(first()), AllOf(HasSubstr("peer-failed: rank 1"), HasSubstr("(pid 4711 of alice) died")));
    EXPECT_FALSE(first().session.is_binding);
}
TEST_F(HostedJobBind, Gpu_outside_the_set_is_refused_with_the_set) {
    const Allocation here(0);
    const Allocation there(1);
    const Allocation outside(2);
    ask(first(), {here.binding(kW)});
    ask(second(), {there.binding(kW)});
    ASSERT_EQ(awaited(first()), "ok");
    ASSERT_EQ(awaited(second()), "ok");
    ask(first(), {outside.binding(kB)});
    EXPECT_THAT(awaited(first()), AllOf(HasSubstr("failed-precondition: device memory on GPU " + outside.uuid()),
                                        HasSubstr("share " + here.uuid() + ", " + there.uuid()),
                                        HasSubstr("let one rank bind its first tensor there")));
    ask(first(), {here.binding(kB)});
    EXPECT_EQ(awaited(first()), "ok") << "the rank may go on";
}
TEST_F(HostedJobBind, Range_that_the_memory_does_not_have_is_refused) {
    const Allocation here(0);
    auto beyond = here.binding(kW);
    beyond.gradient.offset_bytes = 4;
    ask(first(), {beyond});
    EXPECT_THAT(awaited(first()), HasSubstr("invalid-argument: tensor 'w'"));
    // A client that lies about how much there is gets as far as the GPU's thread.
    beyond.gradient.offset_bytes = ByteCount{1} << 20U;
    beyond.gradient.allocation_bytes = ByteCount{2} << 20U;
    ask(first(), {beyond});
    ask(second(), {here.binding(kW)});
    EXPECT_THAT(awaited(first()), HasSubstr("invalid-argument: "));
    EXPECT_EQ(awaited(second()), "ok") << "the other rank's stands";
    ask(first(), {here.binding(kW)});
    EXPECT_EQ(awaited(first()), "ok");
}
TEST_F(HostedJobBind, Broadcast_needs_memory_of_all_ranks_but_not_that_the_lowest_bound_first) {
    Allocation here(0);
    Allocation there(1);
    const Allocation other(0);
    ask(first(), {other.binding(kB)});
    ask(second(), {there.binding(kW)});
    ASSERT_EQ(awaited(first()), "ok");
    ASSERT_EQ(awaited(second()), "ok");
    std::vector<float> values(kElements, 0.5F);
    values[7] = -0.0F;
    there.fill(values);
    // The lowest rank, which brings the tensor's state along, has bound another one alone.
    broadcast_w(1, 1);
    EXPECT_THAT(text_of(second().client->last(CompletionKind::kBroadcast)),
                AllOf(HasSubstr("failed-precondition: broadcast of tensor 'w': rank 0 has no memory bound"),
                      HasSubstr("call it first")));
    ask(first(), {here.binding(kW)});
    ASSERT_EQ(awaited(first()), "ok");
    broadcast_w(2, 1);
    EXPECT_EQ(text_of(first().client->last(CompletionKind::kBroadcast)), "ok: ");
    const auto got = here.values();
    EXPECT_EQ(std::memcmp(got.data(), values.data(), kBytes), 0);
}

}  // namespace
}  // namespace gradsieve::daemon::test
