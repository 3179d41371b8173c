// Snapshots that somebody asked for: which step a start is to go on from, and the making of one on every node.
#include "daemon/hosted_job.hpp"

#include <unistd.h>
#include <algorithm>

namespace gradsieve::daemon {

namespace {

std::string group_list(const std::vector<GroupTotals>& groups) {
    std::string text;
    for (const auto& group : groups) text += (text.empty() ? "'" : ", '") + group.name + "'";
    return text;
}

}  // namespace

PinnedLimits HostedJob::pinned_limits() const {
    const auto& config = *surroundings_.config;
    return {static_cast<std::size_t>(config.pinned_snapshots), config.pinned_limit_bytes, config.pinned_days};
}

/// By group number.
Result<std::vector<Step>> HostedJob::wanted_steps(const std::vector<shm::StateRequest>& wishes) const {
    std::vector<Step> wanted(groups_.size(), 0);
    for (const auto& wish : wishes) {
        const auto place = std::find_if(groups_.begin(), groups_.end(),
                                        [&](const GroupTotals& group) { return group.name == wish.group; });
        if (place == groups_.end())
            return Status(StatusCode::kNotFound, "group '" + wish.group + "' is to go on from step " +
                                                     std::to_string(wish.step) + ": allowed is a group with tensors, " +
                                                     group_list(groups_) + "; name one of them");
        wanted[static_cast<std::size_t>(place - groups_.begin())] = wish.step;
    }
    return wanted;
}

/// Of the first rank; what was chosen for the start counts for groups that it names nothing for.
Status HostedJob::take_wishes(const std::vector<shm::StateRequest>& wishes) {
    GRADSIEVE_ASSIGN(wanted_by_ranks_, wanted_steps(wishes));
    offer_.wanted = wanted_by_ranks_;
    for (const auto& wish : wishes)
        for (exchange::GroupNumber group = 0; group < groups_.size(); ++group)
            if (groups_[group].name == wish.group && wish.digest != 0) wanted_digests_[group] = wish.digest;
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group) {
        const auto chosen = surroundings_.choice.find(groups_[group].name);
        if (offer_.wanted[group] == 0 && chosen != surroundings_.choice.end()) offer_.wanted[group] = chosen->second;
    }
    return {};
}

Status HostedJob::check_wishes(const Session& session, Rank rank) const {
    GRADSIEVE_ASSIGN(const auto wanted, wanted_steps(session.wishes));
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group) {
        if (wanted[group] == wanted_by_ranks_[group]) continue;
        const auto text = [](Step step) { return step == 0 ? std::string("no step") : "step " + std::to_string(step); };
        return {StatusCode::kMismatch, "group '" + groups_[group].name + "': rank " + std::to_string(rank) + " names " +
                                           text(wanted[group]) + " to go on from, the job's other local ranks " +
                                           text(wanted_by_ranks_[group]) +
                                           ": all must name one; load the same checkpoint on all ranks"};
    }
    return {};
}

void HostedJob::on_save_request(std::uint64_t session_id, const shm::StateRequest& request, TimePoint now) {
    SaveWaiter waiter{.session_id = session_id, .number = request.number, .groups = {}, .steps = {}, .parts = {}};
    const auto refuse = [&](Status status) {
        surroundings_.reply(session_id, {.number = request.number, .status = std::move(status)});
    };
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group) {
        if (!request.is_of_all_groups && groups_[group].name != request.group) continue;
        const auto step = request.step > 0 ? request.step : groups_[group].committed;
        if (step == 0 && request.is_of_all_groups) continue;
        if (step == 0)
            return refuse({StatusCode::kFailedPrecondition, "job '" + key().name + "', group '" + groups_[group].name +
                                                                "': no step is committed yet: ask after the first"});
        waiter.groups.insert(group);
        waiter.steps[group] = step;
    }
    if (waiter.groups.empty())
        return refuse({StatusCode::kNotFound, "job '" + key().name + "' has no group '" + request.group +
                                                  "' with a committed step: allowed is one of " + group_list(groups_) +
                                                  ", once it has stepped; name one of them"});
    for (const auto& [group, step] : waiter.steps)
        if (auto status = machine_.on_snapshot_requested(group, step, now); !status.is_ok())
            return refuse(std::move(status));
    save_waiters_.push_back(std::move(waiter));
}

void HostedJob::act(exchange::SaveSnapshot& action, TimePoint now) {
    const auto answer = [&](Status status) {
        machine_.on_snapshot_saved(action.group, action.step, {.status = std::move(status)}, now);
    };
    if (!state_) return answer({});  // a codec without state has nothing to keep
    if (surroundings_.snapshots == nullptr || !can_keep_state())
        return answer({StatusCode::kFailedPrecondition,
                       "this node keeps no state (state.keep_minutes is 0): raise it in gradsieved.toml"});
    const auto open = groups_[action.group].ended + 1;
    if (action.step > open)
        return answer({StatusCode::kInvalidArgument, "step " + std::to_string(action.step) +
                                                         " is ahead: allowed is up to the open step " +
                                                         std::to_string(open) + "; ask when it is committed"});
    pins_[action.group].insert(action.step);
    advance_pins(action.group, now);
}

/// One at a time of each group; the open step's waits for its outcome.
void HostedJob::advance_pins(exchange::GroupNumber group, TimePoint now) {
    const auto found = pins_.find(group);
    if (found == pins_.end() || is_ended_) return;
    for (const auto step : std::vector<Step>(found->second.begin(), found->second.end())) {
        if (saving_.contains(group)) return;
        if (step > groups_[group].ended) continue;
        const auto outcome = start_pin(group, step);
        if (!outcome) continue;
        found->second.erase(step);
        machine_.on_snapshot_saved(group, step, *outcome, now);
    }
    if (found->second.empty()) pins_.erase(found);
}

std::optional<exchange::SnapshotOutcome> HostedJob::start_pin(exchange::GroupNumber group, Step step) {
    const auto path = surroundings_.config->state_directory + "/" + pinned_name(key(), group, step);
    if (const auto made = pinned_.find({group, step}); made != pinned_.end() && ::access(path.c_str(), F_OK) == 0)
        return made->second;
    if (groups_[group].snapshot == step) {
        const auto task = make_pin_task(SnapshotTask::Kind::kPin, group, step);
        task->job = this;
        task->is_pinned = true;
        task->is_copied.store(true, std::memory_order_release);  // nothing of a generation is read
        ++tasks_out_;
        saving_.emplace(group, task);
        surroundings_.snapshots->give(task);
        return std::nullopt;
    }
    const auto steps = state_->steps(group);
    if (step == steps.newest || step == steps.older) {
        start_save(group, step, /*is_pinned=*/true);
        return std::nullopt;
    }
    const bool has_failed = step > steps.newest;
    return exchange::SnapshotOutcome{
        .status = {has_failed ? StatusCode::kStepFailed : StatusCode::kFailedPrecondition,
                   "step " + std::to_string(step) + (has_failed ? " failed" : " is over") + ": allowed is step " +
                       std::to_string(steps.newest) +
                       (steps.older > 0 ? " or " + std::to_string(steps.older) : std::string()) +
                       ", of which this node has the state; ask for the step that was committed last"}};
}

std::shared_ptr<SnapshotTask> HostedJob::make_pin_task(SnapshotTask::Kind kind, exchange::GroupNumber group,
                                                       Step step) const {
    auto task = std::make_shared<SnapshotTask>();
    task->kind = kind;
    task->folder = surroundings_.config->state_directory;
    task->head.table.job_name = key().name;
    task->head.table.run_id = key().run_id;
    task->head.group = group;
    task->head.step = step;
    task->limits = pinned_limits();
    return task;
}

void HostedJob::on_pinned(const SnapshotTask& task, TimePoint now) {
    const auto group = task.head.group;
    const exchange::SnapshotOutcome outcome{
        .status = task.status, .digest = task.head.digest, .bytes = snapshot_bytes(task.head)};
    if (outcome.status.is_ok()) pinned_[{group, task.head.step}] = outcome;
    if (const auto found = pins_.find(group); found != pins_.end()) {
        found->second.erase(task.head.step);
        if (found->second.empty()) pins_.erase(found);
    }
    if (!is_ended_) machine_.on_snapshot_saved(group, task.head.step, outcome, now);
}

void HostedJob::act(exchange::SnapshotKept& action, TimePoint) {
    auto& group = groups_[action.group];
    group.pinned = std::max(group.pinned, action.step);
    if (surroundings_.snapshots == nullptr || !state_) return;
    surroundings_.log->info("a snapshot of step " + std::to_string(action.step) + " is pinned on every node",
                            {.job = key().name, .step = action.step});
    surroundings_.snapshots->give(make_pin_task(SnapshotTask::Kind::kTrim, action.group, action.step));
}

void HostedJob::act(exchange::DeliverSnapshot& action, TimePoint) {
    std::erase_if(save_waiters_, [&](SaveWaiter& waiter) {
        const auto step = waiter.steps.find(action.group);
        if (!waiter.groups.contains(action.group) || step->second != action.step) return false;
        if (!action.status.is_ok()) {
            surroundings_.reply(waiter.session_id, {.number = waiter.number, .status = action.status});
            return true;
        }
        const auto& nodes = surroundings_.config->nodes;
        for (std::size_t member = 0; member < action.parts.size(); ++member)
            waiter.parts.push_back({.group = groups_[action.group].name,
                                    .step = action.step,
                                    .node = nodes.empty() ? "this node" : nodes[members_[member].peer].name,
                                    .ranks = members_[member].ranks,
                                    .digest = action.parts[member].digest,
                                    .bytes = action.parts[member].bytes});
        waiter.groups.erase(action.group);
        if (!waiter.groups.empty()) return false;
        surroundings_.reply(waiter.session_id, {.number = waiter.number, .status = {}, .parts = waiter.parts});
        return true;
    });
}

}  // namespace gradsieve::daemon
