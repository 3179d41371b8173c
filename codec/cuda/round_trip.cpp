#include "codec/cuda/round_trip.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <cstring>

namespace gradsieve::codec::cuda {
Status RoundTrip::fit(ByteCount bytes) {
    if (bytes <= memory_.size()) return {};
    const ByteCount wanted = rounded_up(bytes, kWorkspaceUnitBytes);
    memory_ = {};
    mirror_ = {};
    GRADSIEVE_ASSIGN(mirror_, PinnedMemory::make(wanted, what_));
    GRADSIEVE_ASSIGN(memory_, DeviceMemory::make(device_, wanted, what_));
    return {};
}

Status RoundTrip::run(const Stream& stream, std::vector<Slot>& inout_slots, const Launch& launch) {
    ByteCount end = 0;
    const auto place = [&end](ByteCount& ret_at, ByteCount bytes) {
        ret_at = end;
        end = aligned_to_line(end + bytes);
    };
    for (Slot& slot : inout_slots)
        for (std::size_t number = 0; number < 2; ++number) place(slot.at[number], slot.in[number].size());
    const ByteCount out = end;
    for (Slot& slot : inout_slots)
        for (std::size_t number = 0; number < 2; ++number) place(slot.at[2 + number], slot.out[number].size());
    GRADSIEVE_TRY(stream.make_current());
    GRADSIEVE_TRY(fit(end));
    for (const Slot& slot : inout_slots)
        for (std::size_t number = 0; number < 2; ++number)
            if (!slot.in[number].empty())
                std::memcpy(mirror_.data() + slot.at[number], slot.in[number].data(), slot.in[number].size());
    auto* const handle = handle_of(stream);
    const auto enqueue = [&]() -> Status {
        if (out > 0)
            GRADSIEVE_CUDA_TRY(cudaMemcpyAsync(memory_.data(), mirror_.data(), out, cudaMemcpyHostToDevice, handle),
                               "copying what a phase starts from to a GPU");
        if (end > out)
            GRADSIEVE_CUDA_TRY(cudaMemsetAsync(memory_.data() + out, 0, end - out, handle),
                               "clearing what a phase writes on a GPU");
        for (std::size_t number = 0; number < inout_slots.size(); ++number)
            GRADSIEVE_TRY(launch(number, inout_slots[number]));
        if (end > out)
            GRADSIEVE_CUDA_TRY(
                cudaMemcpyAsync(mirror_.data() + out, memory_.data() + out, end - out, cudaMemcpyDeviceToHost, handle),
                "copying what a phase wrote from a GPU");
        return {};
    };
    Status status = enqueue();
    if (Status waited = stream.synchronize(); status.is_ok()) status = std::move(waited);
    GRADSIEVE_TRY(std::move(status));
    for (const Slot& slot : inout_slots)
        for (std::size_t number = 0; number < 2; ++number)
            if (!slot.out[number].empty())
                std::memcpy(slot.out[number].data(), mirror_.data() + slot.at[2 + number], slot.out[number].size());
    return {};
}

}  // namespace gradsieve::codec::cuda
