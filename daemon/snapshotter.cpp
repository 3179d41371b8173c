#include "daemon/snapshotter.hpp"

#include <pthread.h>
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace gradsieve::daemon {

Snapshotter::Snapshotter(WakeFlag& conductor_wake) : conductor_wake_(conductor_wake), thread_([this] { run(); }) {}

Snapshotter::~Snapshotter() {
    {
        const std::lock_guard lock(m_);
        is_stopping_ = true;
    }
    given_.notify_one();
    thread_.join();
}

void Snapshotter::give(std::shared_ptr<SnapshotTask> task) {
    {
        const std::lock_guard lock(m_);
        todo_.push_back(std::move(task));
    }
    given_.notify_one();
}

std::deque<std::shared_ptr<SnapshotTask>> Snapshotter::take_done() {
    if (!has_news_.exchange(false, std::memory_order_acq_rel)) return {};  // pairs with the release in tell
    const std::lock_guard lock(m_);
    return std::exchange(done_, {});
}

void Snapshotter::tell() noexcept {
    has_news_.store(true, std::memory_order_release);  // pairs with the acquire in has_news and take_done
    conductor_wake_.ring();
}

Status SnapshotTask::no_memory() const {
    return {StatusCode::kResourceExhausted, "snapshot of job '" + head.table.job_name +
                                                "': no memory for a copy: free some, or set state.snapshot_steps to "
                                                "0"};
}

Result<std::span<float>> SnapshotTask::more_of(std::size_t array, ElementCount first, ElementCount count) {
    try {
        auto& copy = copies[array];
        copy.reserve(elements[array]);  // once: what was given out stays where it is
        copy.resize(std::max<std::size_t>(copy.size(), first + count));
        return std::span(copy).subspan(first, count);
    } catch (const std::bad_alloc&) {
        return no_memory();
    }
}

/// The values in the order of the file: what is in the segment is copied aside, the rest was before.
Result<SnapshotArrays> Snapshotter::make_copies(SnapshotTask& task) {
    SnapshotArrays spans;
    try {
        for (std::size_t index = 0; index < task.arrays.size(); ++index) {
            const auto& array = task.arrays[index];
            auto& copy = task.copies[index];
            if (!array.empty()) copy.assign(array.begin(), array.end());
            GRADSIEVE_CHECK(copy.size() == task.elements[index]);
            spans.emplace_back(copy);
        }
    } catch (const std::bad_alloc&) {
        return task.no_memory();
    }
    return spans;
}

Status Snapshotter::load(SnapshotTask& task) {
    auto spans = task.arrays;
    for (std::size_t index = 0; index < spans.size(); ++index)
        if (spans[index].empty()) {
            GRADSIEVE_ASSIGN(spans[index], task.more_of(index, 0, task.elements[index]));
        }
    return read_snapshot_arrays(task.path, task.head, spans);
}

Status Snapshotter::save(SnapshotTask& task, const SnapshotArrays& copies) {
    const exchange::JobKey key{task.head.table.job_name, task.head.table.run_id};
    task.head.digest = snapshot_digest(copies);
    if (task.is_pinned) {
        remove_aged_pinned(task.folder, task.limits.keep_days);
        GRADSIEVE_TRY(check_pinned_room(task.folder, key, task.head.group, snapshot_bytes(task.head), task.limits));
        GRADSIEVE_TRY(
            write_snapshot_as(task.folder, pinned_name(key, task.head.group, task.head.step), task.head, copies));
        if (task.is_of_interval) GRADSIEVE_TRY(add_interval_name(task.folder, key, task.head.group, task.head.step));
    } else {
        GRADSIEVE_TRY(write_snapshot(task.folder, task.head, copies));
    }
    if (task.is_of_interval) remove_snapshots(task.folder, key, kSnapshotsKept);
    return {};
}

Status Snapshotter::do_without_arrays(SnapshotTask& task) {
    const exchange::JobKey key{task.head.table.job_name, task.head.table.run_id};
    switch (task.kind) {
        case SnapshotTask::Kind::kPin: {
            remove_aged_pinned(task.folder, task.limits.keep_days);
            GRADSIEVE_TRY(check_pinned_room(task.folder, key, task.head.group, 0, task.limits));
            GRADSIEVE_TRY(pin_snapshot(task.folder, key, task.head.group, task.head.step));
            const auto path = task.folder + "/" + pinned_name(key, task.head.group, task.head.step);
            GRADSIEVE_ASSIGN(task.head, read_snapshot_head(path));
            return {};
        }
        case SnapshotTask::Kind::kTrim:
            remove_older_pinned(task.folder, key, task.head.group, task.head.step, task.limits.kept);
            return {};
        case SnapshotTask::Kind::kTakeIn: {
            GRADSIEVE_ASSIGN(task.head,
                             take_in_pinned(task.folder, task.file.get(), key, task.head.table.owner, task.limits));
            return {};
        }
        default: return load(task);
    }
}

void Snapshotter::carry_out(SnapshotTask& task) {
    if (task.kind != SnapshotTask::Kind::kSave) {
        task.status = do_without_arrays(task);
        return;
    }
    const auto copies = make_copies(task);
    task.status = copies.status();
    task.is_copied.store(true, std::memory_order_release);  // pairs with the acquire in HostedJob
    tell();
    if (!task.status.is_ok()) return;
    task.status = save(task, *copies);
}

void Snapshotter::run() {
    pthread_setname_np(pthread_self(), "snapshotter");
    std::unique_lock lock(m_);
    while (true) {
        given_.wait(lock, [this] { return is_stopping_ || !todo_.empty(); });
        if (todo_.empty()) return;
        const auto task = std::move(todo_.front());
        todo_.pop_front();
        lock.unlock();
        carry_out(*task);
        task->is_copied.store(true, std::memory_order_release);  // pairs with the acquire in HostedJob
        lock.lock();
        done_.push_back(task);
        lock.unlock();
        tell();
        lock.lock();
    }
}

}  // namespace gradsieve::daemon
