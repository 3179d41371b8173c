#include "daemon/codec_pool.hpp"

#include <pthread.h>
#include <algorithm>

namespace gradsieve::daemon {

CodecPool::CodecPool(std::uint32_t threads, WakeFlag& conductor_wake) : conductor_wake_(conductor_wake) {
    for (std::uint32_t number = 0; number < threads; ++number) {
        workers_.push_back(std::make_unique<Worker>());
        workers_.back()->thread = std::thread([this, worker = workers_.back().get()] { run(*worker); });
    }
}

CodecPool::~CodecPool() {
    is_stopping_.store(true, std::memory_order_release);
    for (auto& worker : workers_) {
        worker->posted.fetch_add(1, std::memory_order_release);  // pairs with the acquire in run
        worker->posted.notify_one();
    }
    for (auto& worker : workers_) worker->thread.join();
}

void CodecPool::give(std::unique_ptr<CodecTask> task) {
    auto& worker = **std::min_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
        return a->elements_given < b->elements_given;
    });
    worker.elements_given += task->work_elements();
    worker.backlog.push_back(std::move(task));
    hand_over(worker);
}

void CodecPool::hand_over(Worker& worker) {
    bool has_given = false;
    while (!worker.backlog.empty() && worker.todo.try_push(worker.backlog.front())) {
        worker.backlog.pop_front();
        has_given = true;
    }
    if (!has_given) return;
    worker.posted.fetch_add(1, std::memory_order_release);  // pairs with the acquire in run
    worker.posted.notify_one();
}

std::vector<std::unique_ptr<CodecTask>> CodecPool::take_done() {
    std::vector<std::unique_ptr<CodecTask>> finished;
    for (auto& worker : workers_) {
        while (auto task = worker->done.try_pop()) {
            worker->elements_given -= (*task)->work_elements();
            finished.push_back(std::move(*task));
        }
        hand_over(*worker);  // every finished task made room for one
    }
    return finished;
}

bool CodecPool::has_done() const noexcept {
    return std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return !worker->done.is_empty(); });
}

std::size_t CodecPool::queue_depth() const noexcept {
    std::size_t depth = 0;
    for (const auto& worker : workers_) depth += worker->todo.depth() + worker->backlog.size();
    return depth;
}

void CodecPool::run(Worker& worker) {
    pthread_setname_np(pthread_self(), "codec");
    codec::EncodeWorkspace workspace;
    while (true) {
        const auto seen = worker.posted.load(std::memory_order_acquire);  // pairs with the release in give
        if (is_stopping_.load(std::memory_order_acquire)) return;
        if (auto task = worker.todo.try_pop()) {
            (*task)->run(workspace);
            // The conductor takes batches, so this is short; once it has stopped, nobody wants the result.
            while (!worker.done.try_push(*task) && !is_stopping_.load(std::memory_order_acquire))
                std::this_thread::yield();
            conductor_wake_.ring();
            continue;
        }
        worker.posted.wait(seen, std::memory_order_acquire);
    }
}

}  // namespace gradsieve::daemon
