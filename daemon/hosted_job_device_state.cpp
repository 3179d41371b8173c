// The part of a job's state that lies on GPUs: which memory it gets or takes up again when the first rank binds, what
// goes into it, and who keeps it. docs/decisions/0009-state-on-gpus.md.
#include "codec/state_arrays.hpp"
#include "daemon/gpu_pool.hpp"
#include "daemon/hosted_job.hpp"
#include "daemon/service.hpp"

#include <fcntl.h>
#include <algorithm>

namespace gradsieve::daemon {

namespace {

/// What a service manager takes to let go of memory that was given up, and more.
constexpr Duration kRoomWithin = std::chrono::seconds(3);
constexpr Duration kRoomRetry = std::chrono::milliseconds(50);

template <typename Function>
void for_each_range(const std::vector<shm::StatePiece>& pieces, Function function) {
    for (const auto& piece : pieces)
        for (std::size_t array = 0; array < piece.offset_bytes.size(); ++array)
            for (std::size_t generation = 0; generation < 2; ++generation)
                if (piece.elements > 0 && piece.offset_bytes[array][generation] > 0)  // 0: on the host
                    function(piece, array, generation,
                             StateRange{piece.part, piece.offset_bytes[array][generation], piece.elements});
}

/// Old and new ranges of one array in one generation, cut where either ends.
void add_moves(const std::vector<shm::StatePiece>& from, const std::vector<shm::StatePiece>& to,
               std::vector<GpuStateSetup::Move>& ret_moves) {
    for_each_range(from, [&](const auto& piece, std::size_t array, std::size_t generation, StateRange range) {
        for (const auto& wanted : to) {
            const auto first = std::max(piece.first, wanted.first);
            const auto end = std::min(piece.first + piece.elements, wanted.first + wanted.elements);
            if (first >= end) continue;
            const auto part_of = [&](const shm::StatePiece& whole, std::uint64_t offset) {
                return StateRange{whole.part, offset + (first - whole.first) * sizeof(float), end - first};
            };
            ret_moves.push_back(
                {part_of(piece, range.offset_bytes), part_of(wanted, wanted.offset_bytes[array][generation])});
        }
    });
}

}  // namespace

shm::StatePlacement HostedJob::wanted_placement() const {
    std::vector<std::string> gpus;
    for (const auto& device : gpu_->devices()) gpus.push_back(device.uuid);
    std::vector<std::vector<codec::cuda::DeviceRange>> ranges;
    for (const auto& tensor : tensors_) ranges.push_back(tensor.gpu_ranges);
    return place_on_devices(state_->table(), gpus, ranges, surroundings_.epoch_seed);
}

/// Kept states make room, if that can help at all.
Status HostedJob::take_gpu_memory(std::span<const GpuClaim> claims) {
    const auto limit = surroundings_.config->gpu_memory_limit_bytes;
    while (true) {
        auto status = surroundings_.gpus->ledger().take_state(claims, limit);
        const bool fits_alone =
            std::ranges::all_of(claims, [&](const auto& claim) { return limit == 0 || claim.bytes <= limit; });
        if (status.is_ok() || !fits_alone || !make_gpu_room(claims)) return status;
    }
}

bool HostedJob::make_gpu_room(std::span<const GpuClaim> claims) {
    std::vector<int> ordinals;
    for (const auto& claim : claims) ordinals.push_back(claim.device);
    return surroundings_.kept != nullptr &&
           surroundings_.kept->drop_oldest_on(ordinals, "its GPU memory is needed for a job that runs");
}

/// The lowest local rank brings the state along, once.
Status HostedJob::bring_state(GpuBindTask& task) {
    task.brings_state = true;
    if (has_host_state_ && !host_state_) {
        task.host_state_fd = UniqueFd(::fcntl(state_->fd(), F_DUPFD_CLOEXEC, 3));
        task.host_state_bytes = state_->size_bytes();
    }
    if (!state_ || !state_->has_device_arrays()) return {};
    auto setup = std::make_unique<GpuStateSetup>();
    setup->placement = wanted_placement();
    for (const auto& device : gpu_->devices()) setup->ordinals.push_back(device.ordinal);
    const auto& old = state_->placement();
    if (old && old->is_laid_out_like(setup->placement)) {
        setup->placement = *old;
        GRADSIEVE_ASSIGN(setup->descriptors, duplicates_of(parts_.descriptors));
    } else {
        if (old) {
            setup->source = {*old, parts_.ordinals, {}};
            GRADSIEVE_ASSIGN(setup->source->descriptors, duplicates_of(parts_.descriptors));
        }
        GRADSIEVE_TRY(take_gpu_memory(claims_of(setup->placement, setup->ordinals)));
        setup->is_new = true;
    }
    add_contents(*setup);
    task.state = std::move(setup);
    return {};
}

/// What each group begins with: what was kept, a snapshot, or zeros.
void HostedJob::add_contents(GpuStateSetup& inout_setup) const {
    const auto& wanted = inout_setup.placement.tensors;
    for (const auto& tensor : tensors_) {
        const auto& pieces = wanted[tensor.number];
        const auto origin = groups_[tensor.group].origin;
        if (inout_setup.source && origin == StateOrigin::kMemory)
            add_moves(inout_setup.source->placement.tensors[tensor.number], pieces, inout_setup.moves);
        if (!inout_setup.is_new && origin == StateOrigin::kAnew)
            for_each_range(pieces, [&](const auto&, std::size_t, std::size_t, const StateRange& range) {
                inout_setup.zeros.push_back(range);
            });
    }
    for (const auto& [group, task] : loaded_) {
        std::size_t first_array = 0;
        for (const auto number : groups_[group].tensors) {
            const auto& table = state_->table().tensors[number];
            for_each_range(wanted[number],
                           [&](const auto& piece, std::size_t array, std::size_t generation, const StateRange& range) {
                               if (generation != 0) return;
                               const std::span<const float> values(task->copies[first_array + array]);
                               inout_setup.fills.push_back({range, values.subspan(piece.first, piece.elements)});
                           });
            first_array += table.arrays.size();
        }
    }
}

/// True: the task is tried again, since memory that was given up for it may be free by then.
bool HostedJob::retries(std::unique_ptr<GpuBindTask>& inout_task, const Session& session, TimePoint now) {
    auto& task = *inout_task;
    if (task.status.code() != StatusCode::kResourceExhausted || !task.state || !task.state->is_new || is_ended_ ||
        session.is_gone)
        return false;
    if (make_gpu_room(claims_of(task.state->placement, task.state->ordinals))) room_until_ = now + kRoomWithin;
    if (now >= room_until_) return false;
    retry_at_ = now + kRoomRetry;
    task.status = {};
    retried_ = std::move(inout_task);
    return true;
}

void HostedJob::retry_bind(TimePoint now) {
    if (!retried_ || (now < retry_at_ && !is_ended_)) return;
    gpu_->give({.bind = std::move(retried_)});
}

/// The GPUs' thread has done with what `bring_state` asked for.
Status HostedJob::take_over_state(GpuBindTask& task) {
    if (task.host_state) host_state_ = std::exchange(task.host_state, std::nullopt);
    if (!task.status.is_ok()) {
        if (task.state) on_state_failed(*task.state, task.status);
        return task.status;
    }
    if (task.state) GRADSIEVE_TRY(take_over_parts(*task.state));
    while (!loaded_.empty()) finish_loaded(loaded_.begin()->first);
    for (auto& tensor : tensors_) {
        if (!tensor.on_device) continue;
        tensor.gpu = gpu_;
        tensor.gpu_states.resize(tensor.gpu_ranges.size());
        if (host_state_)
            place_host_state(tensor);
        else if (state_ && is_on_devices(state_->table().tensors[tensor.number]))
            place_state(tensor);
    }
    return {};
}

Status HostedJob::take_over_parts(GpuStateSetup& setup) {
    gpu_memory_ = std::move(setup.memory);
    if (!setup.is_new) return {};
    if (const auto& old = state_->placement(); old) {
        surroundings_.log->info(
            "state on " + std::to_string(old->parts.size()) + " GPUs goes over to GPUs " + gpu_->names(),
            {.job = key().name});
        forget_parts();
    }
    parts_ = {std::move(setup.descriptors), setup.ordinals};
    // Parked before the table names them: a kill in between leaves descriptors that no table needs.
    for (std::size_t place = 0; can_keep_state() && place < parts_.descriptors.size(); ++place)
        park(parked_name(key(), setup.placement, place), parts_.descriptors[place].get());
    auto status = state_->place(setup.placement);
    if (!status.is_ok()) {
        unpark_parts(key(), setup.placement);
        give_back(surroundings_.gpus->ledger(), claims_of(setup.placement, parts_.ordinals));
        parts_ = {};
    }
    return status;
}

/// What lies on GPUs is no more.
void HostedJob::forget_parts() {
    if (!state_ || !state_->placement()) return;
    const auto old = *state_->placement();
    state_->displace();
    unpark_parts(key(), old);
    give_back(surroundings_.gpus->ledger(), claims_of(old, parts_.ordinals));
    parts_ = {};
}

/// Memory that could not be had is an error of the binding. Memory that was kept and is not there after all ends the
/// job, since the nodes have agreed to go on from it; its next run begins anew.
void HostedJob::on_state_failed(const GpuStateSetup& setup, const Status& status) {
    if (setup.is_new) give_back(surroundings_.gpus->ledger(), claims_of(setup.placement, setup.ordinals));
    const bool is_kept_lost = (!setup.is_new || setup.source) && status.code() != StatusCode::kResourceExhausted;
    if (!is_kept_lost) return;
    note_lost_state(status.text());
    for (exchange::GroupNumber group = 0; group < groups_.size(); ++group)
        if (state_->has_device_arrays(group)) state_->commit(group, 0);
    forget_parts();
    if (!is_ended_ && !sessions_.empty())
        machine_.on_rank_left(sessions_.begin()->first, false, status.text(), SteadyClock().now());
}

void HostedJob::place_state(HostedTensor& tensor) const {
    const auto& table = state_->table().tensors[tensor.number];
    const auto& pieces = state_->placement()->tensors[tensor.number];
    for (std::size_t device = 0; device < pieces.size(); ++device)
        for (std::size_t generation = 0; generation < 2; ++generation) {
            auto view = tensor.generations[generation].arrays;  // what of them is on the host
            for (std::size_t array = 0; array < table.arrays.size(); ++array) {
                if (!is_on_devices(table.arrays[array])) continue;
                const auto offset = pieces[device].offset_bytes[array][generation];
                auto* const values = gpu_memory_[pieces[device].part].as<float>(offset);
                view.*codec::find_state_array(table.arrays[array].name)->values = values;
            }
            if (tensor.gpu_ranges.empty())
                tensor.generations[generation].arrays = view;
            else
                tensor.gpu_states[device][generation] = view;
        }
}

/// In the job's segment, at the addresses under which GPUs see it; what only the host reads where it is.
void HostedJob::place_host_state(HostedTensor& tensor) const {
    std::array<codec::StateView, 2> whole;
    for (const auto& array : state_->table().tensors[tensor.number].arrays)
        for (std::size_t generation = 0; generation < whole.size() && array.name != kSteeringName; ++generation) {
            const auto& known = *codec::find_state_array(array.name);
            auto* const values = reinterpret_cast<float*>(host_state_->data() + array.offset_bytes[generation]);
            whole[generation].*known.values =
                known.size == nullptr ? values : tensor.generations[generation].arrays.*known.values;
        }
    for (std::size_t generation = 0; generation < whole.size(); ++generation) {
        tensor.generations[generation].arrays = whole[generation];
        for (std::size_t device = 0; device < tensor.gpu_ranges.size(); ++device)
            tensor.gpu_states[device][generation] =
                codec::state_from(whole[generation], tensor.gpu_ranges[device].first);
    }
}

void HostedJob::release_gpu_state() {
    if (!host_state_ && gpu_memory_.empty()) return;
    auto task = std::make_unique<GpuReleaseTask>();
    task->host_state = std::exchange(host_state_, std::nullopt);
    task->state = std::exchange(gpu_memory_, {});
    gpu_->give({.release = std::move(task)});
}

}  // namespace gradsieve::daemon
