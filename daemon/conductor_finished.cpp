// What the conductor takes back from threads that work beside it: GPUs' and the snapshotter's; and what a clean stop
// saves.
#include "daemon/conductor.hpp"

namespace gradsieve::daemon {

bool Conductor::drain_gpus(TimePoint now) {
    bool has_any = false;
    for (const auto& worker : gpus_.workers())
        for (auto& task : worker->take_done()) {
            has_any = true;
            if (task.codec)
                if (auto* job = owner_of(task.codec->job_hash, task.codec->tensor))
                    job->on_task_done(std::move(task.codec), now);
            if (task.copy)
                if (auto* job = owner_of(task.copy->job_hash, task.copy->tensor))
                    job->on_copy_done(std::move(task.copy), now);
            if (task.state_read) {
                auto* job = task.state_read->snapshot->job;
                job->on_state_read(std::move(task.state_read), now);
            }
            if (task.state_check) kept_states_.on_checked(*task.state_check, now);
            if (!task.bind) continue;
            // A session stays as long as its job has a task out, and so does the job.
            const auto place = sessions_.find(task.bind->session_id);
            if (place == sessions_.end() || place->second->job == nullptr) continue;
            place->second->job->on_bind_done(*place->second, std::move(task.bind), now);
        }
    if (has_any && gpu_failure_.empty())
        for (const auto& worker : gpus_.workers()) look_after_gpu(*worker, now);
    return has_any;
}

void Conductor::look_after_gpu(const GpuWorker& worker, TimePoint now) {
    for (const auto& figures : worker.figures()) {
        if (figures.failure.empty()) continue;
        gpu_failure_ = figures.failure;
        note_error(figures.failure, now);
        for (auto& [hash, job] : jobs_) job->on_gpu_lost(worker, figures.failure, now);
    }
}

bool Conductor::drain_snapshots(TimePoint now) {
    if (snapshots_ == nullptr || !snapshots_->has_news()) return false;
    for (auto& task : snapshots_->take_done()) {
        if (task->job != nullptr) task->job->on_snapshot_done(task, now);
        if (task->kind == SnapshotTask::Kind::kTakeIn) on_taken_in(*task);
    }
    return true;  // what was only copied lets a job go on, too
}

void Conductor::save_states() {
    if (config_.snapshot_steps == 0) return;
    const auto save = [&](shm::StateSegment& state, const DeviceParts& parts) {
        for (std::uint32_t group = 0; group < state.table().groups.size(); ++group) {
            // Both, since another node may have come one step less far.
            const auto steps = state.steps(group);
            for (const Step step : {steps.older, steps.newest}) {
                if (step == 0) continue;
                if (const auto status = save_group(state, parts, group, step); !status.is_ok())
                    log_.error(status.text(), {.job = state.table().job_name});
            }
        }
    };
    for (auto& [hash, job] : jobs_)
        if (auto* state = job->state()) save(*state, job->state_parts());
    for (auto& kept : kept_states_.all()) save(kept.state.segment, kept.state.parts);
}

/// The GPUs' threads have ended: what lies there is read from here.
Status Conductor::save_group(shm::StateSegment& state, const DeviceParts& parts, std::uint32_t group, Step step) const {
    auto committed = committed_group(state, group, step);
    std::vector<std::vector<float>> copies;
    if (!committed.on_devices.empty()) {
        const auto& placement = *state.placement();
        GRADSIEVE_ASSIGN(const auto memory, open_parts(placement, parts.ordinals, parts.descriptors));
        copies.resize(committed.arrays.size());
        const auto elements = array_elements(committed.head);
        for (const auto& one : committed.on_devices) {
            auto& copy = copies[one.array];
            copy.resize(elements[one.array]);
            for (const auto& piece : placement.tensors[one.tensor])
                GRADSIEVE_TRY(read_range(memory,
                                         {piece.part, piece.offset_bytes[one.number][one.generation], piece.elements},
                                         std::span(copy).subspan(piece.first, piece.elements)));
            committed.arrays[one.array] = copy;
        }
    }
    return write_snapshot(config_.state_directory, committed.head, committed.arrays);
}

}  // namespace gradsieve::daemon
