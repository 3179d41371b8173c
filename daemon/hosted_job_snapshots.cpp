// Snapshots of a job: when one is made, what waits for it, and going on from one.
#include "daemon/hosted_job.hpp"

#include <unistd.h>
#include <algorithm>

namespace gradsieve::daemon {

namespace {

/// The snapshot is of this group as it is now: same agreement between the nodes, same tensors and arrays.
bool fits(const SnapshotHead& head, const shm::StateTable& wanted) {
    if (head.group >= wanted.groups.size() || head.table.owner != wanted.owner || head.table.spec != wanted.spec)
        return false;
    std::vector<const shm::StateTensor*> tensors;
    for (const auto& tensor : wanted.tensors)
        if (tensor.group == head.group) tensors.push_back(&tensor);
    const auto is_same = [](const shm::StateTensor& kept, const shm::StateTensor* now) {
        return kept.name == now->name && kept.elements == now->elements &&
               std::equal(kept.arrays.begin(), kept.arrays.end(), now->arrays.begin(), now->arrays.end(),
                          [](const auto& a, const auto& b) { return a.name == b.name && a.bytes == b.bytes; });
    };
    return std::equal(head.table.tensors.begin(), head.table.tensors.end(), tensors.begin(), tensors.end(), is_same);
}

}  // namespace

void HostedJob::offer_snapshots(const shm::StateTable& wanted) {
    if (surroundings_.snapshots == nullptr || !can_keep_state()) return;
    for (auto& found : find_snapshots(surroundings_.config->state_directory, key())) {
        if (!found.head.is_ok()) {
            note_lost_state(found.head.error().text());
            continue;
        }
        const auto& head = *found.head;
        if (!fits(head, wanted) || (!offer_.ranks.empty() && offer_.ranks != head.ranks) || !head.epoch) continue;
        offer_.ranks = head.ranks;
        auto& kept = offer_.steps[head.group];
        if (kept.has(head.step) || kept.steps.size() >= exchange::kKeptStepsLimit) continue;
        kept.add(head.step, *head.epoch);
        snapshots_.emplace(std::pair(head.group, head.step), std::move(found));
    }
}

/// Those that a job goes on from only if somebody names their step.
void HostedJob::offer_pinned(const shm::StateTable& wanted) {
    if (surroundings_.snapshots == nullptr || !can_keep_state()) return;
    const auto step_named = [this](exchange::GroupNumber group) {
        return group < offer_.wanted.size() ? offer_.wanted[group] : Step{0};
    };
    const auto is_that_named = [&](const std::string& path) {
        for (exchange::GroupNumber group = 0; group < groups_.size(); ++group)
            if (step_named(group) > 0 && path.ends_with(pinned_name(key(), group, step_named(group)))) return true;
        return false;
    };
    for (auto& found : find_pinned(surroundings_.config->state_directory, key())) {
        if (!found.head.is_ok()) {
            const auto& text = found.head.error().text();
            if (is_that_named(found.path))
                note_lost_state(text);
            else
                surroundings_.log->warning(text, {.job = key().name});
            continue;
        }
        const auto& head = *found.head;
        const bool is_named = step_named(head.group) == head.step;
        if (!fits(head, wanted) || !head.epoch) {
            if (is_named)
                note_lost_state("snapshot " + found.path + ": it is of another model, world or user than this run");
            continue;
        }
        const auto digest = wanted_digests_.find(head.group);
        if (is_named && digest != wanted_digests_.end() && digest->second != head.digest) {
            note_lost_state("snapshot " + found.path + ": its values are others than those that the checkpoint names");
            continue;
        }
        offer_.named.push_back(
            {.group = head.group, .step = head.step, .ranks = head.ranks, .epoch = head.epoch.value_or(0)});
        named_.emplace(std::pair(head.group, head.step), std::move(found));
    }
    // What lies in memory, or was made by interval, may be of another line of steps than the one whose digest is named.
    for (const auto& [group, digest] : wanted_digests_) offer_.steps[group].remove(step_named(group));
}

/// The job has one line of steps: snapshots of later ones than it goes on from are of one that was left.
void HostedJob::give_up_abandoned(const exchange::StartJob& start) {
    for (const auto& [place, found] : snapshots_)
        if (place.second >= start.first_steps[place.first]) ::unlink(found.path.c_str());
}

bool HostedJob::is_interval(Step step) const {
    const auto every = surroundings_.config->snapshot_steps;
    return every > 0 && step % every == 0;
}

/// Right after the commit of a group's step: the pass after next would overwrite the generation, and waits if it must.
void HostedJob::save_snapshot(exchange::GroupNumber group) {
    if (surroundings_.snapshots == nullptr || !state_ || !can_keep_state()) return;
    const auto step = state_->committed(group);
    if (!is_interval(step)) return;
    const auto saving = saving_.find(group);
    if (saving == saving_.end()) return start_save(group, step, /*is_pinned=*/false);
    if (saving->second->head.step == step) return;  // pinned at the same time, under both names
    surroundings_.log->warning("no snapshot of step " + std::to_string(step) +
                                   ": the one before is still being written: raise state.snapshot_steps",
                               {.job = key().name});
}

/// `step`: one that the group can go on from now; nothing of the group is being saved.
void HostedJob::start_save(exchange::GroupNumber group, Step step, bool is_pinned) {
    auto committed = committed_group(*state_, group, step);
    auto task = std::make_shared<SnapshotTask>();
    task->job = this;
    task->folder = surroundings_.config->state_directory;
    task->head = std::move(committed.head);
    task->arrays = std::move(committed.arrays);
    task->copies.resize(task->arrays.size());
    task->elements = array_elements(task->head);
    task->is_pinned = is_pinned;
    task->is_of_interval = is_interval(step);
    task->limits = pinned_limits();
    ++tasks_out_;
    saving_.emplace(group, task);
    if (committed.on_devices.empty()) return surroundings_.snapshots->give(std::move(task));
    auto read = std::make_unique<GpuStateReadTask>();
    read->snapshot = std::move(task);
    read->memory = &gpu_memory_;
    for (const auto& array : committed.on_devices)
        for (const auto& piece : state_->placement()->tensors[array.tensor])
            if (piece.elements > 0)
                read->reads.push_back(
                    {array.array,
                     piece.first,
                     {piece.part, piece.offset_bytes[array.number][array.generation], piece.elements}});
    give_read(std::move(read));
}

void HostedJob::give_read(std::unique_ptr<GpuStateReadTask> task) { gpu_->give({.state_read = std::move(task)}); }

/// What is left has another turn; all of it goes to the disk.
void HostedJob::on_state_read(std::unique_ptr<GpuStateReadTask> task, TimePoint now) {
    if (!task->is_done()) return give_read(std::move(task));
    auto snapshot = std::move(task->snapshot);
    snapshot->is_off_devices = true;
    if (task->status.is_ok()) return surroundings_.snapshots->give(std::move(snapshot));
    snapshot->status = task->status.with_context("snapshot of job '" + key().name + "'");
    snapshot->is_copied.store(true, std::memory_order_release);  // pairs with the acquire in is_held
    on_snapshot_done(snapshot, now);
}

bool HostedJob::is_held(const HostedTensor& tensor) const {
    if (saving_.empty() && pins_.empty()) return false;
    const auto live = tensor.live_generation(groups_[tensor.group].committed);
    const auto stamp = tensor.generations[1 - live].stamp;  // what the pass would overwrite
    const auto found = saving_.find(tensor.group);
    if (found != saving_.end() && found->second->head.step == stamp) {
        const auto& kept = state_->table().tensors[tensor.number];
        const auto is_there = [](const shm::StateArray& array) { return is_on_devices(array); };
        const bool is_elsewhere = is_on_devices(kept) && std::ranges::all_of(kept.arrays, is_there);
        return !(is_elsewhere ? found->second->is_off_devices
                              : found->second->is_copied.load(std::memory_order_acquire));  // pairs with Snapshotter
    }
    const auto wanted = pins_.find(tensor.group);
    return wanted != pins_.end() && wanted->second.contains(stamp);
}

/// Those that still have to wait are put off again.
void HostedJob::encode_deferred(TimePoint now) {
    for (auto& action : std::exchange(deferred_, {}))
        if (!is_ended_) act(action, now);
}

void HostedJob::load_snapshot(exchange::GroupNumber group, const FoundSnapshot& found) {
    auto task = std::make_shared<SnapshotTask>();
    task->kind = SnapshotTask::Kind::kLoad;
    task->job = this;
    task->path = found.path;
    task->head = *found.head;
    for (const auto& tensor : state_->table().tensors)
        if (tensor.group == group)
            for (const auto& array : tensor.arrays)
                task->arrays.push_back(is_on_devices(array)
                                           ? std::span<float>()
                                           : std::span(state_->values(array, 0), array.bytes / sizeof(float)));
    task->copies.resize(task->arrays.size());
    task->elements = array_elements(task->head);
    ++tasks_out_;
    ++loads_out_;
    surroundings_.snapshots->give(std::move(task));
}

void HostedJob::on_snapshot_done(const std::shared_ptr<SnapshotTask>& task, TimePoint now) {
    --tasks_out_;
    if (task->kind == SnapshotTask::Kind::kLoad) return on_loaded(task, now);
    saving_.erase(task->head.group);
    if (!task->status.is_ok())
        surroundings_.log->error(task->status.text(), {.job = key().name, .step = task->head.step});
    else if (task->kind == SnapshotTask::Kind::kSave && task->is_of_interval)
        groups_[task->head.group].snapshot = task->head.step;
    if (task->is_pinned) on_pinned(*task, now);
    if (is_ended_ && end_status_.is_ok() && !left_open_) remove_snapshots(task->folder, key(), 0);
    if (!is_ended_) advance_pins(task->head.group, now);
}

void HostedJob::on_loaded(const std::shared_ptr<SnapshotTask>& task, TimePoint now) {
    --loads_out_;
    if (!task->status.is_ok()) {
        note_lost_state(task->status.text());
        const bool is_pinned_file = task->path.ends_with(kPinnedSuffix);  // of use to nobody, but the user's
        if (task->status.code() == StatusCode::kCorrupt && !is_pinned_file)
            ::unlink(task->path.c_str());  // or it would be offered again
        if (!is_ended_) machine_.on_rank_left(sessions_.begin()->first, false, task->status.text(), now);
        return;
    }
    loaded_.emplace(task->head.group, task);
    set_loaded_words(*task, /*on_devices=*/false);
    if (!state_->has_device_arrays(task->head.group)) finish_loaded(task->head.group);
    if (loads_out_ > 0 || is_ended_ || !pending_start_) return;
    take_over_generations();
    for (const auto& [group, loaded] : loaded_) {
        std::size_t position = 0;
        for (const auto number : groups_[group].tensors) {
            auto& generations = tensors_[number].generations;
            generations[0].stamp = loaded->head.step;
            generations[0].is_valid = true;
            generations[0].scale = loaded->head.scales[position++];
            generations[1].is_valid = false;
        }
    }
    announce_start(*std::exchange(pending_start_, std::nullopt));
}

/// Of the tensors in the segment, or of those on GPUs.
void HostedJob::set_loaded_words(const SnapshotTask& task, bool on_devices) {
    std::size_t position = 0;
    for (const auto number : groups_[task.head.group].tensors) {
        const auto scale = task.head.scales[position++];
        if (is_on_devices(state_->table().tensors[number]) != on_devices) continue;
        state_->invalidate(number, 1);
        state_->finish(number, 0, task.head.step, scale);
    }
}

/// All values are where they belong: the group counts from here on.
void HostedJob::finish_loaded(exchange::GroupNumber group) {
    const auto task = loaded_.at(group);
    set_loaded_words(*task, /*on_devices=*/true);
    state_->commit(group, task->head.step);
    loaded_.erase(group);
}

}  // namespace gradsieve::daemon
