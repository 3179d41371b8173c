// The doctor's look at the network: this node's port and the way to its peers.
#include "cli/doctor.hpp"
#include "cli/tcp_probe.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace gradsieve::cli {

namespace {

struct Answer {
    bool is_done = false;
    std::string address, failure;
};
/// Shared with the probing threads, which may outlive the doctor's patience: a name server cannot be interrupted.
struct Answers {
    std::mutex mutex;
    std::condition_variable is_changed;
    std::vector<Answer> of_node;  // guarded by mutex
    std::size_t open = 0;         // guarded by mutex
};

void probe(const std::shared_ptr<Answers>& answers, std::size_t index, const daemon::NodeConfig& node,
           std::chrono::milliseconds patience) {
    Answer answer;
    answer.failure = try_connect(node.address, node.port, patience, answer.address);
    answer.is_done = true;
    const std::lock_guard lock(answers->mutex);
    answers->of_node[index] = std::move(answer);
    --answers->open;
    answers->is_changed.notify_all();
}

Finding finding_of(const daemon::NodeConfig& node, const Answer& answer) {
    const auto subject = fmt::format("peer {}", node.name);
    auto place = fmt::format("{}:{}", node.address, node.port);
    if (!answer.address.empty() && answer.address != node.address) place += fmt::format(" ({})", answer.address);
    if (!answer.is_done)
        return {Grade::kFail, subject, fmt::format("{}: the name server did not answer in time", place),
                "put the IP address into the configuration, or mend name resolution"};
    if (answer.failure.empty()) return {Grade::kOk, subject, fmt::format("{} takes connections", place), ""};
    return {Grade::kFail, subject, fmt::format("{}: {}", place, answer.failure),
            "start its daemon; open the port in firewalls on the way; check address and port in [[node]]"};
}

}  // namespace

Finding check_port(const daemon::NodeConfig& self, std::int64_t daemon_pid) {
    const auto listener = find_listener(self.port);
    if (!listener && daemon_pid == 0) return {Grade::kOk, "port", fmt::format("{} is free", self.port), ""};
    if (!listener)
        return {Grade::kFail, "port", fmt::format("nobody listens on {}, though the daemon runs", self.port),
                "it runs with another configuration: restart it, or give the same --node and file here"};
    if (listener->pid == 0 && daemon_pid != 0)
        return {Grade::kOk, "port", fmt::format("{} is held, by whom only root can see", self.port), ""};
    if (listener->pid == daemon_pid && daemon_pid != 0)
        return {Grade::kOk, "port", fmt::format("{} is held by the daemon", self.port), ""};
    const auto holder = listener->pid == 0 ? std::string("another user's process")
                                           : fmt::format("{} (pid {})", listener->program, listener->pid);
    return {Grade::kFail, "port", fmt::format("{} is held by {}", self.port, holder),
            "end that program, or give this node another port in [[node]], the same on all nodes"};
}

std::vector<Finding> check_peers(const std::vector<daemon::NodeConfig>& nodes, PeerIndex self,
                                 std::chrono::milliseconds patience) {
    const auto answers = std::make_shared<Answers>();
    answers->of_node.resize(nodes.size());
    for (std::size_t index = 0; index < nodes.size(); ++index) {
        if (index == self) continue;
        {
            const std::lock_guard lock(answers->mutex);
            ++answers->open;
        }
        std::thread([answers, index, node = nodes[index], patience] {
            probe(answers, index, node, patience);
        }).detach();
    }
    std::unique_lock lock(answers->mutex);
    // Half as long again: the probes' own patience ends first, so that only name servers can be late.
    answers->is_changed.wait_for(lock, patience + patience / 2, [&] { return answers->open == 0; });
    std::vector<Finding> findings;
    for (std::size_t index = 0; index < nodes.size(); ++index)
        if (index != self) findings.push_back(finding_of(nodes[index], answers->of_node[index]));
    return findings;
}

}  // namespace gradsieve::cli
