// The simulated ranks, network and faults. One thread; a test owns it.
#include "tests/exchange/sim.hpp"

#include <algorithm>

namespace gradsieve::exchange {

JobSpec make_spec(std::uint32_t world_size, std::uint32_t tensors, std::uint32_t groups, std::uint8_t policy) {
    JobSpec spec{.world_size = world_size, .non_finite_policy = policy, .codec = "all | f32", .tensors = {}};
    for (std::uint32_t tensor = 0; tensor < tensors; ++tensor)
        spec.tensors.push_back({.name = "t" + std::string(1, static_cast<char>('a' + tensor)),
                                .group = groups > 1 ? "g" + std::to_string(tensor % groups) : "",
                                .shape = {4, kTileElements},
                                .rule = "f32"});
    return spec;
}

JobSpec make_phased_spec(std::uint32_t world_size, std::uint32_t tensors, std::uint32_t groups, std::uint8_t policy) {
    auto spec = make_spec(world_size, tensors, groups, policy);
    for (std::uint32_t tensor = 1; tensor < tensors; tensor += 2) spec.tensors[tensor].phases = 2;
    return spec;
}

JobSpec make_sharded_spec(std::uint32_t world_size, std::uint32_t tensors, std::uint32_t groups, std::uint8_t policy) {
    auto spec = make_phased_spec(world_size, tensors, groups, policy);
    for (std::uint32_t tensor = 2; tensor < tensors; tensor += 4) {
        spec.tensors[tensor].phases = 2;
        spec.tensors[tensor].shape = {2 * kChunkElements + kTileElements};
    }
    for (auto& tensor : spec.tensors) tensor.is_sharded = tensor.phases == 2;
    return spec;
}

Sim::Sim(SimOptions options) : options_(std::move(options)), random_(options_.seed) {
    nodes_.resize(options_.ranks.size());
    std::set<std::string> names;
    for (const auto& tensor : options_.spec.tensors) names.insert(tensor.group);
    group_names_.assign(names.begin(), names.end());
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        nodes_[index].ranks = options_.ranks[index];
        push(
            Duration(1), [this, index] { tick(index); }, true);
        for (std::size_t other = index + 1; other < nodes_.size(); ++other) links_[{index, other}] = LinkState::kUp;
    }
}

// ---- events ----

void Sim::push(Duration after, std::function<void()> run, bool is_tick) {
    if (!is_tick) ++busy_events_;
    events_.push({now_ + after, next_number_++, is_tick, std::move(run)});
}

void Sim::step_event() {
    const Event event = events_.top();
    events_.pop();
    if (!event.is_tick) --busy_events_;
    now_ = std::max(now_, event.at);
    event.run();
}

void Sim::at(Duration from_start, std::function<void()> event) { push(from_start, std::move(event)); }

void Sim::run_for(Duration duration) {
    const auto until = now_ + duration;
    while (!events_.empty() && events_.top().at <= until) step_event();
    now_ = until;
}

void Sim::run_quiet(Duration limit) {
    const auto until = now_ + limit;
    while (busy_events_ > 0 && events_.top().at <= until) step_event();
}

bool Sim::run_until_done(Duration limit) {
    const auto until = now_ + limit;
    const auto is_done = [this] {
        return std::ranges::all_of(trainers_,
                                   [this](const auto& entry) {
                                       const auto& [rank, trainer] = entry;
                                       return trainer.is_done || !nodes_[node_of(rank)].is_alive;
                                   }) &&
               std::ranges::all_of(nodes_,
                                   [](const Node& node) { return !node.is_alive || !node.machine || node.end; });
    };
    while (!is_done()) {
        if (events_.empty() || events_.top().at > until) return false;
        step_event();
    }
    return true;
}

void Sim::tick(std::size_t index) {
    auto& node = nodes_[index];
    if (node.is_alive && node.machine) {
        node.machine->on_time(now_);
        pump(index);
    }
    push(
        std::chrono::milliseconds(50), [this, index] { tick(index); }, true);
}

Duration Sim::random_delay() {
    const auto span = (options_.delay_most - options_.delay_least).count();
    return options_.delay_least +
           Duration(span == 0 ? 0 : static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(span)));
}

// ---- ranks ----

std::size_t Sim::node_of(Rank rank) const {
    for (std::size_t index = 0; index < nodes_.size(); ++index)
        if (std::ranges::find(nodes_[index].ranks, rank) != nodes_[index].ranks.end()) return index;
    return 0;
}

void Sim::create(std::size_t index) {
    std::vector<NodeName> names;
    for (std::size_t node = 0; node < nodes_.size(); ++node)
        names.push_back(
            {.name = std::string(1, static_cast<char>('a' + node)), .address = "10.0.0." + std::to_string(node + 1)});
    nodes_[index].machine.emplace(key_, static_cast<PeerIndex>(index), names, options_.times, options_.limits,
                                  options_.seed * 131 + index + nodes_[index].instance * 7);
    nodes_[index].machine->ask_for_answers(options_.asks_for_answers && index % 2 == 0);
    if (const auto found = kept.find(index); found != kept.end()) nodes_[index].machine->offer_state(found->second);
    for (std::size_t other = 0; other < nodes_.size(); ++other) {
        if (other == index) continue;
        const auto state = links_[std::minmax(index, other)];
        nodes_[index].machine->on_link(static_cast<PeerIndex>(other), state, nodes_[other].instance, "", now_);
    }
}

Status Sim::attach(Rank rank) { return attach(node_of(rank), rank, options_.spec); }

Status Sim::attach(std::size_t index, Rank rank, const JobSpec& spec) {
    if (!nodes_[index].machine) create(index);
    const auto status = nodes_[index].machine->on_rank_attached(rank, spec, now_);
    pump(index);
    return status;
}

void Sim::attach_all() {
    for (const auto& node : options_.ranks)
        for (const auto rank : node)
            if (const auto status = attach(rank); !status.is_ok()) violation("attach: " + status.to_string());
    run_quiet();
}

Status Sim::submit(Rank rank, TensorNumber tensor, Step step) {
    const auto status = machine_of(rank).on_submitted(rank, tensor, step, now_);
    pump(node_of(rank));
    return status;
}

void Sim::submit_all(Step step) {
    for (const auto& node : options_.ranks)
        for (const auto rank : node)
            for (TensorNumber tensor = 0; tensor < options_.spec.tensors.size(); ++tensor)
                if (const auto status = submit(rank, tensor, step); !status.is_ok())
                    violation("submit: " + status.to_string());
}

void Sim::leave(Rank rank, bool is_clean, const std::string& text) {
    auto& node = nodes_[node_of(rank)];
    if (!node.machine || !node.is_alive) return;
    node.machine->on_rank_left(rank, is_clean, text, now_);
    if (trainers_.contains(rank)) trainers_[rank].is_done = true;
    pump(node_of(rank));
}

void Sim::train(Step steps, Duration pause_most) {
    steps_ = steps;
    pause_most_ = pause_most;
    for (const auto& ranks : options_.ranks)
        for (const auto rank : ranks) {
            trainers_[rank].is_training = true;
            push(random_delay(), [this, rank] {
                if (!nodes_[node_of(rank)].is_alive) return;
                if (const auto status = attach(rank); !status.is_ok()) end_rank(rank, status);
            });
        }
}

GroupNumber Sim::group_of(TensorNumber tensor) const {
    const auto& name = options_.spec.tensors[tensor].group;
    return static_cast<GroupNumber>(std::ranges::find(group_names_, name) - group_names_.begin());
}

std::vector<TensorNumber> Sim::tensors_of(GroupNumber group) const {
    std::vector<TensorNumber> tensors;
    for (TensorNumber tensor = 0; tensor < options_.spec.tensors.size(); ++tensor)
        if (group_of(tensor) == group) tensors.push_back(tensor);
    return tensors;
}

void Sim::begin_step(Rank rank, GroupNumber group) {
    auto& trainer = trainers_[rank];
    if (trainer.is_done || !nodes_[node_of(rank)].is_alive) return;
    if (trainer.error) return end_rank(rank, *trainer.error);
    const auto step = ++trainer.step[group];
    if (step > steps_) return train_on(rank);
    auto order = tensors_of(group);
    std::ranges::shuffle(order, random_);
    trainer.open[group] = {order.begin(), order.end()};
    for (const auto tensor : order) {
        push(random_delay() / 4, [this, rank, tensor, step] {
            auto& mine = trainers_[rank];
            if (mine.is_done || !nodes_[node_of(rank)].is_alive || mine.step[group_of(tensor)] != step) return;
            if (mine.error) return take_result(rank, tensor, *mine.error);
            if (!mine.open[group_of(tensor)].contains(tensor)) return;  // answered by an abort already
            if (const auto status = submit(rank, tensor, step); !status.is_ok()) take_result(rank, tensor, status);
        });
    }
}

/// All groups of this rank are through: it detaches.
void Sim::train_on(Rank rank) {
    auto& trainer = trainers_[rank];
    for (GroupNumber group = 0; group < group_names_.size(); ++group)
        if (trainer.step[group] <= steps_) return;
    trainer.is_done = true;
    leave(rank, true);
}

void Sim::take_result(Rank rank, TensorNumber tensor, const Status& status) {
    auto& trainer = trainers_[rank];
    if (!trainer.is_training || trainer.is_done) return;
    const auto group = group_of(tensor);
    const bool was_open = trainer.open[group].erase(tensor) > 0;
    if (!status.is_ok() && status.code() != StatusCode::kNonFinite && !trainer.error) trainer.error = status;
    if (trainer.error) return end_rank(rank, *trainer.error);
    if (!was_open || !trainer.open[group].empty()) return;
    const auto pause =
        pause_most_.count() == 0
            ? Duration(0)
            : Duration(static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(pause_most_.count())));
    push(pause, [this, rank, group] { begin_step(rank, group); });
}

/// An error is final for a training process: once nothing is open any more it reports it and leaves in order.
void Sim::end_rank(Rank rank, const Status& status) {
    auto& trainer = trainers_[rank];
    if (!trainer.is_training || trainer.is_done) return;
    if (!trainer.error) trainer.error = status;
    const auto& node = nodes_[node_of(rank)];
    const auto is_empty = [](const auto& entry) { return entry.second.empty(); };
    if (!node.end && node.machine && !std::ranges::all_of(trainer.open, is_empty)) return;
    trainer.is_done = true;
    push(Duration(0), [this, rank] { leave(rank, true); });
}

// ---- faults ----

void Sim::set_link(std::size_t a, std::size_t b, LinkState state) {
    const auto pair = std::minmax(a, b);
    if (links_[pair] == state) return;
    links_[pair] = state;
    ++link_lives_[pair];
    for (const auto& [self, other] : {std::pair(a, b), std::pair(b, a)}) {
        if (!nodes_[self].is_alive || !nodes_[self].machine) continue;
        nodes_[self].machine->on_link(static_cast<PeerIndex>(other), state, nodes_[other].instance,
                                      state == LinkState::kUp ? "" : "connection closed", now_);
        pump(self);
    }
}

void Sim::kill(std::size_t index) {
    nodes_[index].is_alive = false;
    nodes_[index].machine.reset();
    for (std::size_t other = 0; other < nodes_.size(); ++other)
        if (other != index) set_link(index, other, LinkState::kClosed);
}

void Sim::restart(std::size_t index) {
    kill(index);
    ++nodes_[index].instance;
    push(std::chrono::milliseconds(300), [this, index] {
        for (std::size_t other = 0; other < nodes_.size(); ++other)
            if (other != index && nodes_[other].is_alive) set_link(index, other, LinkState::kUp);
    });
}

void Sim::violation(const std::string& text) {
    violations_.push_back("seed " + std::to_string(options_.seed) + ": " + text);
}

std::string Sim::text() const {
    std::string text = "seed " + std::to_string(options_.seed) + "\n";
    for (const auto& entry : violations_) text += "  violation: " + entry + "\n";
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        const auto& node = nodes_[index];
        text += "  node " + std::string(1, static_cast<char>('a' + index)) + (node.is_alive ? "" : " (dead)");
        for (const auto& [group, step] : node.done)
            text += " done[" + std::to_string(group) + "]=" + std::to_string(step);
        for (const auto& [group, step] : node.committed)
            text += " committed[" + std::to_string(group) + "]=" + std::to_string(step);
        if (node.end) text += " ended: " + node.end->to_string();
        if (node.machine) {
            const auto shot = node.machine->snapshot(now_);
            text += " phase " + shot.phase + " refused " + std::to_string(shot.frames_refused) + " (" +
                    shot.last_refusal + ")";
            for (const auto& round : shot.open_rounds) {
                text += " open step " + std::to_string(round.step) + " ranks missing " +
                        std::to_string(round.ranks_not_submitted.size());
                for (const auto peer : round.peers_waited_for) text += " waits for " + std::to_string(peer);
            }
        }
        text += "\n";
    }
    for (const auto& [rank, trainer] : trainers_)
        text += "  rank " + std::to_string(rank) + (trainer.is_done ? " done " : " training ") +
                (trainer.error ? trainer.error->to_string() : "") + "\n";
    return text;
}

}  // namespace gradsieve::exchange
