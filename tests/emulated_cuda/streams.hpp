// Streams of the emulated card: each is a host thread that carries out what was enqueued, in order, while the caller
// goes on. The default stream of a device carries out at once. Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace gradsieve::emulated {

class StreamQueue {
public:
    explicit StreamQueue(int device);
    ~StreamQueue();
    StreamQueue(const StreamQueue&) = delete;
    StreamQueue& operator=(const StreamQueue&) = delete;

    [[nodiscard]] int device() const noexcept { return device_; }
    void enqueue(std::function<void()> work);
    void synchronize();
    [[nodiscard]] bool is_idle();

private:
    void live();

    const int device_;
    std::mutex m_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;  // guarded by m_, as the next two
    bool is_busy_ = false, is_ending_ = false;
    std::thread thread_;
};

/// An event: a place in a stream.
struct EventState {
    std::mutex m;
    std::condition_variable changed;
    std::uint64_t recorded = 0, reached = 0;
    int device = 0;
    std::chrono::steady_clock::time_point at{};
};

/// Enqueues behind the stream's work; null: the calling thread carries it out now.
void enqueue_on(StreamQueue* stream, std::function<void()> work);

}  // namespace gradsieve::emulated
