// A training process that means harm, for the end-to-end tests. `--mode scribble`: hands in steps while another thread
// writes random bytes over its slabs, then over its rings and their header, until the daemon has enough of it; and
// again with the next run. `--mode exhaust`: takes memory, connections and ring cells until it is refused, gives them
// back, and again. One line of output per event; ends when its standard input does. Not a test by itself.
#include "shm/local_socket.hpp"
#include "shm/session_memory.hpp"
#include "tests/e2e/rank_options.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace gradsieve;
using test::RankOptions;

constexpr auto kPatience = std::chrono::seconds(20);

void say(const std::string& text) {
    std::puts(text.c_str());
    std::fflush(stdout);
}
bool is_over() {
    struct pollfd entry {
        STDIN_FILENO, POLLIN, 0
    };
    return ::poll(&entry, 1, 0) == 1;
}
TimePoint soon() { return SteadyClock().now() + kPatience; }

/// A descriptor's memory in this process, writable.
class Mapping {
public:
    explicit Mapping(int fd) {
        const auto bytes = ::lseek(fd, 0, SEEK_END);
        void* data = bytes > 0
                         ? ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                         : MAP_FAILED;
        if (data == MAP_FAILED) return;
        data_ = static_cast<unsigned char*>(data);
        bytes_ = static_cast<std::size_t>(bytes);
    }
    ~Mapping() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    /// Of one word: half of them anywhere, half in the first kilobyte.
    void scribble(std::mt19937_64& random) {
        if (bytes_ < 1024) return;
        const auto place = (random() % (random() % 2 == 0 ? bytes_ : 1024)) & ~std::size_t{7};
        const auto value = random();
        __atomic_store_n(reinterpret_cast<std::uint64_t*>(data_ + place), value, __ATOMIC_RELAXED);
    }
    [[nodiscard]] bool is_there() const { return data_ != nullptr; }

private:
    unsigned char* data_ = nullptr;
    std::size_t bytes_ = 0;
};

struct Attached {
    shm::LocalConnection connection;
    std::optional<shm::ClientSession> session;
    std::vector<UniqueFd> descriptors;
};

shm::AttachRequest make_request(const std::string& job, const std::string& run, std::uint64_t elements) {
    shm::AttachRequest request;
    request.job_name = job;
    request.run_id = run;
    request.world_size = 1;
    request.codec = "topk(0.1) | pow2 | auto";
    request.tensors = {{.name = "fc1.weight", .shape = {elements}}, {.name = "fc1.bias", .shape = {130}}};
    return request;
}

/// Errors: the daemon's, once it no longer says that the last run is there or leaving.
Result<Attached> attach(const std::string& socket, const shm::AttachRequest& request) {
    for (const auto give_up = soon();;) {
        Attached attached;
        GRADSIEVE_ASSIGN(attached.connection, shm::LocalConnection::connect(socket, soon()));
        GRADSIEVE_TRY(attached.connection.send(shm::build_attach_request(request), {}));
        GRADSIEVE_ASSIGN(auto message, attached.connection.receive(soon()));
        GRADSIEVE_ASSIGN(const auto reply, shm::parse_attach_reply(message.bytes));
        const bool is_taken =
            reply.status.code() == StatusCode::kBusy || reply.status.code() == StatusCode::kAlreadyExists;
        if (is_taken && SteadyClock().now() < give_up) {
            ::poll(nullptr, 0, 2);
            continue;
        }
        if (!reply.status.is_ok()) return reply.status;
        for (const auto& descriptor : message.descriptors)
            attached.descriptors.emplace_back(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
        GRADSIEVE_ASSIGN(attached.session,
                         shm::ClientSession::adopt(request.tensors, reply, std::move(message.descriptors)));
        return attached;
    }
}

/// False if the job ended, or nothing came in time.
bool wait_for(shm::ClientSession& session, shm::CompletionKind kind, Step step) {
    const auto give_up = soon();
    shm::Completion completion;
    while (SteadyClock().now() < give_up) {
        while (session.try_pop(completion)) {
            if (completion.kind == shm::CompletionKind::kJobEnded) return false;
            if (completion.kind == kind && completion.step == step) return true;
        }
        static_cast<void>(session.wait_for_completion(give_up));
    }
    return false;
}

/// One run: honest hand-ins over slabs that change all the while, then the rings too, until the daemon ends it.
std::string scribble(const std::string& socket, const std::string& run, std::uint64_t seed) {
    auto attached = attach(socket, make_request("scribbler", run, 40'000));
    if (!attached.is_ok()) return "refused: " + attached.error().text();
    auto& session = *attached->session;
    if (!wait_for(session, shm::CompletionKind::kStarted, 1)) return "did not start";
    Mapping control(attached->descriptors[0].get());
    Mapping slabs(attached->descriptors[1].get());
    if (!control.is_there() || !slabs.is_there()) return "cannot map what the daemon handed out";
    if (Mapping(attached->descriptors[2].get()).is_there()) return "the result area can be written";
    std::atomic<bool> is_done{false};
    std::thread writer([&] {
        std::mt19937_64 random(seed);
        while (!is_done.load(std::memory_order_relaxed)) {
            for (int word = 0; word < 200; ++word) slabs.scribble(random);
            ::poll(nullptr, 0, 1);  // the others have two cores between them
        }
    });
    for (Step step = 1; step <= 20; ++step) {
        for (const std::uint32_t tensor : {0U, 1U})
            static_cast<void>(
                session.push({.kind = shm::SubmissionKind::kAverage, .tensor_index = tensor, .step = step}));
        if (!wait_for(session, shm::CompletionKind::kStepDone, step)) break;
    }
    std::mt19937_64 random(seed + 1);
    struct pollfd hang_up {
        attached->connection.fd(), POLLIN, 0
    };
    // What the daemon makes of it, if anything: it closes nothing, but the job may end; so it is left after a while.
    for (int turn = 0; turn < 40; ++turn) {
        for (int word = 0; word < 50; ++word) control.scribble(random);
        static_cast<void>(session.push({.kind = shm::SubmissionKind::kAverage, .tensor_index = 0, .step = 21}));
        ::poll(&hang_up, 1, 1);
    }
    is_done.store(true, std::memory_order_relaxed);
    writer.join();
    return "scribbled";
}

struct Refusals {
    std::size_t count = 0;
    std::string last = {};
};

/// One round of taking what there is; what was taken is given back at the end.
Refusals exhaust(const std::string& socket, std::uint64_t round) {
    Refusals refusals;
    const auto refuse = [&](const Status& status) {
        ++refusals.count;
        refusals.last = status.to_string();
    };
    const auto run = std::to_string(round);
    if (const auto more = attach(socket, make_request("hog", run, std::uint64_t{1} << 36U)); !more.is_ok())
        refuse(more.error());
    std::vector<Attached> held;
    for (int number = 0; number < 64; ++number) {
        auto next = attach(socket, make_request("hog-" + std::to_string(number), run, 1'000'000));
        if (!next.is_ok()) {
            refuse(next.error());
            break;
        }
        held.push_back(std::move(*next));
    }
    std::vector<shm::LocalConnection> silent;
    for (int number = 0; number < 100; ++number) {
        auto connection = shm::LocalConnection::connect(socket, soon());
        if (!connection.is_ok()) {
            refuse(connection.error());
            break;
        }
        silent.push_back(std::move(*connection));
    }
    for (auto& one : held)  // more than the ring holds, and nothing read
        for (int push = 0; push < 100; ++push)
            if (const auto status = one.session->push(
                    {.kind = shm::SubmissionKind::kAverage, .tensor_index = 0, .step = static_cast<Step>(push + 1)});
                !status.is_ok()) {
                refuse(status);
                break;
            }
    ::poll(nullptr, 0, 20);  // it takes what there is, not all of a core
    return refusals;
}

}  // namespace

int main(int argc, char** argv) {
    const RankOptions options(argc, argv);
    const auto socket = options.text("socket");
    const auto seed = options.number("seed", 1);
    const bool is_scribbling = options.text("mode") == "scribble";
    say("started");
    std::uint64_t round = 0;
    for (; !is_over(); ++round) {
        if (is_scribbling) {
            say("round " + scribble(socket, std::to_string(round), seed + round));
        } else {
            const auto refusals = exhaust(socket, round);
            say("round refused " + std::to_string(refusals.count) + " times, last: " + refusals.last);
        }
    }
    say("done " + std::to_string(round));
    return 0;
}
