// Checkpoints: snapshots of what the daemons keep, on request, and the step that a start goes on from. Each call but
// `resume_from` asks the daemon over a connection of its own, without the lock. See job_core.hpp.
#include "client/job_core.hpp"
#include "shm/sealed_message.hpp"
#include "shm/state_caller.hpp"

#include <utility>

namespace gradsieve::client {
namespace {

Snapshot snapshot_of(std::string_view group, const std::vector<shm::SnapshotPart>& parts) {
    Snapshot snapshot;
    snapshot.group = std::string(group);
    for (const auto& part : parts) {
        snapshot.step = part.step;
        snapshot.parts.push_back({.node = part.node,
                                  .ranks = {part.ranks.begin(), part.ranks.end()},
                                  .digest = part.digest,
                                  .bytes = part.bytes});
    }
    return snapshot;
}

}  // namespace

shm::StateRequest JobCore::state_request(shm::StateRequestKind kind, std::string_view group, Step step) const {
    shm::StateRequest request;
    request.kind = kind;
    request.number = 1;
    request.job_name = options_.name;
    request.run_id = options_.run_id;
    request.group = std::string(group);
    request.step = step;
    return request;
}

Status JobCore::state_failed(const Status& status, Timeout timeout, const std::string& waited_for) const {
    if (status.code() == StatusCode::kTimeout)
        return {StatusCode::kTimeout,
                options_.label() + ": waited " + std::to_string(std::max<Timeout::rep>(timeout.count(), 0)) +
                    " ms for " + waited_for + ": allowed is the timeout given, and nothing is lost; call again"};
    return status.with_context(options_.label());
}

Status JobCore::resume_from(Step step, std::string_view group, std::uint64_t digest) {
    GRADSIEVE_TRY(mark_.check());
    const Lock lock(m_);
    if (phase_ != Phase::kFresh)
        return {StatusCode::kFailedPrecondition,
                options_.label() + " is started or left: allowed is resume_from before start; make a new job"};
    auto request = state_request(shm::StateRequestKind::kResume, group, step);
    request.digest = digest;
    if (step == 0) {
        resumes_.erase(std::string(group));
        return {};
    }
    GRADSIEVE_TRY(shm::check_state_request(request));
    resumes_[std::string(group)] = std::move(request);
    return {};
}

Result<Snapshot> JobCore::request_snapshot(Step step, std::string_view group, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    {
        const Lock lock(m_);
        GRADSIEVE_TRY(check_live());
        GRADSIEVE_TRY(find_group(group).status());
    }
    const auto answered = shm::ask_for_state(
        options_.socket_path, state_request(shm::StateRequestKind::kSave, group, step), deadline_after(timeout));
    if (!answered.is_ok()) return state_failed(answered.error(), timeout, "a snapshot on every node");
    return snapshot_of(group, answered->parts);
}

Result<std::vector<std::byte>> JobCore::export_snapshot(Step step, std::string_view group, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    const auto answered = shm::ask_for_state(
        options_.socket_path, state_request(shm::StateRequestKind::kRead, group, step), deadline_after(timeout));
    if (!answered.is_ok()) return state_failed(answered.error(), timeout, "this node's snapshot");
    auto bytes = shm::read_whole_file(answered->file.get(), "snapshot of step " + std::to_string(step));
    if (!bytes.is_ok()) return bytes.error().with_context(options_.label());
    return std::vector<std::byte>(bytes->begin(), bytes->end());
}

Result<Snapshot> JobCore::import_snapshot(std::span<const std::byte> bytes, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    GRADSIEVE_ASSIGN(const auto memory, shm::seal_message(bytes));
    const auto answered = shm::ask_for_state(options_.socket_path, state_request(shm::StateRequestKind::kWrite, "", 0),
                                             deadline_after(timeout), memory.get());
    if (!answered.is_ok()) return state_failed(answered.error(), timeout, "the snapshot to be taken in");
    return snapshot_of(answered->parts.empty() ? std::string_view() : answered->parts.front().group, answered->parts);
}

Status JobCore::release_snapshots(Step step, std::string_view group, Timeout timeout) {
    GRADSIEVE_TRY(mark_.check());
    const auto answered = shm::ask_for_state(
        options_.socket_path, state_request(shm::StateRequestKind::kRelease, group, step), deadline_after(timeout));
    return answered.is_ok() ? Status() : state_failed(answered.error(), timeout, "snapshots to be released");
}

}  // namespace gradsieve::client
