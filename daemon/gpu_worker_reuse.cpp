// What a worker codes of tensors whose steps may be skipped: signatures say which are worth a look before anything is
// encoded, so a batch is begun and finished before the next one.
#include "daemon/gpu_context.hpp"
#include "daemon/gpu_encode_turn.hpp"
#include "daemon/gpu_worker.hpp"

#include <algorithm>

namespace gradsieve::daemon {

void GpuWorker::encode_or_reuse(std::span<GpuTask*> tasks) {
    Status status = ensure_context();
    const SteadyClock clock;
    for (auto rest = tasks; !rest.empty() && status.is_ok();) {
        const auto begin = clock.now();
        const auto batch = rest.first(batch_length(rest, pace_.batch_elements));
        rest = rest.subspan(batch.size());
        EncodeTurn turn;
        turn.ask(batch, ordinals_);
        std::vector<codec::cuda::GpuReuseRequest> requests;
        for (std::size_t number = 0; number < batch.size(); ++number)
            requests.push_back({turn.requests[number], batch[number]->codec->held});
        std::vector<codec::cuda::GpuReuseResult> results(batch.size());
        status = context_->reuse.encode(*context_->encoders.front(), *context_->decoder, requests, results);
        for (auto* task : batch)
            if (status.is_ok()) status = take_norm(*task->codec);
        if (!status.is_ok()) break;
        const auto ended = clock.now();
        for (std::size_t number = 0; number < batch.size(); ++number) {
            auto& task = *batch[number]->codec;
            task.took = (ended - begin) / static_cast<int>(batch.size());
            task.began = begin;
            task.ended = ended;
            task.take_reuse(std::move(results[number].reuse), std::move(results[number].gradient));
        }
        hand_back(batch);
    }
    look_after(status);
    if (status.is_ok()) return;
    for (auto* task : tasks)
        if (task->codec) task->codec->encoded.emplace(status.with_context("GPU " + names()));
}

}  // namespace gradsieve::daemon
