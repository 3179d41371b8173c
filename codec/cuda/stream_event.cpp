#include "codec/cuda/stream_event.hpp"

#include "codec/cuda/runtime.hpp"

namespace gradsieve::codec::cuda {

Result<StreamEvent> StreamEvent::make(int device) {
    GRADSIEVE_CUDA_TRY(cudaSetDevice(device), "choosing a GPU");
    cudaEvent_t handle = nullptr;
    GRADSIEVE_CUDA_TRY(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming), "making an event");
    StreamEvent event;
    event.handle_ = handle;
    event.device_ = device;
    return event;
}

StreamEvent::~StreamEvent() {
    if (handle_ == nullptr) return;
    static_cast<void>(cudaSetDevice(device_));
    static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(handle_)));
}

Status StreamEvent::record(const Stream& stream) const {
    GRADSIEVE_TRY(stream.make_current());
    return status_of(cudaEventRecord(static_cast<cudaEvent_t>(handle_), static_cast<cudaStream_t>(stream.handle())),
                     "recording an event");
}

Status StreamEvent::hold_back(const Stream& stream) const {
    GRADSIEVE_TRY(stream.make_current());
    return status_of(
        cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle()), static_cast<cudaEvent_t>(handle_), 0),
        "waiting for another GPU");
}

}  // namespace gradsieve::codec::cuda
