#include "daemon/snapshotter.hpp"

#include <pthread.h>
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

void Snapshotter::carry_out(SnapshotTask& task) {
    if (task.kind == SnapshotTask::Kind::kLoad) {
        task.status = read_snapshot_arrays(task.path, task.head, task.arrays);
        return;
    }
    std::vector<std::vector<float>> copies;
    SnapshotArrays spans;
    try {
        for (const auto& array : task.arrays) copies.emplace_back(array.begin(), array.end());
    } catch (const std::bad_alloc&) {
        task.status = {StatusCode::kResourceExhausted, "snapshot of job '" + task.head.table.job_name +
                                                           "': no memory for a copy: free some, or set "
                                                           "state.snapshot_steps to 0"};
    }
    task.is_copied.store(true, std::memory_order_release);  // pairs with the acquire in HostedJob
    tell();
    if (!task.status.is_ok()) return;
    for (auto& copy : copies) spans.emplace_back(copy);
    task.status = write_snapshot(task.folder, task.head, spans);
    if (task.status.is_ok())
        remove_snapshots(task.folder, {task.head.table.job_name, task.head.table.run_id}, kSnapshotsKept);
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
