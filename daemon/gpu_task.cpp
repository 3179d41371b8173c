#include "daemon/gpu_task.hpp"

#include "codec/cuda/device_values.hpp"

#include <cstring>

namespace gradsieve::daemon {

Status GpuCopyTask::run(const codec::cuda::Stream& stream) {
    std::vector<float> values(tensor->elements);
    const ByteCount value_bytes = values.size() * sizeof(float);
    if (is_read) {
        const auto& root = *buffers.front();
        GRADSIEVE_TRY(codec::cuda::read_values(stream, root.slice(0), root.type, values));
        Bytes read(value_bytes);
        if (value_bytes > 0) std::memcpy(read.data(), values.data(), value_bytes);
        bytes = SharedView::take(std::move(read));
        return {};
    }
    // They lie on any byte of a frame.
    if (value_bytes > 0) std::memcpy(values.data(), bytes.bytes().data(), value_bytes);
    for (const auto* buffer : buffers)
        GRADSIEVE_TRY(codec::cuda::write_values(stream, values, buffer->slice(0), buffer->type));
    return {};
}

}  // namespace gradsieve::daemon
