// What the simulated nodes do when their machine asks for it, and the checks of every promise on the way. One thread; a
// test owns it.
#include "exchange/shards.hpp"
#include "tests/exchange/sim.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

std::uint64_t number_of(Rank rank, TensorNumber tensor, Step step) {
    return mix64(rank * 1000003ULL + tensor * 7919ULL + step * 104729ULL + 17) & 0xFFFFFFFFFFULL;
}

/// How a tensor's payload is cut: number of chunks, and which of them are left out as empty.
std::uint32_t chunks_of(TensorNumber tensor) { return tensor % 4 == 2 ? 3 : 1; }
bool is_left_out(std::uint32_t chunk, TensorNumber tensor, Step step) {
    return chunks_of(tensor) == 3 && (chunk + step) % 3 == 0;
}
bool is_empty_payload(TensorNumber tensor, Step step) { return tensor % 5 == 4 && step % 2 == 0; }

std::uint64_t add_chunk(std::uint64_t sum, std::uint32_t chunk, std::uint64_t value) {
    return mix64(sum * 31 + chunk) + value;  // depends on the order, as floating-point sums do
}

std::uint64_t twice_shard(const std::map<std::uint32_t, std::uint64_t>& shards, std::uint32_t chunk) {
    const auto found = shards.find(chunk);
    return 2 * (found == shards.end() ? 0 : found->second) + chunk;
}

}  // namespace

// ---- the codec: sums, with the answer known beforehand ----

std::vector<std::pair<std::uint32_t, SharedView>> Sim::encode(std::size_t index, const EncodeTensor& action) const {
    const auto tensor = action.tensor;
    const auto step = action.step;
    const auto& firsts = nodes_[index].first_phases;
    const auto found = firsts.find({tensor, step});
    const auto first_phase = action.phase == 0 || found == firsts.end() ? 0 : found->second;
    const bool is_shard = is_sharded(tensor) && action.phase == 1;
    const auto owners = shard_owners(options_.spec, nodes_[index].members.size());
    const auto own = std::ranges::find(nodes_[index].members, static_cast<PeerIndex>(index), &Member::peer);
    const auto place = static_cast<std::size_t>(own - nodes_[index].members.begin());
    std::vector<std::pair<std::uint32_t, SharedView>> chunks;
    if (is_empty_payload(tensor, step)) return chunks;
    for (std::uint32_t chunk = 0; chunk < chunks_of(tensor); ++chunk) {
        if (is_left_out(chunk, tensor, step) || (is_shard && owners[tensor][chunk] != place)) continue;
        std::uint64_t sum = first_phase;
        for (const auto rank : options_.ranks[index]) sum += number_of(rank, tensor, step) + chunk;
        if (is_shard) sum = twice_shard(nodes_[index].shards.at({tensor, step}), chunk);
        Bytes bytes;
        ByteWriter(bytes).write(sum);
        bytes.resize(8 + number_of(0, tensor, step) % 120, std::byte{0x5A});
        chunks.emplace_back(chunk, SharedView::take(std::move(bytes)));
    }
    return chunks;
}

std::vector<std::vector<Rank>> Sim::members_in_order() const {
    std::vector<std::vector<Rank>> order = options_.ranks;
    std::erase_if(order, [](const auto& ranks) { return ranks.empty(); });
    std::ranges::sort(order);
    return order;
}

std::uint64_t Sim::expected_shards(TensorNumber tensor, Step step) const {
    std::uint64_t bits = 0;
    if (is_empty_payload(tensor, step)) return bits;
    const auto order = members_in_order();
    const auto owners = shard_owners(options_.spec, order.size())[tensor];
    for (std::size_t member = 0; member < order.size(); ++member)
        for (std::uint32_t chunk = 0; chunk < chunks_of(tensor); ++chunk) {
            if (is_left_out(chunk, tensor, step) || owners[chunk] != member) continue;
            std::map<std::uint32_t, std::uint64_t> shards;
            for (const auto& ranks : order) {
                if (std::ranges::any_of(ranks, [&](Rank rank) { return non_finite_.contains({rank, tensor, step}); }))
                    continue;
                std::uint64_t sum = 0;
                for (const auto rank : ranks) sum += number_of(rank, tensor, step) + chunk;
                shards[chunk] = add_chunk(shards[chunk], chunk, sum);
            }
            bits = add_chunk(bits, chunk, twice_shard(shards, chunk));
        }
    return bits;
}

std::uint64_t Sim::expected_bits(TensorNumber tensor, Step step) const {
    if (is_sharded(tensor)) return expected_shards(tensor, step);
    const auto bits = expected_bits(tensor, step, 0);
    return options_.spec.tensors[tensor].phases == 1 ? bits : expected_bits(tensor, step, bits);
}

std::uint64_t Sim::expected_bits(TensorNumber tensor, Step step, std::uint64_t first_phase) const {
    std::uint64_t bits = 0;
    for (const auto& ranks : members_in_order()) {
        const bool is_zeroed = std::ranges::any_of(ranks, [&](Rank rank) {
            return non_finite_.contains({rank, tensor, step});
        });
        if (is_empty_payload(tensor, step) || is_zeroed) continue;
        for (std::uint32_t chunk = 0; chunk < chunks_of(tensor); ++chunk) {
            std::uint64_t sum = first_phase;
            for (const auto rank : ranks) sum += number_of(rank, tensor, step) + chunk;
            if (!is_left_out(chunk, tensor, step)) bits = add_chunk(bits, chunk, sum);
        }
    }
    return bits;
}

// ---- actions ----

void Sim::pump(std::size_t index) {
    auto& node = nodes_[index];
    if (!node.machine) return;
    for (int round = 0; round < 2; ++round) {
        const auto actions = node.machine->take_actions();
        for (const auto& action : actions) {
            if (!std::holds_alternative<SendFrame>(action)) node.log.push_back(action);
            std::visit([&](const auto& value) { act(index, value); }, action);
        }
        if (round == 0) node.machine->flush();
    }
    if (node.end && !options_.keep_ended) node.machine.reset();
}

void Sim::act(std::size_t index, const SendFrame& frame) {
    ++nodes_[index].frames;
    const std::size_t to = frame.to;
    if (to >= nodes_.size() || to == index) return violation("frame to " + std::to_string(to));
    if (filter && !filter(index, frame)) return;
    if (links_[std::minmax(index, to)] != LinkState::kUp) return;
    const auto unit = [this] { return static_cast<double>(random_() >> 11U) * 0x1p-53; };
    if (unit() < options_.lose) return;
    const int copies = unit() < options_.repeat ? 2 : 1;
    const auto life = link_lives_[std::minmax(index, to)];
    for (int copy = 0; copy < copies; ++copy) {
        auto arrival = now_ + random_delay();
        if (!frame.is_bulk || options_.is_bulk_ordered) {
            auto& last = last_arrival_[{index, to, frame.is_bulk}];
            arrival = std::max(arrival, last + Duration(1));
            last = arrival;
        }
        push(arrival - now_, [this, index, to, frame, life] {
            if (link_lives_[std::minmax(index, to)] == life) deliver(index, to, frame);
        });
    }
}

void Sim::deliver(std::size_t from, std::size_t to, const SendFrame& frame) {
    auto& node = nodes_[to];
    if (!node.is_alive || !node.machine) return;
    Bytes body;
    for (const auto& part : frame.parts) body.insert(body.end(), part.bytes().begin(), part.bytes().end());
    node.machine->on_frame(static_cast<PeerIndex>(from), frame.type, frame.epoch, frame.step,
                           SharedView::take(std::move(body)), now_);
    pump(to);
}

void Sim::act(std::size_t index, const StartJob& start) {
    auto& node = nodes_[index];
    node.members = start.members;
    for (const auto rank : node.ranks)
        if (trainers_[rank].is_training)
            for (GroupNumber group = 0; group < group_names_.size(); ++group)
                push(Duration(0), [this, rank, group] { begin_step(rank, group); });
}

void Sim::act(std::size_t index, const EncodeTensor& action) {
    auto& node = nodes_[index];
    if (!node.encoding.insert(action.tensor).second) violation("second encode of a tensor while one is open");
    for (const auto& member : node.members) {
        const auto& other = nodes_[member.peer];
        const auto group = group_of(action.tensor);
        const auto done = other.done.contains(group) ? other.done.at(group) : 0;
        if (done + 1 < action.step)
            violation("encode of step " + std::to_string(action.step) + " before all are done with the one before");
    }
    if (action.phase == 1 && !node.first_phases.contains({action.tensor, action.step}))
        violation("second phase before the first is decoded");
    if (options_.spec.tensors[action.tensor].phases == 2 && node.decoding.contains(action.tensor))
        violation("a phase is encoded while another is decoded");
    push(random_delay() / 2, [this, index, action] {
        auto& mine = nodes_[index];
        if (!mine.is_alive || !mine.machine) return;
        mine.encoding.erase(action.tensor);
        std::optional<Rank> bad;
        const bool is_of_all_nodes = is_sharded(action.tensor) && action.phase == 1;
        for (const auto rank : mine.ranks)
            if (!is_of_all_nodes && non_finite_.contains({rank, action.tensor, action.step})) bad = rank;
        const auto failure = fail_encode ? fail_encode(index, action) : Status{};
        if (!failure.is_ok())
            mine.machine->on_encode_failed(action.tensor, action.step, failure, now_);
        else if (bad)
            mine.machine->on_encode_failed(action.tensor, action.step,
                                           {StatusCode::kNonFinite, "NaN from rank " + std::to_string(*bad)}, now_);
        else
            mine.machine->on_encoded(action.tensor, action.step, encode(index, action), now_);
        pump(index);
    });
}

void Sim::act(std::size_t index, const DecodeTensor& action) {
    auto& node = nodes_[index];
    if (!node.decoding.insert(action.tensor).second) violation("second decode of a tensor while one is open");
    std::uint64_t bits = 0;
    std::map<std::uint32_t, std::uint64_t> shards;
    std::size_t place = 0;
    if (action.payloads.size() != node.members.size()) violation("decode without all members");
    for (const auto& payload : action.payloads) {
        if (payload.peer != node.members[place++].peer) violation("payloads out of node order");
        for (const auto& [chunk, view] : payload.chunks) {
            const auto value = ByteReader(view.bytes()).read<std::uint64_t>();
            bits = add_chunk(bits, chunk, value);
            if (is_sharded(action.tensor) && action.phase == 0) {
                auto& shard = shards[chunk];
                shard = add_chunk(shard, chunk, value);
            }
        }
    }
    if (is_sharded(action.tensor) && action.phase == 0) {
        const auto owners = shard_owners(options_.spec, node.members.size());
        for (const auto& entry : shards)
            if (node.members[owners[action.tensor][entry.first]].peer != index) violation("chunk of another's shard");
        node.shards[{action.tensor, action.step}] = shards;
    }
    if (tamper) bits = tamper(index, action.tensor, action.step, bits);
    push(random_delay() / 2, [this, index, action, bits] {
        auto& mine = nodes_[index];
        if (!mine.is_alive || !mine.machine) return;
        mine.decoding.erase(action.tensor);
        const bool is_first = is_first_of_two(action.tensor, action.phase);
        (is_first ? mine.first_phases : mine.areas)[{action.tensor, action.step}] = bits;
        const auto status = fail_decode ? fail_decode(index, action.tensor, action.step) : Status{};
        const auto digest = is_first ? 0 : mix64(bits + action.tensor);
        mine.machine->on_decoded(action.tensor, action.step, digest, status, now_);
        pump(index);
    });
}

void Sim::act(std::size_t index, const DeliverResult& result) {
    auto& node = nodes_[index];
    const auto id = std::pair(result.tensor, result.step);
    if (!node.delivered.insert(id).second) violation("result delivered twice");
    node.results[id] = result.status;
    node.nan_results[id] = result.fill_not_a_number;
    if (result.status.is_ok() && !result.fill_not_a_number) {
        if (!node.areas.contains(id)) violation("result delivered before it was decoded");
        if (!tamper && node.areas[id] != expected_bits(result.tensor, result.step)) violation("wrong bits delivered");
    }
    const auto group = group_of(result.tensor);
    const auto tensors = tensors_of(group);
    const bool is_last = std::ranges::all_of(tensors, [&](TensorNumber tensor) {
        return node.delivered.contains({tensor, result.step});
    });
    if (is_last && node.done[group] != result.step) violation("last result of a step before its commit or abort");
    for (const auto rank : node.ranks)
        if (trainers_[rank].is_training && trainers_[rank].step[group] == result.step)
            take_result(rank, result.tensor, result.status);
}

void Sim::act(std::size_t index, const CommitStep& commit) {
    nodes_[index].committed[commit.group] = commit.step;
    close_step(index, commit.group, commit.step);
    for (const auto tensor : tensors_of(commit.group))
        if (!nodes_[index].areas.contains({tensor, commit.step})) violation("commit of a step that is not decoded");
}

void Sim::act(std::size_t index, const AbortStep& abort) {
    if (abort.status.is_ok()) violation("abort without a reason");
    close_step(index, abort.group, abort.step);
}

/// Steps end once each, without gaps, and nodes are at most one apart.
void Sim::close_step(std::size_t index, GroupNumber group, Step step) {
    auto& done = nodes_[index].done[group];
    if (step != done + 1) violation("step " + std::to_string(step) + " ended after step " + std::to_string(done));
    done = step;
    for (const auto& node : nodes_) {
        if (node.members.empty()) continue;
        const auto other = node.committed.contains(group) ? node.committed.at(group) : 0;
        const auto mine = nodes_[index].committed[group];
        const auto other_done = node.done.contains(group) ? node.done.at(group) : 0;
        if (mine > other_done + 1 || other > done + 1) violation("nodes are more than one step apart");
    }
}

void Sim::act(std::size_t index, const DeliverBroadcast& broadcast) {
    nodes_[index].broadcasts[broadcast.number] = broadcast.status;
    const auto bytes = broadcast.bytes.bytes();
    nodes_[index].broadcast_bytes[broadcast.number] = Bytes(bytes.begin(), bytes.end());
}

void Sim::act(std::size_t index, const ReadBroadcast& read) {
    push(random_delay(), [this, index, read] {
        auto& node = nodes_[index];
        if (!node.is_alive || !node.machine) return;
        const auto count = options_.spec.tensors[read.tensor].elements() * 4;
        Bytes bytes(count);
        for (std::size_t i = 0; i < count; ++i)
            bytes[i] = static_cast<std::byte>((i * 7 + read.root + read.number) & 0xFFU);
        node.machine->on_broadcast_bytes(read.tensor, read.number, SharedView::take(std::move(bytes)), now_);
        pump(index);
    });
}

void Sim::act(std::size_t index, const DeliverCheck& check) { nodes_[index].checks[check.number] = check.status; }

/// A node that a test tells nothing of has what it is asked for; its digest is its place plus one.
void Sim::act(std::size_t index, const SaveSnapshot& save) {
    push(random_delay(), [this, index, save] {
        auto& node = nodes_[index];
        if (!node.is_alive || !node.machine) return;
        const auto known = node.saved.find({save.group, save.step});
        node.machine->on_snapshot_saved(
            save.group, save.step,
            known != node.saved.end() ? known->second : SnapshotOutcome{.status = {}, .digest = index + 1, .bytes = 8},
            now_);
        pump(index);
    });
}

void Sim::act(std::size_t index, const SnapshotKept& action) {
    nodes_[index].kept_everywhere.emplace_back(action.group, action.step);
}

void Sim::act(std::size_t index, const DeliverSnapshot& snapshot) {
    nodes_[index].snapshots[{snapshot.group, snapshot.step}].push_back(snapshot);
}

void Sim::act(std::size_t index, const EndJob& end) {
    if (nodes_[index].end) violation("job ended twice");
    nodes_[index].end = end.status;
    for (const auto rank : nodes_[index].ranks) end_rank(rank, end.status);
}

}  // namespace gradsieve::exchange
