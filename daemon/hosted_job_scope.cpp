// Selections over several tensors of a step: a member's phases run on the codec threads, what follows when is decided
// here. The round machine asks for each member as for any tensor, and is answered once all of them are through.
#include "codec/narrow_scope.hpp"
#include "codec/select_topk.hpp"
#include "codec/stages/warmup.hpp"
#include "daemon/hosted_job.hpp"

#include <algorithm>

namespace gradsieve::daemon {

namespace {

ElementCount visits_of(const CodecTask& task) {
    switch (task.phase) {
        case codec::ScopePhase::kObserve: return task.tensor->elements * (task.samples.size() + 1);
        case codec::ScopePhase::kCount:
        case codec::ScopePhase::kList: return task.tensor->elements;
        case codec::ScopePhase::kCut:
        case codec::ScopePhase::kSettle: break;
    }
    constexpr ElementCount kVisitsPerCandidate = 8;  // what coding one costs, in visits of a dense pass
    ElementCount candidates = task.phase == codec::ScopePhase::kSettle ? task.tensor->member->candidate_count() : 0;
    for (const auto* member : task.cut_members) candidates += member->candidate_count();
    return candidates * kVisitsPerCandidate;
}

std::string seconds_text(Duration duration) {
    const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
    const auto whole = std::to_string(tenths / 10);
    return (tenths % 10 == 0 ? whole : whole + "." + std::to_string(tenths % 10)) + " s";
}

}  // namespace

Status HostedJob::lay_out_scopes() {
    for (auto& tensor : tensors_) {
        if (!codec::has_model_scope(tensor.pipeline)) continue;
        auto& scope = scope_of(tensor);
        if (scope.on_device != tensor.on_device)
            return {StatusCode::kInvalidArgument,
                    "tensor '" + tensor.name + "': is " + (tensor.on_device ? "on a device" : "in host memory") +
                        ", others of its topk(scope=model) are not: allowed are all of them on devices or none; stage "
                        "those on devices, or use scope=tensor"};
        tensor.scope = &scope;
        tensor.member.emplace();
        scope.tensors.push_back(tensor.number);
        scope.elements += tensor.elements;
    }
    ByteCount bytes = 0;
    for (auto& scope : scopes_) {
        bytes += scope->on_device ? codec::narrow_scope_bytes(scope->tensors.size())
                                  : codec::scope_bytes(scope->pipeline, scope->tensors.size(), scope->elements);
    }
    GRADSIEVE_TRY(surroundings_.budget->take(bytes, "the candidates of topk(scope=model)"));
    memory_bytes_ += bytes;
    return {};
}

/// The scope that the tensor belongs to, made if it is the first of it.
HostedScope& HostedJob::scope_of(const HostedTensor& tensor) {
    for (auto& scope : scopes_)
        if (scope->group == tensor.group && codec::is_one_scope(scope->pipeline, tensor.pipeline)) return *scope;
    scopes_.push_back(std::make_unique<HostedScope>());
    scopes_.back()->group = tensor.group;
    scopes_.back()->pipeline = tensor.pipeline;
    scopes_.back()->pipeline.measures_similarity = false;
    scopes_.back()->on_device = tensor.on_device;
    return *scopes_.back();
}

/// Tasks of an ended step are still out: they write what the next step's would.
bool HostedJob::is_draining(const HostedTensor& tensor) {
    if (codec::has_delta(tensor.pipeline)) return tensor.tasks_out > 0;
    return tensor.scope != nullptr && tensor.scope->is_ending;
}

void HostedJob::encode_member(HostedTensor& tensor, Step step, TimePoint now) {
    auto& scope = *tensor.scope;
    if (step <= groups_[tensor.group].ended)  // put off until after its step had ended
        return machine_.on_encode_failed(tensor.number, step, {StatusCode::kStepFailed, "the step has ended"}, now);
    if (scope.step != step) {
        scope.step = step;
        scope.phase = codec::ScopePhase::kObserve;
        scope.terms = {.k = codec::top_k_count(codec::ratio_at(scope.pipeline, step), scope.elements),
                       .hint = scope.next_hint};
        scope.arrived = 0;
    }
    ++scope.arrived;
    auto task = make_encode_task(tensor, step);
    std::vector<std::unique_ptr<CodecTask>> tasks;
    if (task.is_ok()) {
        (*task)->kind = CodecTask::Kind::kScopePhase;
        tasks.push_back(std::move(*task));
        return give_phase(scope, std::move(tasks), now);
    }
    machine_.on_encode_failed(tensor.number, step, task.error(), now);
    advance(scope, now);
}

/// Small tasks are done at once, and the last of them leads on to the next phase. A GPU gets all of them together.
void HostedJob::give_phase(HostedScope& scope, std::vector<std::unique_ptr<CodecTask>> tasks, TimePoint now) {
    scope.tasks_out += tasks.size();
    std::vector<GpuTask> for_gpu;
    for (auto& task : tasks) {
        task->phase = scope.phase;
        task->terms = scope.terms;
        task->phase_elements = visits_of(*task);
        if (!scope.on_device) {
            dispatch(std::move(task), now);
            continue;
        }
        ++tasks_out_;
        ++task->tensor->tasks_out;
        add_gpu_buffers(*task);
        for_gpu.push_back({.codec = std::move(task)});
    }
    if (!for_gpu.empty()) gpu_->give(std::span(for_gpu));
}

void HostedJob::on_phase_done(std::unique_ptr<CodecTask> task, TimePoint now) {
    auto& scope = *task->tensor->scope;
    --scope.tasks_out;
    if (task->phase == codec::ScopePhase::kCut) {
        scope.next_hint = task->next_hint;
        scope.waiting.front()->took += task->took;
    } else if (scope.is_ending) {
        scope.waiting.push_back(std::move(task));
    } else if (!task->encoded->is_ok() || (*task->encoded)->non_finite || task->phase == codec::ScopePhase::kSettle) {
        on_encode_done(*task, now);
    } else {
        scope.waiting.push_back(std::move(task));
    }
    if (scope.is_ending && scope.tasks_out == 0) return answer_ended(scope, now);
    advance(scope, now);
}

/// On to the next phase, once every member has ended this one.
void HostedJob::advance(HostedScope& scope, TimePoint now) {
    if (scope.is_ending || scope.tasks_out > 0 || scope.arrived < scope.tensors.size() || scope.waiting.empty()) return;
    if (scope.phase == codec::ScopePhase::kCut) {
        scope.phase = codec::ScopePhase::kSettle;
        return give_phase(scope, std::exchange(scope.waiting, {}), now);
    }
    std::ranges::sort(scope.waiting, {}, [](const auto& task) { return task->tensor->number; });
    std::vector<codec::ScopeMember*> members;
    for (const auto& task : scope.waiting) members.push_back(&*task->tensor->member);
    const auto next = scope.on_device ? codec::narrow_scope(scope.terms, members)
                                      : codec::phase_after(scope.phase, scope.terms, {members.data(), members.size()});
    scope.phase = next.phase;
    scope.terms = next.terms;
    if (scope.phase != codec::ScopePhase::kCut) return give_phase(scope, std::exchange(scope.waiting, {}), now);
    auto cut = std::make_unique<CodecTask>();
    cut->kind = CodecTask::Kind::kScopePhase;
    cut->job_hash = exchange::job_hash(key());
    cut->tensor = scope.waiting.front()->tensor;
    cut->step = scope.step;
    cut->cut_members = std::move(members);
    std::vector<std::unique_ptr<CodecTask>> tasks;
    tasks.push_back(std::move(cut));
    give_phase(scope, std::move(tasks), now);
}

/// The group's step has ended without a result.
void HostedJob::end_scopes(exchange::GroupNumber group, Step step, TimePoint now) {
    for (auto& scope : scopes_) {
        if (scope->group != group || scope->step != step) continue;
        scope->is_ending = true;
        if (scope->tasks_out == 0) answer_ended(*scope, now);
    }
}

void HostedJob::answer_ended(HostedScope& scope, TimePoint now) {
    scope.is_ending = false;
    for (const auto& task : std::exchange(scope.waiting, {}))
        if (!machine_.is_ended())
            machine_.on_encode_failed(task->tensor->number, scope.step, {StatusCode::kStepFailed, "the step has ended"},
                                      now);
}

void HostedJob::on_time(TimePoint now) {
    machine_.on_time(now);
    for (auto& scope : scopes_)
        if (!scope->waiting.empty() && !scope->is_ending && scope->phase == codec::ScopePhase::kObserve)
            check_hand_ins(*scope, now);
}

/// A rank that handed in some members, since one is in on all ranks, and then no more: it waits for their averages,
/// which wait for it.
void HostedJob::check_hand_ins(HostedScope& scope, TimePoint now) {
    for (const auto& [rank, session] : sessions_) {
        const auto is_in = [&, session = session](exchange::TensorNumber number) {
            return session->is_handed_in[session->index_of_number[number]];
        };
        const auto count = std::ranges::count_if(scope.tensors, is_in);
        if (static_cast<std::size_t>(count) == scope.tensors.size()) continue;
        const auto deadline = surroundings_.config->round_deadline;
        if (now - scope.handed_in_at[rank] < deadline) continue;
        const auto missing = *std::ranges::find_if_not(scope.tensors, is_in);
        const Status status(StatusCode::kStepFailed,
                            "rank " + std::to_string(rank) + " handed in " + std::to_string(count) + " of the " +
                                std::to_string(scope.tensors.size()) +
                                " tensors that topk(scope=model) selects from, and '" + tensors_[missing].name +
                                "' not within round_deadline_s (" + seconds_text(deadline) +
                                "): hand in all tensors of a step before waiting for one of them, or use scope=tensor");
        const auto task = std::move(scope.waiting.back());
        scope.waiting.pop_back();
        return machine_.on_encode_failed(task->tensor->number, task->step, status, now);
    }
}

}  // namespace gradsieve::daemon
