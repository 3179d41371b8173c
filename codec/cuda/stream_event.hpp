// One device's place in its stream, for other devices' streams to wait for; no host waits. Recorded again and again:
// what waits, waits for the record before it. One thread.
#pragma once

#include "codec/cuda/device.hpp"

#include <utility>

namespace gradsieve::codec::cuda {

class StreamEvent {
public:
    StreamEvent() = default;
    [[nodiscard]] static Result<StreamEvent> make(int device);
    StreamEvent(StreamEvent&& other) noexcept { swap(other); }
    StreamEvent& operator=(StreamEvent&& other) noexcept {
        StreamEvent(std::move(other)).swap(*this);
        return *this;
    }
    ~StreamEvent();

    /// Behind what the stream holds; the stream is of the event's device.
    [[nodiscard]] Status record(const Stream& stream) const;
    /// Lets what is enqueued on `stream` from now on wait for the last record.
    [[nodiscard]] Status hold_back(const Stream& stream) const;

private:
    void swap(StreamEvent& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(device_, other.device_);
    }
    void* handle_ = nullptr;  ///< cudaEvent_t
    int device_ = 0;
};

}  // namespace gradsieve::codec::cuda
