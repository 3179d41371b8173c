// A tiny tensor in and out: one node, two ranks, 4 elements, hand-in to hand-back through a real daemon, beside a futex
// ping-pong between the same two processes, once with a core for each and once with both on one core (which needs no
// interrupt from core to core). Blocks of all three alternate in one run, so that they see the same machine.
#include <gradsieve/gradsieve.hpp>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kBlocks = 20;
constexpr int kRoundsPerBlock = 500;
constexpr int kWarmUpBlocks = 2;
constexpr auto kTimeout = gradsieve::Timeout(10'000);

struct Shared {
    std::atomic<std::uint32_t> ball{0};  // even: rank 0's turn; odd: rank 1's
};

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
    ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

/// Keeps this process on the `number`th of the cores that it may use, for as long as this object lives.
class OnCore {
public:
    explicit OnCore(int number) {
        ::sched_getaffinity(0, sizeof(before_), &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &before_) && seen++ == number % CPU_COUNT(&before_)) CPU_SET(core, &one);
        ::sched_setaffinity(0, sizeof(one), &one);
    }
    ~OnCore() { ::sched_setaffinity(0, sizeof(before_), &before_); }
    OnCore(const OnCore&) = delete;
    OnCore& operator=(const OnCore&) = delete;

private:
    cpu_set_t before_{};
};

/// One there-and-back per round, sleeping in the kernel on both sides.
void ping_pong(Shared& shared, std::uint32_t side, std::vector<double>* ret_microseconds) {
    for (int round = 0; round < kRoundsPerBlock; ++round) {
        const auto begin = Clock::now();
        if (side == 0) {
            shared.ball.fetch_add(1, std::memory_order_acq_rel);
            futex_wake(shared.ball);
            for (auto seen = shared.ball.load(std::memory_order_acquire); seen % 2 == 1;
                 seen = shared.ball.load(std::memory_order_acquire))
                futex_wait(shared.ball, seen);
        } else {
            for (auto seen = shared.ball.load(std::memory_order_acquire); seen % 2 == 0;
                 seen = shared.ball.load(std::memory_order_acquire))
                futex_wait(shared.ball, seen);
            shared.ball.fetch_add(1, std::memory_order_acq_rel);
            futex_wake(shared.ball);
        }
        if (ret_microseconds != nullptr)
            ret_microseconds->push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
}

[[noreturn]] void fail(const char* doing, const gradsieve::Status& status) {
    std::fprintf(stderr, "round_trip_bench: %s: %s\n", doing, status.to_string().c_str());
    std::exit(1);
}

struct Percentiles {
    double p10, median, p90;
};
Percentiles percentiles(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
        return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
    };
    return {at(0.1), at(0.5), at(0.9)};
}

void print_row(const char* name, const Percentiles& row) {
    std::printf("%-48s %8.1f %8.1f %8.1f\n", name, row.p10, row.median, row.p90);
}

void print_table(const std::vector<double>& tensor_times, const std::vector<double>& apart_times,
                 const std::vector<double>& together_times) {
    const auto tensor = percentiles(tensor_times);
    const auto apart = percentiles(apart_times);
    std::printf("%-48s %8s %8s %8s   us\n", "", "p10", "median", "p90");
    print_row("futex ping-pong, two processes on two cores", apart);
    print_row("futex ping-pong, two processes on one core", percentiles(together_times));
    print_row("4 elements in and out, 1 node, 2 ranks", tensor);
    std::printf("ratio of medians, two cores %.2f (aim: 2 or less); %d rounds each, alternating blocks of %d\n",
                tensor.median / apart.median, kBlocks * kRoundsPerBlock, kRoundsPerBlock);
}

void run_rank(std::uint32_t rank, const std::string& socket, Shared& shared) {
    auto job = gradsieve::Job::make({.name = "round-trip",
                                     .run_id = "bench",
                                     .rank = rank,
                                     .world_size = 2,
                                     .codec = "all | f32",
                                     .socket_path = socket});
    if (!job.is_ok()) fail("job", job.status());
    auto tensor = job->add_tensor("tiny", {4});
    if (!tensor.is_ok()) fail("tensor", tensor.status());
    if (const auto status = job->start(kTimeout); !status.is_ok()) fail("start", status);
    std::vector<double> tensor_times;
    std::vector<double> apart_times;
    std::vector<double> together_times;
    auto step = job->first_step();
    for (int block = 0; block < kBlocks + kWarmUpBlocks; ++block) {
        const bool is_measured = rank == 0 && block >= kWarmUpBlocks;
        for (int round = 0; round < kRoundsPerBlock; ++round, ++step) {
            const auto begin = Clock::now();
            if (const auto status = tensor->submit(step); !status.is_ok()) fail("submit", status);
            if (const auto result = tensor->wait(kTimeout); !result.is_ok()) fail("wait", result.status());
            if (is_measured)
                tensor_times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
        }
        {
            const OnCore own(static_cast<int>(rank));
            ping_pong(shared, rank, is_measured ? &apart_times : nullptr);
        }
        const OnCore first(0);
        ping_pong(shared, rank, is_measured ? &together_times : nullptr);
    }
    if (const auto status = job->detach(kTimeout); !status.is_ok()) fail("detach", status);
    if (rank == 0) print_table(tensor_times, apart_times, together_times);
}

}  // namespace

/// round_trip_bench [path of gradsieved]
int main(int argc, char** argv) {
    const char* program = argc > 1 ? argv[1] : BENCH_DAEMON;
    char folder[] = "/tmp/gradsieve-bench-XXXXXX";
    if (::mkdtemp(folder) == nullptr) return 1;
    const std::string socket = std::string(folder) + "/gradsieved.sock";
    const pid_t daemon = ::fork();
    if (daemon == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::execl(program, program, "--socket", socket.c_str(), "--state", folder, nullptr);
        ::_exit(127);
    }
    const auto status_page = std::string(folder) + "/status";  // appears once the daemon listens
    for (int look = 0; look < 500 && ::access(status_page.c_str(), F_OK) != 0; ++look) ::poll(nullptr, 0, 10);
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* shared = new (memory) Shared;
    const pid_t other = ::fork();
    if (other == 0) {
        run_rank(1, socket, *shared);
        std::exit(0);
    }
    run_rank(0, socket, *shared);
    int status = 0;
    ::waitpid(other, &status, 0);
    ::kill(daemon, SIGTERM);
    ::waitpid(daemon, nullptr, 0);
    std::filesystem::remove_all(folder);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
