// What the tests of the hall share: log lines as a list, time limits, and a training process that is nothing but the
// memory it would map. Tests only.
#pragma once

#include "daemon/hosted_job.hpp"
#include "shm/doorbell.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gradsieve::daemon::test {

/// What a test waits for is there long before, or something hangs.
inline constexpr Duration kWatchdog = std::chrono::seconds(20);

/// Calls `step` until it answers true; false if the watchdog bites first.
inline bool wait_until(const std::function<bool()>& step) {
    const SteadyClock clock;
    const auto give_up = clock.now() + kWatchdog;
    do {
        if (step()) return true;
        ::poll(nullptr, 0, 1);  // leaves the core to whoever is waited for
    } while (clock.now() < give_up);
    return false;
}

/// A Log whose lines the test reads: "level text JOB=.. PEER=.. STEP=..".
class LogLines {
public:
    explicit LogLines(LogLevel level = LogLevel::kDebug) : log_(level, std::make_unique<Sink>(*this), clock_) {}
    [[nodiscard]] Log& log() noexcept { return log_; }
    [[nodiscard]] std::vector<std::string> lines() {
        const std::lock_guard lock(m_);
        return lines_;
    }
    [[nodiscard]] bool has(const std::string& part) {
        const auto all = lines();
        return std::any_of(all.begin(), all.end(),
                           [&](const auto& line) { return line.find(part) != std::string::npos; });
    }

private:
    class Sink final : public LogSink {
    public:
        explicit Sink(LogLines& owner) : owner_(owner) {}
        void write(LogLevel level, const std::string& text, const LogFields& fields) override {
            auto line = std::string(log_level_name(level)) + " " + text;
            if (!fields.job.empty()) line += " JOB=" + std::string(fields.job);
            if (!fields.peer.empty()) line += " PEER=" + std::string(fields.peer);
            if (fields.step) line += " STEP=" + std::to_string(*fields.step);
            const std::lock_guard lock(owner_.m_);
            owner_.lines_.push_back(line);
        }

    private:
        LogLines& owner_;
    };

    SteadyClock clock_;
    std::mutex m_;
    std::vector<std::string> lines_;  // guarded by m_
    Log log_;                         // last: it writes when it goes
};

inline shm::AttachRequest make_request(Rank rank, std::uint32_t world_size, std::vector<shm::TensorEntry> tensors,
                                       const std::string& codec = "all | f32") {
    shm::AttachRequest request;
    request.job_name = "demo";
    request.run_id = "one";
    request.rank = rank;
    request.world_size = world_size;
    request.codec = codec;
    request.tensors = std::move(tensors);
    return request;
}

/// The client's end of a session. Values are handed in and read as a training process would.
class ClientEnd {
public:
    ClientEnd(const shm::AttachRequest& request, const shm::AttachReply& reply, std::vector<UniqueFd> descriptors)
        : memory_(shm::ClientSession::adopt(request.tensors, reply, std::move(descriptors)).value()) {}

    void submit(std::uint32_t tensor_index, Step step, const std::vector<float>& values) {
        fill(tensor_index, values);
        push({.kind = shm::SubmissionKind::kAverage, .tensor_index = tensor_index, .step = step});
    }
    void fill(std::uint32_t tensor_index, const std::vector<float>& values) {
        auto slab = memory_.slice(tensor_index, 0);
        ASSERT_EQ(slab.size(), values.size());
        std::copy(values.begin(), values.end(), slab.begin());
    }
    void push(const shm::Submission& submission) {
        const auto status = memory_.push(submission);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    void detach() { push({.kind = shm::SubmissionKind::kDetach}); }
    [[nodiscard]] shm::ClientSession& memory() noexcept { return memory_; }
    [[nodiscard]] std::vector<float> result(std::uint32_t tensor_index) const {
        const auto values = memory_.result(tensor_index);
        return {values.begin(), values.end()};
    }
    /// Takes in what the daemon has said and keeps it.
    const std::vector<shm::Completion>& completions() {
        shm::Completion completion;
        while (memory_.try_pop(completion)) completions_.push_back(completion);
        return completions_;
    }
    /// The newest of a kind; null if there is none.
    const shm::Completion* last(shm::CompletionKind kind) {
        completions();
        const auto found = std::find_if(completions_.rbegin(), completions_.rend(),
                                        [&](const auto& completion) { return completion.kind == kind; });
        return found == completions_.rend() ? nullptr : &*found;
    }
    bool has(shm::CompletionKind kind, Step step) {
        completions();
        return std::any_of(completions_.begin(), completions_.end(),
                           [&](const auto& completion) { return completion.kind == kind && completion.step == step; });
    }

private:
    shm::ClientSession memory_;
    std::vector<shm::Completion> completions_;
};

/// A session as the conductor makes it; `client` is there once a job took it.
struct MemoryRank {
    explicit MemoryRank(shm::AttachRequest wanted, pid_t pid = 4711) : request(std::move(wanted)) {
        session.id = request.rank + 1;
        session.who = {pid, 1000, 1000};
        session.user = "alice";
        session.doorbell.emplace(shm::Doorbell::make().value());
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
        session.connection = shm::LocalConnection(UniqueFd(ends[0]));
        socket = shm::LocalConnection(UniqueFd(ends[1]));
    }
    Status attach(HostedJob& job, TimePoint now) {
        auto attachment = job.attach(session, request, now);
        if (!attachment.is_ok()) return attachment.error();
        std::vector<UniqueFd> descriptors;
        for (const int fd : attachment->descriptors) descriptors.push_back(shm::duplicate(fd));
        client.emplace(request, attachment->reply, std::move(descriptors));
        return {};
    }
    shm::AttachRequest request;
    Session session;
    shm::LocalConnection socket;  ///< the client's end
    std::optional<ClientEnd> client;
};

}  // namespace gradsieve::daemon::test
