#include "codec/cuda/gather_threads.hpp"

#include <algorithm>
#include <system_error>

namespace gradsieve::codec::cuda {
namespace {

/// One core copies 5 to 10 GB/s, the bus takes 25 to 50.
constexpr unsigned kMaximumThreads = 7;

}  // namespace

GatherThreads::~GatherThreads() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void GatherThreads::start(std::function<bool()> work, unsigned wanted) {
    if (threads_.empty()) start_threads();
    wanted = std::min(wanted, static_cast<unsigned>(threads_.size()));
    {
        const std::lock_guard lock(mutex_);
        work_ = std::move(work);
        openings_ = wanted;
    }
    for (unsigned thread = 0; thread < wanted; ++thread) wake_.notify_one();
}

void GatherThreads::finish() {
    std::unique_lock lock(mutex_);
    openings_ = 0;
    // No deadline: only memory copies are waited for.
    idle_.wait(lock, [&] { return active_ == 0; });
    work_ = nullptr;
}

void GatherThreads::start_threads() {
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    try {
        while (threads_.size() < std::min(kMaximumThreads, cores - 1)) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {  // a limit on threads: those that are there, then
    }
}

void GatherThreads::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait(lock, [&] { return is_ending_ || openings_ > 0; });
        if (is_ending_) return;
        --openings_;
        ++active_;
        lock.unlock();
        while (work_()) {  // set before the openings were, and stays while a thread is active
        }
        lock.lock();
        if (--active_ == 0) idle_.notify_all();
    }
}

}  // namespace gradsieve::codec::cuda
