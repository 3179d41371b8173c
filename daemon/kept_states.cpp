#include "daemon/kept_states.hpp"

#include "daemon/hosted_job.hpp"
#include "daemon/service.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::daemon {

namespace {

constexpr std::size_t kLostKept = 16;

exchange::JobKey key_of(const shm::StateSegment& state) { return {state.table().job_name, state.table().run_id}; }
exchange::JobKey key_of(const KeptJob& kept) { return key_of(kept.state.segment); }
std::size_t descriptors_of(const KeptJob& kept) { return 1 + kept.state.parts.descriptors.size(); }

}  // namespace

void KeptStates::adopt(std::vector<HandedDescriptor> handed, TimePoint now, ByteCount gpu_limit_bytes) {
    now_ = now;
    HandedParts parts;
    for (auto& descriptor : handed)
        if (is_parked_part_name(descriptor.name)) parts.emplace(descriptor.name, std::move(descriptor.fd));
    for (auto& descriptor : handed) {
        if (is_parked_part_name(descriptor.name)) continue;
        const auto status = adopt_one(descriptor, parts, gpu_limit_bytes, now);
        if (status.is_ok()) continue;
        log_.warning("parked descriptor '" + descriptor.name + "': " + status.text(), {});
        note_lost(descriptor.name, status.text(), now);
        unpark_descriptor(descriptor.name);
    }
    // Those of a daemon that was killed before its table named them, or of a state that was refused.
    for (const auto& [name, fd] : parts) {
        log_.info("parked descriptor '" + name + "': no kept state needs it: it is let go", {});
        unpark_descriptor(name);
    }
}

Status KeptStates::adopt_one(HandedDescriptor& handed, HandedParts& inout_parts, ByteCount gpu_limit_bytes,
                             TimePoint now) {
    if (kept_.size() >= kKeptStatesLimit)
        return {StatusCode::kResourceExhausted, fmt::format("{} states are kept already: allowed are {}; it is dropped",
                                                            kept_.size(), kKeptStatesLimit)};
    GRADSIEVE_ASSIGN(auto segment, shm::StateSegment::adopt(std::move(handed.fd)));
    const auto key = key_of(segment);
    if (parked_name(key) != handed.name)
        return shm::corrupt_state("state of job '" + key.name + "' under this name", "'" + parked_name(key) + "'");
    if (owner_of(key)) return shm::corrupt_state("a second state of job '" + key.name + "'", "one for each run");
    if (!segment.has_committed())
        return {StatusCode::kFailedPrecondition,
                "kept state of job '" + key.name + "': no step was committed: it is dropped, nothing is lost"};
    GRADSIEVE_TRY(budget_.take(segment.size_bytes(), "the kept state of job '" + key.name + "'"));
    auto parts = adopt_parts(key, segment, inout_parts, gpu_limit_bytes);
    if (!parts.is_ok()) {
        budget_.give_back(segment.size_bytes());
        return parts.error();
    }
    log_.info("state found again: " + std::to_string(segment.size_bytes()) + " bytes" +
                  (parts->ordinals.empty() ? "" : fmt::format(", and on {} GPUs", parts->ordinals.size())),
              {.job = key.name});
    const bool is_checked = parts->ordinals.empty();
    kept_.push_back({{std::move(segment), std::move(*parts)}, "the daemon before this one ended", now, is_checked});
    if (!is_checked) check(kept_.back());
    return {};
}

/// All of the placement's, or none.
Result<DeviceParts> KeptStates::adopt_parts(const exchange::JobKey& key, const shm::StateSegment& segment,
                                            HandedParts& inout_parts, ByteCount gpu_limit_bytes) {
    DeviceParts parts;
    const auto& placement = segment.placement();
    if (!placement) return parts;
    for (std::size_t place = 0; place < placement->parts.size(); ++place) {
        const auto found = inout_parts.find(parked_name(key, *placement, place));
        if (found == inout_parts.end())
            return Status(
                StatusCode::kNotFound,
                fmt::format("kept state of job '{}': its part {} of {}, on GPU {}, was not handed over: needed "
                            "is every part; it is dropped, and the job begins anew",
                            key.name, place + 1, placement->parts.size(), placement->parts[place].gpu));
        parts.descriptors.push_back(std::move(found->second));
    }
    if (gpus_ == nullptr)
        return Status(StatusCode::kUnimplemented, "kept state of job '" + key.name +
                                                      "': it lies on GPUs, which this daemon does not use; it is "
                                                      "dropped, and the job begins anew");
    GRADSIEVE_ASSIGN(const auto devices, gpus_->list());
    GRADSIEVE_ASSIGN(parts.ordinals, ordinals_of(*placement, devices));
    GRADSIEVE_TRY(gpus_->ledger().take_state(claims_of(*placement, parts.ordinals), gpu_limit_bytes));
    for (std::size_t place = 0; place < placement->parts.size(); ++place)
        inout_parts.erase(parked_name(key, *placement, place));
    return parts;
}

void KeptStates::check(KeptJob& inout_kept) {
    const auto& state = inout_kept.state;
    auto task = std::make_unique<GpuStateCheckTask>();
    task->job_hash = exchange::job_hash(key_of(state.segment));
    task->placement = *state.segment.placement();
    task->ordinals = state.parts.ordinals;
    auto descriptors = duplicates_of(state.parts.descriptors);
    if (!descriptors.is_ok()) {  // whoever binds looks again
        log_.warning(descriptors.error().text(), {.job = key_of(inout_kept).name});
        inout_kept.is_checked = true;
        return;
    }
    task->descriptors = std::move(*descriptors);
    gpus_->worker_of(state.parts.ordinals).give({.state_check = std::move(task)});
}

void KeptStates::on_checked(const GpuStateCheckTask& task, TimePoint now) {
    now_ = now;
    const auto place = std::find_if(kept_.begin(), kept_.end(), [&](const KeptJob& kept) {
        return !kept.is_checked && exchange::job_hash(key_of(kept)) == task.job_hash;
    });
    if (place == kept_.end()) return;  // given up meanwhile
    place->is_checked = true;
    if (!task.context.is_ok())  // whoever binds looks again
        log_.warning("kept state on GPUs is not looked at yet: " + task.context.text(), {.job = key_of(*place).name});
    if (!task.status.is_ok()) drop(place, task.status.text());
}

/// Within the store of descriptors.
void KeptStates::make_room_for(std::size_t descriptors) {
    const auto held = [this] {
        std::size_t count = 0;
        for (const auto& kept : kept_) count += descriptors_of(kept);
        return count;
    };
    while (kept_.size() >= kKeptStatesLimit || (!kept_.empty() && held() + descriptors > kKeptDescriptorsLimit))
        drop_oldest(
            fmt::format("more than {} are kept, or more than {} descriptors", kKeptStatesLimit, kKeptDescriptorsLimit));
}

void KeptStates::keep(KeptState state, std::string why, TimePoint now) {
    now_ = now;
    make_room_for(1 + state.parts.descriptors.size());
    log_.info("state is kept: " + why, {.job = key_of(state.segment).name});
    kept_.push_back({std::move(state), std::move(why), now});
}

std::optional<KeptState> KeptStates::take(const exchange::JobKey& key) {
    const auto place =
        std::find_if(kept_.begin(), kept_.end(), [&](const KeptJob& kept) { return key_of(kept) == key; });
    if (place == kept_.end()) return std::nullopt;
    auto state = std::move(place->state);
    kept_.erase(place);
    return state;
}

bool KeptStates::is_checking(const exchange::JobKey& key) const {
    return std::any_of(kept_.begin(), kept_.end(),
                       [&](const KeptJob& kept) { return !kept.is_checked && key_of(kept) == key; });
}

std::optional<std::uint32_t> KeptStates::owner_of(const exchange::JobKey& key) const {
    for (const auto& kept : kept_)
        if (key_of(kept) == key) return kept.state.segment.table().owner;
    return std::nullopt;
}

void KeptStates::end(const exchange::JobKey& key, KeptState state) {
    unpark(key, state.segment);
    budget_.give_back(state.segment.size_bytes());
    if (!state.parts.ordinals.empty())
        give_back(gpus_->ledger(), claims_of(*state.segment.placement(), state.parts.ordinals));
}

void KeptStates::drop(std::deque<KeptJob>::iterator place, const std::string& why) {
    const auto key = key_of(*place);
    log_.warning("kept state is dropped: " + why, {.job = key.name});
    note_lost(key.name, why, now_);
    auto state = std::move(place->state);
    kept_.erase(place);
    end(key, std::move(state));
}

bool KeptStates::drop_oldest(const std::string& why) {
    if (kept_.empty()) return false;
    drop(kept_.begin(), why);
    return true;
}

bool KeptStates::drop_oldest_on(std::span<const int> ordinals, const std::string& why) {
    const auto place = std::find_if(kept_.begin(), kept_.end(), [&](const KeptJob& kept) {
        const auto& held = kept.state.parts.ordinals;
        return std::find_first_of(held.begin(), held.end(), ordinals.begin(), ordinals.end()) != held.end();
    });
    if (place == kept_.end()) return false;
    drop(place, why);
    return true;
}

void KeptStates::on_time(Duration keep_for, TimePoint now) {
    now_ = now;
    while (!kept_.empty() && now - kept_.front().since >= keep_for)
        drop(kept_.begin(), fmt::format("no run of the job took it within {} minutes (state.keep_minutes)",
                                        std::chrono::duration_cast<std::chrono::minutes>(keep_for).count()));
}

void KeptStates::note_lost(const std::string& job, const std::string& text, TimePoint now) {
    lost_.push_front({job, text, now});
    if (lost_.size() > kLostKept) lost_.pop_back();
}

}  // namespace gradsieve::daemon
