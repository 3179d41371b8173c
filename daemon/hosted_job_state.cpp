// Residual and variance of a job in the segment that outlives it: laid out or taken up again, gone back to the step
// that all nodes have, and left behind or given up at the end. docs/state-format.md.
#include "codec/state_arrays.hpp"
#include "daemon/hosted_job.hpp"
#include "daemon/kept_epoch.hpp"
#include "daemon/service.hpp"

#include <unistd.h>
#include <algorithm>

namespace gradsieve::daemon {

namespace {

/// Room for so many at least: a later daemon on this node may see more of them.
constexpr std::size_t kGpusLikely = 8;

/// Arrays that the tensor keeps, in the order in which they lie.
std::vector<std::string> array_names(const HostedTensor& tensor, bool keeps_steering) {
    const bool keeps_down = tensor.down && codec::has_residual(*tensor.down);
    std::vector<std::string> names;
    for (const auto& array : codec::state_arrays())
        if (array.is_kept(tensor.written) || (keeps_down && array.values == &codec::StateView::down))
            names.emplace_back(array.name);
    if (keeps_steering) names.emplace_back(kSteeringName);
    return names;
}

using ArraySizes = std::vector<std::pair<std::string, ByteCount>>;
/// Without what a budget adds: one that has come or gone since is no loss of state.
ArraySizes array_sizes(const shm::StateTensor& tensor) {
    ArraySizes sizes;
    for (const auto& array : tensor.arrays)
        if (array.name != kSteeringName) sizes.emplace_back(array.name, array.bytes);
    return sizes;
}

std::string place_text(const shm::StateTensor& tensor) { return is_on_devices(tensor) ? "on GPUs" : "on the host"; }

/// Why a job cannot go on from `kept`; empty if it can.
std::string difference(const shm::StateTable& kept, const shm::StateTable& wanted) {
    const auto before = exchange::parse_job_spec(kept.spec);
    if (!before.is_ok()) return before.error().text();
    const auto now = exchange::parse_job_spec(wanted.spec);
    if (!now.is_ok()) return now.error().text();
    auto text = exchange::first_difference(*before, "the kept state", *now, "this run");
    if (!text.empty()) return text;
    if (kept.groups != wanted.groups || kept.tensors.size() != wanted.tensors.size()) return "other groups or tensors";
    for (std::size_t index = 0; index < kept.tensors.size(); ++index) {
        const auto& old = kept.tensors[index];
        const auto& fresh = wanted.tensors[index];
        if (old.name != fresh.name || old.group != fresh.group || old.elements != fresh.elements ||
            array_sizes(old) != array_sizes(fresh))
            return "tensor '" + fresh.name + "': its arrays are others";
        if (is_on_devices(old) != is_on_devices(fresh))
            return "tensor '" + fresh.name + "': its state was " + place_text(old) + ", now it is to be " +
                   place_text(fresh);
    }
    return {};
}

/// Nodes ended a step with different bits: what all of them keep together would give different ones again. Nothing of
/// the committed step is gone on from, here and in snapshots by interval.
void drop_common_state(shm::StateSegment& state, const std::string& folder, const exchange::JobKey& key) {
    for (std::uint32_t group = 0; group < state.table().groups.size(); ++group) {
        if (!find_epoch(state.table(), group)) continue;
        const auto committed = state.committed(group);
        state.commit(group, 0);
        for (const auto& found : find_snapshots(folder, key))
            if (found.head.is_ok() && found.head->group == group && found.head->step >= committed)
                ::unlink(found.path.c_str());
    }
}

}  // namespace

/// What the segment is to hold; no arrays if nothing is to be kept.
shm::StateTable HostedJob::state_table() const {
    shm::StateTable table;
    table.job_name = key().name;
    table.run_id = key().run_id;
    table.owner = surroundings_.owner;
    table.world_size = spec_.world_size;
    table.spec = exchange::build_job_spec(spec_);
    for (const auto& group : groups_) table.groups.push_back(group.name);
    for (const auto& tensor : tensors_) {
        table.tensors.push_back({.name = tensor.name,
                                 .group = tensor.group,
                                 .elements = tensor.elements,
                                 .codec = tensor.codec_text,
                                 .arrays = {}});
        for (const auto& name : array_names(tensor, steering_.is_kept_with(tensor.number))) {
            if (name == kSteeringName) {
                table.tensors.back().arrays.push_back({.name = name, .part = shm::kHostPart, .bytes = kSteeringBytes});
                continue;
            }
            const auto& array = *codec::find_state_array(name);
            // Parts on GPUs are ranges of elements: what has another size lies on the host.
            const bool is_on_gpus = tensor.on_device && !has_host_state_ && array.size == nullptr;
            table.tensors.back().arrays.push_back(
                {.name = name,
                 .part = is_on_gpus ? shm::kDevicesPart : shm::kHostPart,
                 .bytes = size_of(array, tensor.pipeline, tensor.elements) * sizeof(float)});
        }
    }
    return table;
}

Status HostedJob::lay_out_state() {
    has_host_state_ =
        surroundings_.config->gpu_state == "host" &&
        std::any_of(tensors_.begin(), tensors_.end(), [](const auto& tensor) { return tensor.on_device; });
    auto table = state_table();
    const bool has_arrays = std::any_of(table.tensors.begin(), table.tensors.end(),
                                        [](const auto& tensor) { return !tensor.arrays.empty(); });
    take_up_state(table);
    GRADSIEVE_TRY(take_wishes(surroundings_.wishes));
    if (has_arrays) {
        offer_snapshots(table);
        offer_pinned(table);
    }
    for (const auto& group : groups_)
        offer_.is_stateless.push_back(std::all_of(group.tensors.begin(), group.tensors.end(),
                                                  [&](auto number) { return table.tensors[number].arrays.empty(); }));
    machine_.offer_state(offer_);
    if (!has_arrays) return {};
    if (!state_) {
        const auto gpus = std::max(kGpusLikely, surroundings_.gpus == nullptr ? 0 : surroundings_.gpus->device_count());
        GRADSIEVE_ASSIGN(const auto layout, shm::lay_out_state(table, gpus));
        GRADSIEVE_TRY(surroundings_.budget->take(layout.segment_bytes, "the job's residual and variance"));
        state_bytes_ = layout.segment_bytes;
        GRADSIEVE_ASSIGN(state_, shm::StateSegment::make("gradsieve-state:" + key().name, std::move(table), gpus));
        if (can_keep_state()) park(parked_name(key()), state_->fd());
    }
    for (auto& tensor : tensors_)
        for (const auto& array : state_->table().tensors[tensor.number].arrays)
            for (std::size_t index = 0; index < 2 && !is_on_devices(array); ++index)
                if (auto& generation = tensor.generations[index]; array.name == kSteeringName)
                    generation.steering = reinterpret_cast<std::byte*>(state_->values(array, index));
                else
                    generation.arrays.*codec::find_state_array(array.name)->values = state_->values(array, index);
    return {};
}

/// The state of an earlier life, if there is one and it fits; else it is given up, and status says why.
void HostedJob::take_up_state(const shm::StateTable& wanted) {
    offer_.steps.resize(groups_.size());
    if (surroundings_.kept == nullptr) return;
    auto kept = surroundings_.kept->take(key());
    if (!kept) return;
    if (const auto text = difference(kept->segment.table(), wanted); !text.empty()) {
        note_lost_state("kept state does not fit this run: " + text);
        surroundings_.kept->end(key(), std::move(*kept));
        return;
    }
    state_ = std::move(kept->segment);
    parts_ = std::move(kept->parts);
    state_bytes_ = state_->size_bytes();
    was_taken_up_ = true;
    offer_.ranks = state_->ranks();
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        const auto steps = state_->steps(group);
        for (const auto step : {steps.newest, steps.older})
            if (const auto epoch = kept_epoch(*state_, static_cast<std::uint32_t>(group), step); step > 0 && epoch)
                offer_.steps[group].add(step, *epoch);
    }
}

void HostedJob::park(const std::string& name, int fd) {
    if (const auto status = park_descriptor(name, fd); !status.is_ok())
        surroundings_.log->warning(status.text(), {.job = key().name});
}

bool HostedJob::can_keep_state() const {
    return surroundings_.kept != nullptr && surroundings_.config->keep_state_for > Duration{};
}

void HostedJob::note_lost_state(const std::string& text) {
    state_text_ = text;
    surroundings_.log->warning("state is lost: " + text, {.job = key().name});
    surroundings_.kept->note_lost(key().name, text, SteadyClock().now());
}

/// All nodes have agreed on where each group goes on.
Status HostedJob::begin_from(const exchange::StartJob& start) {
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group) {
        const auto step = start.first_steps[group] - 1;
        groups_[group].committed = step;
        groups_[group].ended = step;
        groups_[group].resumed = step;
        const auto name = groups_[group].name.empty() ? std::string() : "group '" + groups_[group].name + "': ";
        if (step > 0)
            surroundings_.log->info(name + "state goes on from step " + std::to_string(step), {.job = key().name});
        if (!start.lost_reasons[group].empty()) note_lost_state(name + start.lost_reasons[group]);
        if (!state_) continue;
        const auto steps = state_->steps(group);
        const bool is_named = start.named_steps[group] > 0;
        const auto named = is_named ? named_.find({group, step}) : named_.end();
        if (named == named_.end() && step > 0 && (step == steps.newest || step == steps.older)) {
            state_->roll_back(group, step);
            groups_[group].origin = StateOrigin::kMemory;
            continue;
        }
        if (step > 0 && steps.newest > 0 && !is_named)
            note_lost_state(name + "this node kept it up to step " + std::to_string(steps.newest) +
                            ", all nodes have only the snapshot of step " + std::to_string(step));
        if (was_taken_up_) GRADSIEVE_TRY(state_->clear(group));
        if (step == 0) continue;
        groups_[group].origin = StateOrigin::kSnapshot;
        if (!named_.contains({group, step}) && !snapshots_.contains({group, step})) continue;  // nothing is kept of it
        load_snapshot(group, named != named_.end() ? named->second : snapshots_.at({group, step}));
    }
    if (!state_) return {};
    give_up_abandoned(start);
    for (const auto& member : start.members)
        if (member.peer == surroundings_.config->self) state_->set_ranks(member.ranks);
    take_over_generations();
    return {};
}

void HostedJob::take_over_generations() {
    for (auto& tensor : tensors_)
        for (std::size_t index = 0; index < 2; ++index) {
            const auto seen = state_->generation(tensor.number, index);
            auto& generation = tensor.generations[index];
            generation.stamp = seen.stamp;
            generation.is_valid = seen.is_valid;
            generation.scale = seen.scale;
        }
}

void HostedJob::invalidate(HostedTensor& tensor, std::size_t index) {
    tensor.generations[index].is_valid = false;
    if (state_) state_->invalidate(tensor.number, index);
}

void HostedJob::finish_generation(HostedTensor& tensor, std::size_t index, Step step, double scale) {
    auto& generation = tensor.generations[index];
    generation.stamp = step;
    generation.scale = scale;
    generation.is_valid = true;
    if (state_) state_->finish(tensor.number, index, step, scale);
}

std::string HostedJob::left_text() const {
    if (!left_open_) return "all ranks detached";
    return "all ranks detached with step " + std::to_string(*left_open_) + " open: its state is kept";
}

/// All ranks are done with the job: nobody goes on from here.
void HostedJob::forget_state() {
    if (!state_) return;
    for (std::size_t group = 0; group < groups_.size(); ++group) state_->commit(group, 0);
    if (!can_keep_state()) return;
    unpark(key(), *state_);
    if (surroundings_.snapshots != nullptr) remove_snapshots(surroundings_.config->state_directory, key(), 0);
}

void HostedJob::give_up_state(TimePoint now) {
    if (!state_) return;
    if (end_status_.code() == StatusCode::kMismatch)
        drop_common_state(*state_, surroundings_.config->state_directory, key());
    KeptState state{std::move(*state_), std::exchange(parts_, {})};
    state_.reset();
    state_bytes_ = 0;
    if (can_keep_state() && state.segment.has_committed())
        return surroundings_.kept->keep(std::move(state),
                                        !is_ended_            ? "its ranks left before it began"
                                        : end_status_.is_ok() ? left_text()
                                                              : end_status_.text(),
                                        now);
    if (surroundings_.kept != nullptr) return surroundings_.kept->end(key(), std::move(state));
    surroundings_.budget->give_back(state.segment.size_bytes());
    if (state.segment.placement())
        give_back(surroundings_.gpus->ledger(), claims_of(*state.segment.placement(), state.parts.ordinals));
}

}  // namespace gradsieve::daemon
