// What a GPU's thread does with the memory of states: lays it out for a job, looks at what an earlier daemon left, and
// copies it aside for snapshots.
#include "codec/cuda/device_values.hpp"
#include "daemon/gpu_worker.hpp"

#include <algorithm>

namespace gradsieve::daemon {

namespace {

/// What a snapshot copies before steps get their turn again: 16 MiB, a few milliseconds.
constexpr ElementCount kReadElements = ElementCount{4} << 20U;

/// GPUs of another set, whose contexts are only needed for now.
class GuestContexts {
public:
    GuestContexts(GpuLedger& ledger, std::span<const int> wanted, std::span<const int> own) : ledger_(ledger) {
        for (const int ordinal : wanted)
            if (std::ranges::find(own, ordinal) == own.end()) guests_.push_back(ordinal);
        for (const int ordinal : guests_) ledger_.enter(ordinal);
    }
    ~GuestContexts() {
        for (const int ordinal : guests_) ledger_.leave(ordinal);
    }
    GuestContexts(const GuestContexts&) = delete;
    GuestContexts& operator=(const GuestContexts&) = delete;

private:
    GpuLedger& ledger_;
    std::vector<int> guests_;
};

}  // namespace

Status GpuWorker::set_up(GpuStateSetup& inout_setup) {
    const GuestContexts guests(
        ledger_, inout_setup.source ? std::span<const int>(inout_setup.source->ordinals) : std::span<const int>(),
        ordinals_);
    GRADSIEVE_TRY(set_up_state(inout_setup));
    for (const auto& part : inout_setup.memory) holdings_[place_of(part.device())].state_bytes += part.size();
    return {};
}

Status GpuWorker::check(GpuStateCheckTask& inout_task) {
    inout_task.context = ensure_context();
    if (!inout_task.context.is_ok()) return {};
    return open_parts(inout_task.placement, inout_task.ordinals, inout_task.descriptors).status();
}

Status GpuWorker::read(GpuStateReadTask& inout_task) {
    GRADSIEVE_TRY(ensure_context());
    ElementCount room = kReadElements;
    while (room > 0 && inout_task.next < inout_task.reads.size()) {
        const auto& read = inout_task.reads[inout_task.next];
        const auto count = std::min(room, read.range.elements - inout_task.done);
        GRADSIEVE_ASSIGN(const auto values,
                         inout_task.snapshot->more_of(read.array, read.first + inout_task.done, count));
        const auto& part = (*inout_task.memory)[read.range.part];
        GRADSIEVE_TRY(codec::cuda::read_values(stream_of(part.device()),
                                               part.as<float>(read.range.offset_bytes) + inout_task.done,
                                               codec::cuda::ElementType::kF32, values));
        room -= count;
        inout_task.done += count;
        if (inout_task.done < read.range.elements) break;
        ++inout_task.next;
        inout_task.done = 0;
    }
    return {};
}

}  // namespace gradsieve::daemon
