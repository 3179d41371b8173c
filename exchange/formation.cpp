// Job formation. One thread; owned by JobMachine.
#include "exchange/formation.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

/// FNV-1a and mix64 over the specification's bytes.
std::uint64_t digest_of(const JobSpec& spec) {
    const auto bytes = build_job_spec(spec);
    return tensor_id({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Status check_spec(Rank rank, const JobSpec& spec) {
    const auto subject = "rank " + std::to_string(rank) + ": ";
    const auto bytes = build_job_spec(spec);
    if (const auto parsed = parse_job_spec(bytes); !parsed.is_ok())
        return Status(StatusCode::kInvalidArgument, parsed.error().text()).with_context("rank " + std::to_string(rank));
    if (rank < spec.world_size) return {};
    return {StatusCode::kInvalidArgument, subject + "world size " + std::to_string(spec.world_size) +
                                              ": allowed are ranks 0 to " + std::to_string(spec.world_size - 1) +
                                              ": give rank and world size of the launcher"};
}

bool is_partition(const std::vector<StartMember>& members, std::uint32_t world_size, std::size_t nodes) {
    std::set<Rank> ranks;
    std::set<PeerIndex> peers;
    std::optional<Rank> lowest;
    std::size_t count = 0;
    for (const auto& member : members) {
        if (member.ranks.empty() || member.peer >= nodes || !peers.insert(member.peer).second) return false;
        if (!std::ranges::is_sorted(member.ranks) || (lowest && *lowest >= member.ranks.front())) return false;
        lowest = member.ranks.front();
        count += member.ranks.size();
        ranks.insert(member.ranks.begin(), member.ranks.end());
    }
    return count == world_size && ranks.size() == world_size && *ranks.rbegin() == world_size - 1;
}

}  // namespace

Formation::Formation(JobContext& context) : context_(context), others_(context.nodes.size()) {}

Status Formation::attach(Rank rank, const JobSpec& spec) {
    GRADSIEVE_TRY(check_spec(rank, spec));
    if (ranks_.contains(rank))
        return {StatusCode::kAlreadyExists, "rank " + std::to_string(rank) + ": attached already on " +
                                                context_.node_text(context_.self) +
                                                ": each rank may attach once; end the other process"};
    if (ranks_.empty()) {
        context_.set_spec(spec);
    } else {
        const auto name = "rank " + std::to_string(*ranks_.begin());
        const auto text = first_difference(context_.spec, name, spec, "rank " + std::to_string(rank));
        if (!text.empty())
            return {StatusCode::kMismatch, text + ": all ranks must register the same; run the same program on all"};
    }
    ranks_.insert(rank);
    return {};
}

bool Formation::detach(Rank rank) { return ranks_.erase(rank) > 0; }

Step Formation::wanted_step(GroupNumber group) const {
    if (group < kept_.wanted.size() && kept_.wanted[group] > 0) return kept_.wanted[group];
    return group < adopted_.size() ? adopted_[group] : 0;
}

/// The residual is in the unit of these ranks' mean: others cannot go on from it. What is named counts alone, if it is
/// there; else all that is there is told, for the words of the refusal.
KeptSteps Formation::steps_to_announce(GroupNumber group) const {
    KeptSteps kept;
    if (std::ranges::equal(kept_.ranks, ranks_) && group < kept_.steps.size()) kept = kept_.steps[group];
    const auto wanted = wanted_step(group);
    if (wanted == 0) return kept;
    for (const auto& named : kept_.named) {
        if (named.group != group || !std::ranges::equal(named.ranks, ranks_)) continue;
        if (named.step == wanted) kept.remove(wanted);  // what is pinned is gone on from, whatever is in memory
        kept.add(named.step, named.epoch);
    }
    const bool is_stateless = group < kept_.is_stateless.size() && kept_.is_stateless[group];
    if (is_stateless) return {.steps = {wanted}};
    if (kept.has(wanted)) return {.steps = {wanted}, .epochs = {kept.epoch_of(wanted)}};
    if (kept.steps.size() > kKeptStepsLimit) kept.steps.resize(kKeptStepsLimit);
    return kept;
}

Prepared Formation::own() const {
    Prepared made{.key = context_.key,
                  .nonce = context_.nonce,
                  .sequence = sequence_,
                  .ranks = {ranks_.begin(), ranks_.end()},
                  .next_steps = {},
                  .kept_steps = {},
                  .spec = context_.spec};
    bool has_any = false;
    for (GroupNumber group = 0; group < context_.groups.size(); ++group) {
        made.next_steps.push_back(wanted_step(group) + 1);
        made.kept_steps.push_back(steps_to_announce(group));
        has_any = has_any || !made.kept_steps.back().steps.empty();
    }
    if (!has_any) made.kept_steps.clear();
    return made;
}

bool Formation::adopt(const Prepared& prepared) {
    bool is_news = false;
    adopted_.resize(context_.groups.size());
    for (GroupNumber group = 0; group < context_.groups.size() && group < prepared.next_steps.size(); ++group) {
        if (prepared.next_steps[group] == 1 || wanted_step(group) > 0) continue;
        adopted_[group] = prepared.next_steps[group] - 1;
        is_news = true;
    }
    return is_news;
}

void Formation::announce(PeerIndex to) {
    if (to == context_.self) return;
    ++sequence_;
    context_.send_announcement(to, FrameType::kPrepared, build_message(context_.hash, own()));
}

void Formation::announce_to_all(TimePoint now) {
    announced_at_ = now;
    for (PeerIndex peer = 0; peer < context_.nodes.size(); ++peer) announce(peer);
}

void Formation::on_time(TimePoint now) {
    if (!announced_at_ || now - *announced_at_ >= context_.times.announce_every) announce_to_all(now);
}

void Formation::on_prepared(PeerIndex from, Prepared prepared, TimePoint now) {
    auto& known = others_[from];
    lives_.emplace(from, prepared.nonce);
    if (known && known->prepared.nonce == prepared.nonce && known->prepared.sequence >= prepared.sequence) return;
    if (prepared.ranks.empty()) return forget(from);
    if (known && known->prepared.nonce != prepared.nonce) adopted_.clear();
    find_differences(from, prepared);
    const auto& ranks = prepared.ranks;
    if (context_.failure) return;
    if (std::ranges::adjacent_find(ranks, std::ranges::greater_equal()) != ranks.end() ||
        ranks.back() >= prepared.spec.world_size)
        return context_.refuse(from, "announcement of ranks that are not ascending or not in the job");
    const bool is_first = !known || known->prepared.nonce != prepared.nonce;
    const bool is_to_tell = adopt(prepared);
    known = Announced{.prepared = std::move(prepared), .at = now};
    if (is_to_tell) return announce_to_all(now);
    if (is_first) announce(from);  // it was not there when we announced ourselves
}

bool Formation::is_new_life(PeerIndex from, const Prepared& prepared) const {
    return !lives_.contains({from, prepared.nonce});
}

bool Formation::is_news(PeerIndex from, const Prepared& prepared) const {
    const auto& known = others_[from];
    return known && known->prepared.nonce == prepared.nonce && known->prepared.sequence < prepared.sequence;
}

void Formation::forget(PeerIndex peer) {
    others_[peer].reset();
    adopted_.clear();  // what it named went with it; who names it still announces it again
}

/// Every node compares every other with itself, so each one that differs from any finds a difference. The text is the
/// same on both sides: the lower node stands first.
void Formation::find_differences(PeerIndex from, const Prepared& prepared) {
    const auto low = std::min(context_.self, from);
    const auto high = std::max(context_.self, from);
    const auto& low_spec = low == from ? prepared.spec : context_.spec;
    const auto& high_spec = low == from ? context_.spec : prepared.spec;
    const auto text = first_difference(low_spec, context_.node_text(low), high_spec, context_.node_text(high));
    if (!text.empty())
        return context_.fail(StatusCode::kMismatch,
                             text + ": all ranks must register the same; run the same program on all nodes");
    const auto step_of = [&](PeerIndex peer, GroupNumber group) {
        return peer == from ? prepared.next_steps[group] - 1 : wanted_step(group);
    };
    for (GroupNumber group = 0; group < context_.groups.size() && group < prepared.next_steps.size(); ++group)
        if (step_of(low, group) != step_of(high, group) && step_of(low, group) > 0 && step_of(high, group) > 0)
            return context_.fail(StatusCode::kMismatch,
                                 "the step of group '" + context_.groups[group] + "' to go on from is named " +
                                     std::to_string(step_of(low, group)) + " on " + context_.node_text(low) + ", " +
                                     std::to_string(step_of(high, group)) + " on " + context_.node_text(high) +
                                     ": all must name one; load the same checkpoint on all ranks");
}

/// A rank may have moved to another node a moment ago: two nodes that keep announcing it are a mistake.
bool Formation::is_settled_duplicate(PeerIndex peer, TimePoint now) {
    if (!duplicate_since_) duplicate_since_ = now;
    const auto& other = others_[peer];
    return now - *duplicate_since_ >= 2 * context_.times.announce_every && other && other->at > *duplicate_since_;
}

std::optional<Start> Formation::try_start(TimePoint now) {
    std::map<Rank, PeerIndex> hosts;
    for (const auto rank : ranks_) hosts[rank] = context_.self;
    bool has_duplicate = false;
    for (PeerIndex peer = 0; peer < others_.size(); ++peer) {
        if (!others_[peer]) continue;
        for (const auto rank : others_[peer]->prepared.ranks) {
            const auto [host, is_new] = hosts.emplace(rank, peer);
            if (is_new) continue;
            has_duplicate = true;
            if (is_settled_duplicate(peer, now))
                context_.fail(StatusCode::kAlreadyExists,
                              "rank " + std::to_string(rank) + ": attached on " + context_.node_text(host->second) +
                                  " and on " + context_.node_text(peer) +
                                  ": each rank may attach once; check the launcher's node ranks");
        }
    }
    if (!has_duplicate) duplicate_since_.reset();
    const auto world_size = context_.spec.world_size;
    if (has_duplicate || context_.failure || !ranks_.contains(0) || hosts.size() != world_size) return std::nullopt;
    if (hosts.rbegin()->first != world_size - 1) return std::nullopt;
    Start start{
        .spec_digest = spec_digest(), .members = {}, .first_steps = std::vector<Step>(context_.groups.size(), 1)};
    start.members.push_back({.peer = context_.self, .nonce = context_.nonce, .ranks = {ranks_.begin(), ranks_.end()}});
    for (PeerIndex peer = 0; peer < others_.size(); ++peer)
        if (others_[peer])
            start.members.push_back(
                {.peer = peer, .nonce = others_[peer]->prepared.nonce, .ranks = others_[peer]->prepared.ranks});
    for (auto& member : start.members) std::ranges::sort(member.ranks);
    std::ranges::sort(start.members, {}, [](const StartMember& member) { return member.ranks.front(); });
    if (!can_go_on(start)) return std::nullopt;
    for (GroupNumber group = 0; group < start.first_steps.size(); ++group)
        start.first_steps[group] = first_step(start, group);
    return start;
}

bool Formation::can_go_on(const Start& start) {
    const auto mine = own();
    for (GroupNumber group = 0; group < mine.next_steps.size(); ++group) {
        const auto wanted = wanted_step(group);
        if (wanted == 0) continue;
        for (const auto& member : start.members) {
            const auto& theirs = member.peer == context_.self ? mine : others_[member.peer]->prepared;
            if (group >= theirs.next_steps.size() || theirs.next_steps[group] != wanted + 1) return false;
            const auto kept = group < theirs.kept_steps.size() ? theirs.kept_steps[group] : KeptSteps{};
            if (kept.has(wanted)) {
                const bool is_here = group < mine.kept_steps.size() && mine.kept_steps[group].has(wanted);
                if (!is_here || mine.kept_steps[group].has(wanted, kept.epoch_of(wanted))) continue;
                context_.fail(StatusCode::kFailedPrecondition,
                              context_.step_text(group, wanted) + " is named to go on from, and what " +
                                  context_.node_text(member.peer) + " has of it is of another run than what " +
                                  context_.node_text(context_.self) +
                                  " has: with delta all nodes must go on from one run; name a step that all have from "
                                  "one, or bring its files (gradsieve state load)");
                return false;
            }
            std::string has;
            for (const auto step : kept.steps) has += (has.empty() ? "" : ", ") + std::to_string(step);
            context_.fail(
                StatusCode::kNotFound,
                context_.step_text(group, wanted) + " is named to go on from, and " + context_.node_text(member.peer) +
                    " has no snapshot of it for the ranks that attached there: " +
                    (has.empty() ? "it has none" : "it has step " + has) +
                    ": every node must have it; name a step that all have, or bring its file (gradsieve state "
                    "list, load)");
            return false;
        }
    }
    return true;
}

const std::vector<KeptSteps>* Formation::kept_on(PeerIndex peer) const {
    return others_[peer] ? &others_[peer]->prepared.kept_steps : nullptr;
}

/// After the newest step that every member's state can go on from.
Step Formation::first_step(const Start& start, GroupNumber group) const {
    const auto ours = own().kept_steps;
    if (group >= ours.size()) return 1;
    const auto everybody_has = [&](Step step) {
        const auto epoch = ours[group].epoch_of(step);
        return ours[group].has(step) && std::ranges::all_of(start.members, [&](const StartMember& member) {
                   if (member.peer == context_.self) return true;
                   const auto* theirs = kept_on(member.peer);
                   return theirs != nullptr && group < theirs->size() && (*theirs)[group].has(step, epoch);
               });
    };
    const auto wanted = wanted_step(group);
    if (wanted > 0) return wanted + 1;
    const auto& steps = ours[group].steps;
    const auto common = std::ranges::find_if(steps, everybody_has);
    return common == steps.end() ? 1 : *common + 1;
}

std::string Formation::lost_reason(const Start& start, GroupNumber group) const {
    if (group >= kept_.steps.size() || kept_.steps[group].steps.empty() || start.first_steps[group] > 1) return {};
    const auto ours = "this node kept it up to step " + std::to_string(kept_.steps[group].newest());
    if (!std::ranges::equal(kept_.ranks, ranks_)) return ours + ", for other ranks than those that attached here now";
    for (const auto& member : start.members) {
        const auto* theirs = member.peer == context_.self ? nullptr : kept_on(member.peer);
        if (theirs == nullptr) continue;
        const auto name = context_.node_text(member.peer);
        if (group >= theirs->size() || (*theirs)[group].steps.empty()) return ours + ", " + name + " has none";
        const auto& steps = (*theirs)[group];
        const auto& kept = kept_.steps[group];
        if (std::ranges::none_of(kept.steps, [&](Step step) { return steps.has(step); }))
            return ours + ", " + name + " up to step " + std::to_string(steps.newest());
        if (std::ranges::none_of(kept.steps, [&](Step step) { return steps.has(step, kept.epoch_of(step)); }))
            return ours + ", " + name + " up to step " + std::to_string(steps.newest()) +
                   " of another run, and with delta all nodes must go on from one";
    }
    return ours + ", and not every node has a step in common with it";
}

Status Formation::check_start(const Start& start) const {
    const auto ours = own();
    if (!is_partition(start.members, context_.spec.world_size, context_.nodes.size()) ||
        start.first_steps.size() != ours.next_steps.size())
        return {StatusCode::kCorrupt, "start that does not cover the job's ranks and groups"};
    const auto mine = std::ranges::find(start.members, context_.self, &StartMember::peer);
    if (mine == start.members.end() || mine->nonce != context_.nonce)
        return {StatusCode::kCorrupt, "start for an earlier life of this job"};
    for (std::size_t group = 0; group < ours.next_steps.size(); ++group) {
        const auto first = start.first_steps[group];
        if (first != 1 && (first == 0 || group >= ours.kept_steps.size() || !ours.kept_steps[group].has(first - 1)))
            return {StatusCode::kCorrupt, "start from step " + std::to_string(first) + ", which " +
                                              context_.node_text(context_.self) + " has no state for"};
    }
    if (!std::ranges::equal(mine->ranks, ranks_) || start.spec_digest != spec_digest())
        return {StatusCode::kFailedPrecondition, "ranks on " + context_.node_text(context_.self) +
                                                     " changed while the job started: start the job again"};
    return {};
}

std::vector<Rank> Formation::missing_ranks() const {
    std::set<Rank> known = ranks_;
    for (const auto& other : others_)
        if (other) known.insert(other->prepared.ranks.begin(), other->prepared.ranks.end());
    std::vector<Rank> missing;
    for (Rank rank = 0; rank < context_.spec.world_size; ++rank)
        if (!known.contains(rank)) missing.push_back(rank);
    return missing;
}

std::uint64_t Formation::spec_digest() const { return digest_of(context_.spec); }

}  // namespace gradsieve::exchange
