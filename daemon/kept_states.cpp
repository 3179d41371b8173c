#include "daemon/kept_states.hpp"

#include "daemon/hosted_job.hpp"
#include "daemon/service.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::daemon {

namespace {

constexpr std::string_view kParkedPrefix = "gradsieve-state-";
constexpr std::size_t kLostKept = 16;

exchange::JobKey key_of(const shm::StateSegment& state) { return {state.table().job_name, state.table().run_id}; }

}  // namespace

std::string parked_name(const exchange::JobKey& key, std::uint32_t part) {
    return fmt::format("{}{:016x}-{}", kParkedPrefix, exchange::job_hash(key), part);
}

bool is_parked_name(std::string_view name) { return name.starts_with(kParkedPrefix); }

void KeptStates::adopt(std::vector<HandedDescriptor> handed, TimePoint now) {
    now_ = now;
    for (auto& descriptor : handed) {
        const auto status = adopt_one(descriptor, now);
        if (status.is_ok()) continue;
        log_.warning("parked descriptor '" + descriptor.name + "': " + status.text(), {});
        note_lost(descriptor.name, status.text(), now);
        unpark_descriptor(descriptor.name);
    }
}

Status KeptStates::adopt_one(HandedDescriptor& handed, TimePoint now) {
    if (kept_.size() >= kKeptStatesLimit)
        return {StatusCode::kResourceExhausted, fmt::format("{} states are kept already: allowed are {}; it is dropped",
                                                            kept_.size(), kKeptStatesLimit)};
    GRADSIEVE_ASSIGN(auto state, shm::StateSegment::adopt(std::move(handed.fd)));
    const auto key = key_of(state);
    if (parked_name(key) != handed.name)
        return shm::corrupt_state("state of job '" + key.name + "' under this name", "'" + parked_name(key) + "'");
    if (owner_of(key)) return shm::corrupt_state("a second state of job '" + key.name + "'", "one for each run");
    if (!state.has_committed())
        return {StatusCode::kFailedPrecondition,
                "kept state of job '" + key.name + "': no step was committed: it is dropped, nothing is lost"};
    GRADSIEVE_TRY(budget_.take(state.size_bytes(), "the kept state of job '" + key.name + "'"));
    log_.info("state found again: " + std::to_string(state.size_bytes()) + " bytes", {.job = key.name});
    kept_.push_back({std::move(state), "the daemon before this one ended", now});
    return {};
}

void KeptStates::keep(shm::StateSegment state, std::string why, TimePoint now) {
    now_ = now;
    while (kept_.size() >= kKeptStatesLimit) drop_oldest("more than " + std::to_string(kKeptStatesLimit) + " are kept");
    const auto key = key_of(state);
    log_.info("state is kept: " + why, {.job = key.name});
    kept_.push_back({std::move(state), std::move(why), now});
}

std::optional<shm::StateSegment> KeptStates::take(const exchange::JobKey& key) {
    const auto place =
        std::find_if(kept_.begin(), kept_.end(), [&](const KeptJob& kept) { return key_of(kept.state) == key; });
    if (place == kept_.end()) return std::nullopt;
    auto state = std::move(place->state);
    kept_.erase(place);
    return state;
}

std::optional<std::uint32_t> KeptStates::owner_of(const exchange::JobKey& key) const {
    for (const auto& kept : kept_)
        if (key_of(kept.state) == key) return kept.state.table().owner;
    return std::nullopt;
}

void KeptStates::drop(std::deque<KeptJob>::iterator place, const std::string& why) {
    const auto key = key_of(place->state);
    log_.warning("kept state is dropped: " + why, {.job = key.name});
    note_lost(key.name, why, now_);
    unpark_descriptor(parked_name(key));
    budget_.give_back(place->state.size_bytes());
    kept_.erase(place);
}

bool KeptStates::drop_oldest(const std::string& why) {
    if (kept_.empty()) return false;
    drop(kept_.begin(), why);
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
