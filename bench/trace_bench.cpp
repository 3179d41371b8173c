// What a trace costs while it is on: steps of a few tensors between two real daemons on loopback, in blocks that are
// traced and blocks that are not, taken in turn, so that they see the same machine. A second kind of untraced block is
// held against the first: what differs between those is the machine's noise.
#include "shm/trace_caller.hpp"

#include <gradsieve/gradsieve.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTimeout = gradsieve::Timeout(20'000);
constexpr std::uint32_t kStepsPerBlock = 200;
/// Before each block, so that a request has arrived before the first step that is measured.
constexpr auto kSettleFor = std::chrono::milliseconds(30);
constexpr std::array<std::uint64_t, 6> kElements = {65'536, 65'536, 65'536, 65'536, 256, 10};

struct Shared {
    std::atomic<std::uint64_t> last_step{0};  // 0: not known yet
};

[[noreturn]] void fail(const char* doing, const std::string& why) {
    std::fprintf(stderr, "trace_bench: %s: %s\n", doing, why.c_str());
    std::exit(1);
}

std::uint16_t free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    if (::bind(fd, reinterpret_cast<struct sockaddr*>(&address), length) != 0 ||
        ::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length) != 0)
        fail("port", "none is free");
    ::close(fd);
    return ntohs(address.sin_port);
}

/// Both ranks' side of the job.
class Trainer {
public:
    Trainer(std::uint32_t rank, const std::string& socket) {
        auto job = gradsieve::Job::make({.name = "trace",
                                         .run_id = "bench",
                                         .rank = rank,
                                         .world_size = 2,
                                         .codec = "topk(0.01) | pow2(bits=4) | auto",
                                         .socket_path = socket});
        if (!job.is_ok()) fail("job", job.status().to_string());
        job_ = std::make_unique<gradsieve::Job>(std::move(*job));
        for (std::size_t place = 0; place < kElements.size(); ++place) {
            auto tensor = job_->add_tensor("t" + std::to_string(place), {kElements[place]});
            if (!tensor.is_ok()) fail("tensor", tensor.status().to_string());
            tensors_.push_back(std::move(*tensor));
        }
        if (const auto status = job_->start(kTimeout); !status.is_ok()) fail("start", status.to_string());
        for (std::size_t place = 0; place < tensors_.size(); ++place) {
            auto gradient = tensors_[place].gradient();
            for (std::size_t element = 0; element < gradient.size(); ++element)
                gradient[element] = static_cast<float>((element * 2654435761U + rank) % 1000) - 500.0F;
        }
        next_ = job_->first_step();
    }
    /// Microseconds from the first hand-in to the last result.
    double step() {
        const auto begin = Clock::now();
        for (auto& tensor : tensors_)
            if (const auto status = tensor.submit(next_); !status.is_ok()) fail("submit", status.to_string());
        for (auto& tensor : tensors_)
            if (const auto result = tensor.wait(kTimeout); !result.is_ok()) fail("wait", result.status().to_string());
        ++next_;
        return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    }
    [[nodiscard]] std::uint64_t next() const { return next_; }
    void detach() {
        if (const auto status = job_->detach(kTimeout); !status.is_ok()) fail("detach", status.to_string());
    }

private:
    std::unique_ptr<gradsieve::Job> job_;
    std::vector<gradsieve::Tensor> tensors_;
    std::uint64_t next_ = 1;
};

double quantile(std::vector<double> values, double share) {
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

class Bench {
public:
    explicit Bench(const std::string& socket) : socket_(socket), trainer_(0, socket) {}

    /// Median of a block's steps.
    double block(bool is_traced) {
        std::future<gradsieve::Result<gradsieve::shm::TraceReply>> trace;
        if (is_traced)
            trace = std::async(std::launch::async, [this] {
                return gradsieve::shm::ask_for_trace(socket_, {.number = 1,
                                                               .job_name = "trace",
                                                               .run_id = "bench",
                                                               .steps = traced_steps_,
                                                               .timeout_ms = 60'000});
            });
        std::uint32_t settled = 0;
        for (const auto until = Clock::now() + kSettleFor; Clock::now() < until; ++settled) trainer_.step();
        std::vector<double> times;
        for (std::uint32_t step = 0; step < kStepsPerBlock; ++step) times.push_back(trainer_.step());
        if (is_traced) finish(trace);
        traced_steps_ = settled + kStepsPerBlock + kStepsPerBlock / 4;
        return quantile(times, 0.5);
    }
    void end(Shared& shared) {
        shared.last_step.store(trainer_.next(), std::memory_order_release);  // before the step that it names
        trainer_.step();
        trainer_.detach();
    }
    [[nodiscard]] double events_of_step() const { return events_of_step_; }

private:
    void finish(std::future<gradsieve::Result<gradsieve::shm::TraceReply>>& trace) {
        if (trace.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
            fail("trace", "it ended before the block did: " + trace.get().status().to_string());
        while (trace.wait_for(std::chrono::seconds(0)) != std::future_status::ready) trainer_.step();
        const auto reply = trace.get();
        if (!reply.is_ok() || !reply->status.is_ok() || reply->events_lost > 0)
            fail("trace", reply.is_ok() ? reply->status.to_string() : reply.status().to_string());
        events_of_step_ = static_cast<double>(reply->events.size()) / reply->steps_ended;
    }

    std::string socket_;
    Trainer trainer_;
    std::uint32_t traced_steps_ = 2000;
    double events_of_step_ = 0;
};

/// With the interval that holds the median of such ratios in 95 of 100 runs, by the ranks of a binomial distribution.
void print(const char* name, std::vector<double> ratios) {
    std::ranges::sort(ratios);
    const auto percent_at = [&](double rank) {
        const auto place = std::clamp(rank, 0.0, static_cast<double>(ratios.size() - 1));
        return 100 * (ratios[static_cast<std::size_t>(place)] - 1);
    };
    const auto count = static_cast<double>(ratios.size());
    const auto half_width = 0.98 * std::sqrt(count);
    std::printf("%-28s %+7.2f %%   %+.2f to %+.2f %%\n", name, percent_at(count / 2),
                percent_at(count / 2 - half_width), percent_at(count / 2 + half_width));
}

void measure(const std::string& socket, Shared& shared, int rounds) {
    Bench bench(socket);
    std::vector<double> plain;
    std::vector<double> traced_ratios;
    std::vector<double> noise_ratios;
    for (int round = -2; round < rounds; ++round) {
        std::array<double, 3> medians{};  // untraced, traced, untraced; in another order each time
        for (int turn = 0; turn < 3; ++turn) {
            const auto kind = static_cast<std::size_t>((turn + round + 2) % 3);
            medians[kind] = bench.block(kind == 1);
        }
        if (round < 0) continue;  // warm-up
        plain.push_back(medians[0]);
        traced_ratios.push_back(medians[1] / ((medians[0] + medians[2]) / 2));
        noise_ratios.push_back(medians[2] / medians[0]);
    }
    bench.end(shared);
    std::printf(
        "a step of %zu tensors, two nodes: %.1f us (p10 %.1f, p90 %.1f of %d blocks of %u steps); %.1f events\n",
        kElements.size(), quantile(plain, 0.5), quantile(plain, 0.1), quantile(plain, 0.9), rounds, kStepsPerBlock,
        bench.events_of_step());
    std::printf("%-28s %9s   %s\n", "against untraced ones", "median", "its 95 % interval");
    print("traced", traced_ratios);
    print("untraced again", noise_ratios);
}

pid_t start_daemon(const char* program, const std::string& folder, const char* node) {
    const pid_t daemon = ::fork();
    if (daemon != 0) return daemon;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto own = folder + "/" + node;
    std::filesystem::create_directories(own);
    ::execl(program, program, "--config", (folder + "/gradsieved.toml").c_str(), "--node", node, "--socket",
            (own + "/gradsieved.sock").c_str(), "--state", own.c_str(), nullptr);
    ::_exit(127);
}

}  // namespace

/// trace_bench [rounds] [path of gradsieved]
int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
    const char* program = argc > 2 ? argv[2] : BENCH_DAEMON;
    if (rounds < 1) fail("rounds", "allowed is 1 or more");
    char pattern[] = "/tmp/gradsieve-bench-XXXXXX";
    if (::mkdtemp(pattern) == nullptr) return 1;
    const std::string folder = pattern;
    {
        std::ofstream config(folder + "/gradsieved.toml");
        config << "[daemon]\nlog_level = \"warning\"\n[network]\nsecurity = \"plain\"\n";
        for (const char* node : {"a", "b"})
            config << "[[node]]\nname = \"" << node << "\"\naddress = \"127.0.0.1\"\nport = " << free_port() << "\n";
    }
    std::vector<pid_t> daemons;
    for (const char* node : {"a", "b"}) {
        daemons.push_back(start_daemon(program, folder, node));
        const auto status_page = folder + "/" + node + "/status";  // appears once the daemon listens
        for (int look = 0; look < 500 && ::access(status_page.c_str(), F_OK) != 0; ++look) ::poll(nullptr, 0, 10);
    }
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* shared = new (memory) Shared;
    const pid_t other = ::fork();
    if (other == 0) {
        Trainer trainer(1, folder + "/b/gradsieved.sock");
        for (std::uint64_t last = 0; last == 0 || trainer.next() <= last;) {
            trainer.step();
            last = shared->last_step.load(std::memory_order_acquire);  // pairs with the release in end
        }
        trainer.detach();
        std::exit(0);
    }
    measure(folder + "/a/gradsieved.sock", *shared, rounds);
    int status = 0;
    ::waitpid(other, &status, 0);
    for (const auto daemon : daemons) ::kill(daemon, SIGTERM);
    for (const auto daemon : daemons) ::waitpid(daemon, nullptr, 0);
    std::filesystem::remove_all(folder);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
