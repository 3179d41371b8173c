#include "streams.hpp"

namespace gradsieve::emulated {

StreamQueue::StreamQueue(int device) : device_(device), thread_([this] { live(); }) {}

StreamQueue::~StreamQueue() {
    {
        const std::lock_guard lock(m_);
        is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void StreamQueue::enqueue(std::function<void()> work) {
    {
        const std::lock_guard lock(m_);
        work_.push_back(std::move(work));
    }
    changed_.notify_all();
}

void StreamQueue::synchronize() {
    std::unique_lock lock(m_);
    changed_.wait(lock, [&] { return work_.empty() && !is_busy_; });
}

bool StreamQueue::is_idle() {
    const std::lock_guard lock(m_);
    return work_.empty() && !is_busy_;
}

void StreamQueue::live() {
    std::unique_lock lock(m_);
    for (;;) {
        changed_.wait(lock, [&] { return !work_.empty() || is_ending_; });
        if (work_.empty()) return;
        const auto work = std::move(work_.front());
        work_.pop_front();
        is_busy_ = true;
        lock.unlock();
        work();
        lock.lock();
        is_busy_ = false;
        changed_.notify_all();
    }
}

void enqueue_on(StreamQueue* stream, std::function<void()> work) {
    if (stream == nullptr)
        work();
    else
        stream->enqueue(std::move(work));
}

}  // namespace gradsieve::emulated
