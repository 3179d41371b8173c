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
        if (!fits(head, wanted) || (!offer_.ranks.empty() && offer_.ranks != head.ranks)) continue;
        offer_.ranks = head.ranks;
        auto& steps = offer_.steps[head.group].steps;
        if (offer_.steps[head.group].has(head.step) || steps.size() >= exchange::kKeptStepsLimit) continue;
        steps.insert(std::upper_bound(steps.begin(), steps.end(), head.step, std::greater<>()), head.step);
        snapshots_.emplace(std::pair(head.group, head.step), std::move(found));
    }
}

/// Right after the commit of a group's step: the pass after next would overwrite the generation, and waits if it must.
void HostedJob::save_snapshot(exchange::GroupNumber group) {
    const auto every = surroundings_.config->snapshot_steps;
    if (surroundings_.snapshots == nullptr || every == 0 || !state_ || !can_keep_state()) return;
    if (state_->committed(group) % every != 0) return;
    if (saving_.contains(group)) {
        surroundings_.log->warning("no snapshot of step " + std::to_string(state_->committed(group)) +
                                       ": the one before is still being written: raise state.snapshot_steps",
                                   {.job = key().name});
        return;
    }
    auto committed = committed_group(*state_, group, state_->committed(group));
    auto task = std::make_shared<SnapshotTask>();
    task->job = this;
    task->folder = surroundings_.config->state_directory;
    task->head = std::move(committed.head);
    task->arrays = std::move(committed.arrays);
    task->copies.resize(task->arrays.size());
    task->elements = array_elements(task->head);
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
    const auto found = saving_.find(tensor.group);
    if (found == saving_.end()) return false;
    const bool is_elsewhere = is_on_devices(state_->table().tensors[tensor.number]);
    if (is_elsewhere ? found->second->is_off_devices
                     : found->second->is_copied.load(std::memory_order_acquire))  // pairs with Snapshotter
        return false;
    const auto live = tensor.live_generation(groups_[tensor.group].committed);
    return tensor.generations[1 - live].stamp == found->second->head.step;
}

/// Those that still have to wait are put off again.
void HostedJob::encode_deferred(TimePoint now) {
    for (auto& action : std::exchange(deferred_, {}))
        if (!is_ended_) act(action, now);
}

void HostedJob::load_snapshot(exchange::GroupNumber group, Step step) {
    auto& found = snapshots_.at({group, step});
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
    else
        groups_[task->head.group].snapshot = task->head.step;
    if (is_ended_ && end_status_.is_ok()) remove_snapshots(task->folder, key(), 0);
}

void HostedJob::on_loaded(const std::shared_ptr<SnapshotTask>& task, TimePoint now) {
    --loads_out_;
    if (!task->status.is_ok()) {
        note_lost_state(task->status.text());
        if (task->status.code() == StatusCode::kCorrupt) ::unlink(task->path.c_str());  // or it would be offered again
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
