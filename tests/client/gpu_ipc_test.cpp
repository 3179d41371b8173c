// Device memory between two processes on a real driver: a daemon in a child that opens what the client binds, looks at
// the ready word, reads the gradient and writes an average, and a program that never waits for its stream in between.
// Shows what the fake driver cannot: that these calls in this order do on a device what the other tests take for
// granted.
#include "job_fixture.hpp"
#include "real_cuda.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>

namespace gradsieve::client::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::uint64_t kElements = 3 << 18;  // 3 MiB of floats
constexpr std::size_t kPhysicalBytes = 2 << 20;
constexpr std::size_t kBlockBytes = 64 << 20;

unsigned gradient_of(Step step) { return 1000 + static_cast<unsigned>(step); }
unsigned average_of(Step step) { return 2000 + static_cast<unsigned>(step); }

/// The daemon's side of the device. Its thread only.
class DeviceSide {
public:
    void bind(FakeDaemon& at, const shm::BindRequest& request) {
        cuda_.make_current();
        shm::BindReply reply;
        reply.number = request.number;
        for (const auto& binding : request.bindings) {
            if (binding.is_unbinding()) continue;
            tensors_[binding.tensor_index] = open(at, request, binding.gradient);
        }
        at.reply_bind(reply);
    }
    void average(FakeDaemon& at, const shm::Submission& submission) {
        if (submission.kind != shm::SubmissionKind::kAverage) return at.serve(submission);
        cuda_.make_current();
        const auto address = tensors_.at(submission.tensor_index);
        const auto deadline = std::chrono::steady_clock::now() + kWatchdog;
        while (!at.is_made(submission)) {
            if (std::chrono::steady_clock::now() > deadline) std::abort();
            std::this_thread::yield();
        }
        const auto seen = cuda_.read(address, kElements);
        const auto wrong =
            std::ranges::count_if(seen, [&](unsigned word) { return word != gradient_of(submission.step); });
        if (wrong != 0)
            return at.answer(shm::CompletionKind::kStepDone, submission.tensor_index, submission.step,
                             {StatusCode::kMismatch, std::to_string(wrong) + " elements were not there yet"});
        cuda_.keep_busy();
        cuda_.fill(address, average_of(submission.step), kElements);
        cuda_.synchronize();
        at.serve(submission);
    }

private:
    DeviceAddress open(const FakeDaemon& at, const shm::BindRequest& request, const shm::DeviceMemory& memory) {
        if (memory.kind == shm::MemoryKind::kIpcHandle) {
            auto& base = bases_[memory.handle];  // one driver opens a handle once
            RealCuda::Handle handle{};
            std::memcpy(handle.bytes.data(), memory.handle.data(), memory.handle.size());
            if (base == 0)
                RealCuda::call<DeviceAddress*, RealCuda::Handle, unsigned>("cuIpcOpenMemHandle_v2", &base, handle, 1U);
            return base + memory.offset_bytes;
        }
        std::vector<std::pair<int, std::size_t>> descriptors;
        for (const auto& piece : memory.pieces)
            descriptors.emplace_back(at.bind_descriptors()[piece.descriptor].get(),
                                     request.descriptor_bytes[piece.descriptor]);
        return RealCuda::import(descriptors) + memory.pieces.front().offset_bytes;
    }

    RealCuda cuda_;
    std::map<shm::DeviceHandle, DeviceAddress> bases_;
    std::map<std::uint32_t, DeviceAddress> tensors_;
};

void say(int fd, const std::string& line) {
    if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
    ::close(fd);
}

/// The child: says where it listens, or why it does not, and lives until the parent closes `stop_fd`.
void run_daemon(int say_fd, int stop_fd) {
    if (const auto reason = RealCuda::why_not(); !reason.empty()) return say(say_fd, "-" + reason);
    DeviceSide side;
    FakeDaemon::Script script;
    script.on_bind = [&](FakeDaemon& at, const shm::BindRequest& request) { side.bind(at, request); };
    script.on_submission = [&](FakeDaemon& at, const shm::Submission& submission) { side.average(at, submission); };
    FakeDaemon daemon(script);
    say(say_fd, daemon.socket_path());
    char byte = 0;
    while (::read(stop_fd, &byte, 1) > 0) continue;
}

class GpuIpc : public ::testing::Test {
protected:
    /// Forks before this process has touched the driver: a child of one that has could not use it.
    static void SetUpTestSuite() {
        std::array<int, 2> answer{};
        std::array<int, 2> stop{};
        ASSERT_EQ(::pipe(answer.data()) + ::pipe(stop.data()), 0);
        child_ = ::fork();
        if (child_ == 0) {
            ::alarm(120);
            ::close(stop[1]);
            ::close(answer[0]);
            run_daemon(answer[1], stop[0]);
            ::_exit(0);
        }
        ::close(answer[1]);
        ::close(stop[0]);
        stop_fd_ = stop[1];
        socket_path_.clear();
        char byte = 0;
        while (::read(answer[0], &byte, 1) > 0) socket_path_ += byte;
        ::close(answer[0]);
    }
    static void TearDownTestSuite() {
        ::close(stop_fd_);
        int state = 0;
        ::waitpid(child_, &state, 0);
        EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << "the daemon's side failed: " << state;
    }
    void SetUp() override {
        if (socket_path_.starts_with("-")) GTEST_SKIP() << socket_path_.substr(1);
        ASSERT_FALSE(socket_path_.empty()) << "the daemon's side failed";
        ASSERT_EQ(RealCuda::why_not(), "");
        cuda_.emplace();
        reader_.emplace();
        job_.emplace(Job::make({.name = "job",
                                .run_id = "run",
                                .rank = 0,
                                .world_size = 1,
                                .codec = "all | f32",
                                .socket_path = socket_path_})
                         .value());
        tensor_.emplace(job_->add_tensor("w", {kElements}, {.on_device = true}).value());
        ASSERT_TRUE(job_->start(kPatient).is_ok());
    }
    [[nodiscard]] DeviceBuffer buffer_at(DeviceAddress address) const {
        return {.pointer = reinterpret_cast<void*>(address), .elements = kElements, .stream = cuda_->stream()};
    }
    /// Never waits for the device between writing the gradient and reading the average, which it does on a stream that
    /// knows nothing of the bound one.
    void take_steps(DeviceAddress address) {
        for (const auto last = next_ + 4; next_ < last; ++next_) {
            cuda_->keep_busy();
            cuda_->fill(address, gradient_of(next_), kElements);
            ASSERT_TRUE(tensor_->submit(next_).is_ok());
            const auto result = tensor_->wait(kPatient);
            ASSERT_TRUE(result.is_ok()) << result.status().to_string();
            EXPECT_TRUE(result->empty());
            EXPECT_THAT(reader_->read(address, kElements), Each(average_of(next_))) << "step " << next_;
        }
    }

    static inline pid_t child_ = -1;
    static inline int stop_fd_ = -1;
    static inline std::string socket_path_;
    std::optional<RealCuda> cuda_;
    std::optional<RealCuda> reader_;  ///< the same context, another stream
    std::optional<Job> job_;
    std::optional<Tensor> tensor_;
    Step next_ = 1;
};

TEST_F(GpuIpc, Memory_inside_a_larger_allocation_is_averaged_in_place_without_waiting) {
    const auto block = RealCuda::allocate(kBlockBytes);
    for (const std::uint64_t offset : {std::uint64_t{4096}, std::uint64_t{kBlockBytes} - kElements * 4}) {
        const auto status = tensor_->bind_device(buffer_at(block + offset), kPatient);
        ASSERT_TRUE(status.is_ok()) << status.to_string();
        take_steps(block + offset);
    }
    const auto beyond = tensor_->bind_device(buffer_at(block + kBlockBytes - kElements * 4 + 4), kPatient);
    EXPECT_THAT(beyond.to_string(), HasSubstr("invalid-argument: tensor 'w': its gradient of 3145728 bytes"));
}
TEST_F(GpuIpc, Mapped_memory_over_several_physical_allocations_goes_by_descriptors) {
    const auto mapped = RealCuda::map(3, kPhysicalBytes, true) + kPhysicalBytes / 2;
    const auto status = tensor_->bind_device(buffer_at(mapped), kPatient);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    take_steps(mapped);
    EXPECT_TRUE(tensor_->unbind_device(kPatient).is_ok());
}
TEST_F(GpuIpc, Thread_without_a_context_binds_and_steps) {
    const auto block = RealCuda::allocate(kBlockBytes);
    cuda_->forget_current();
    Status bound = tensor_->bind_device(buffer_at(block), kPatient);
    EXPECT_TRUE(bound.is_ok()) << bound.to_string();
    bound = tensor_->bind_device({.pointer = reinterpret_cast<void*>(block), .elements = kElements}, kPatient);
    EXPECT_TRUE(bound.is_ok()) << "default stream: " << bound.to_string();
    ASSERT_TRUE(tensor_->bind_device(buffer_at(block), kPatient).is_ok());
    void* current = &current;
    RealCuda::call<void**>("cuCtxGetCurrent", &current);
    EXPECT_EQ(current, nullptr) << "as it was";
    cuda_->make_current();
    take_steps(block);
}
TEST_F(GpuIpc, Memory_that_cannot_be_shared_is_refused_by_its_kind) {
    const auto expect = [&](DeviceAddress address, const std::string& text) {
        const auto status = tensor_->bind_device(buffer_at(address), kPatient);
        EXPECT_THAT(status.to_string(), HasSubstr(text));
    };
    expect(RealCuda::map(2, kPhysicalBytes, false), "was not created to be shared");
    DeviceAddress pooled = 0;
    RealCuda::call<DeviceAddress*, std::size_t, void*>("cuMemAllocAsync", &pooled, kBlockBytes, cuda_->stream());
    expect(pooled, "failed-precondition");
    DeviceAddress managed = 0;
    RealCuda::call<DeviceAddress*, std::size_t, unsigned>("cuMemAllocManaged", &managed, kBlockBytes, 1U);
    expect(managed, "is managed memory");
    void* host = nullptr;
    RealCuda::call<void**, std::size_t, unsigned>("cuMemHostAlloc", &host, kBlockBytes, 0U);
    expect(reinterpret_cast<DeviceAddress>(host), "is host memory");
    const std::vector<float> plain(kElements);
    expect(reinterpret_cast<DeviceAddress>(plain.data()), "is no memory that CUDA knows");
    expect(RealCuda::map(1, kPhysicalBytes, true), "what ends within its memory");
}

}  // namespace
}  // namespace gradsieve::client::test
