#include "bench/scaling/simulation.hpp"

#include "exchange/messages.hpp"
#include "exchange/record.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace gradsieve::scaling {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
/// Until ZeroMQ has joined two nodes again: its first interval, a handshake, a monitor's event.
constexpr auto kJoinedAgainAfter = std::chrono::milliseconds(200);
constexpr Duration kLimit = std::chrono::hours(1);

/// Records travel and are kept by thousands; they are the only frames whose payload counts for more than it holds.
double payload_bytes(const exchange::SendFrame& frame, const SharedView& body) {
    const auto type = static_cast<exchange::FrameType>(frame.type);
    const bool is_relay = type == exchange::FrameType::kRelay;
    if (!is_relay && type != exchange::FrameType::kRecords) return 0;
    const auto prefix = exchange::parse_data_prefix(body.bytes(), is_relay);
    if (!prefix.is_ok()) return 0;
    double sum = 0;
    exchange::RecordReader reader(body, prefix->first_byte);
    while (const auto record = reader.next())
        if (record->header.kind != exchange::RecordKind::kMark) sum += record->header.payload_bytes;
    return sum;
}

SharedView joined(const exchange::SendFrame& frame) {
    if (frame.parts.size() == 1) return frame.parts.front();
    Bytes body;
    for (const auto& part : frame.parts) body.insert(body.end(), part.bytes().begin(), part.bytes().end());
    return SharedView::take(std::move(body));
}

exchange::JobSpec spec_of(const SimulationOptions& options) {
    exchange::JobSpec spec{.world_size = static_cast<std::uint32_t>(options.nodes),
                           .non_finite_policy = 0,
                           .codec = "simulated",
                           .tensors = {}};
    for (std::size_t number = 0; number < options.tensors.size(); ++number) {
        auto name = std::to_string(number);
        name.insert(0, 6 - name.size(), '0');
        spec.tensors.push_back({.name = "t" + name,
                                .group = "",
                                .shape = {options.tensors[number]},
                                .rule = "simulated",
                                .phases = static_cast<std::uint8_t>(options.is_sharded ? 2 : 1),
                                .is_sharded = options.is_sharded});
    }
    return spec;
}

}  // namespace

Simulation::Simulation(const SimulationOptions& options)
    : options_(options),
      network_(agenda_, options.nodes, options.link),
      spec_(spec_of(options)),
      owners_(exchange::shard_owners(spec_, options.nodes)),
      workers_(options.are_cores_shared ? 1 : options.nodes, WorkerModel(options.cores)),
      nodes_(options.nodes),
      random_(options.seed),
      stragglers_(options.steps + 1),
      step_ends_(options.steps + 1),
      nodes_done_(options.steps + 1) {
    payload_ = std::make_shared<const Bytes>(
        std::max(held_bytes(kChunkElements, false), held_bytes(kChunkElements, true)), std::byte{0x5A});
    for (auto& straggler : stragglers_) straggler = random_() % options_.nodes;
}

std::uint32_t Simulation::chunk_count(exchange::TensorNumber tensor) const {
    return static_cast<std::uint32_t>((options_.tensors[tensor] + kChunkElements - 1) / kChunkElements);
}

ElementCount Simulation::chunk_elements(exchange::TensorNumber tensor, std::uint32_t chunk) const {
    return std::min(kChunkElements, options_.tensors[tensor] - chunk * kChunkElements);
}

std::size_t Simulation::held_bytes(ElementCount elements, bool is_down) const {
    const double each = (is_down ? options_.down : options_.codec).bytes_per_element;
    return static_cast<std::size_t>(std::max(1.0, std::round(static_cast<double>(elements) * each / options_.scale)));
}

/// A node's cores code a tensor's chunks side by side. Where all nodes share the cores, each has one thread.
TimePoint Simulation::coded_at(std::size_t index, const std::vector<double>& chunk_seconds) {
    if (options_.are_cores_shared)
        return workers_[0].done_at(agenda_.now(), std::reduce(chunk_seconds.begin(), chunk_seconds.end()));
    auto done = agenda_.now();
    for (const double seconds : chunk_seconds) done = std::max(done, workers_[index].done_at(agenda_.now(), seconds));
    return done;
}

// ---- links ----

Simulation::Pair& Simulation::pair(std::size_t a, std::size_t b) {
    const auto [first, second] = std::minmax(a, b);
    return pairs_[first * nodes_.size() + second];
}

/// What is on the way between the two is lost; both are told, and told again once they are joined anew.
void Simulation::break_link(std::size_t a, std::size_t b) {
    auto& broken = pair(a, b);
    ++broken.life;
    ++broken_links_;
    broken.is_up = false;
    tell_of_link(a, b, exchange::LinkState::kClosed);
    agenda_.after(kJoinedAgainAfter, [this, a, b] {
        pair(a, b).is_up = true;
        tell_of_link(a, b, exchange::LinkState::kUp);
    });
}

void Simulation::tell_of_link(std::size_t a, std::size_t b, exchange::LinkState state) {
    for (const auto& [node, other] : {std::pair(a, b), std::pair(b, a)}) {
        nodes_[node].machine->on_link(static_cast<PeerIndex>(other), state, 1, "simulated", agenda_.now());
        agenda_.after({}, [this, index = node] { pump(index); });
    }
}

// ---- time ----

SimulationOutcome Simulation::run() {
    start();
    const auto began = agenda_.now();
    while (steps_done_ < options_.steps)
        if (!agenda_.run_next() || agenda_.now() - began > kLimit)
            throw std::runtime_error("step " + std::to_string(steps_done_ + 1) + " of " +
                                     std::to_string(options_.nodes) + " nodes did not end within a simulated hour");
    SimulationOutcome outcome;
    for (exchange::TensorNumber tensor = 0; tensor < options_.tensors.size(); ++tensor)
        outcome.payload_bytes += options_.codec.bytes_per_element * static_cast<double>(options_.tensors[tensor]);
    const double counted = static_cast<double>(options_.steps - 1);
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        const auto& sent = network_.sent(index);
        const double bytes = (sent.bytes - sent_before_[index].bytes) / counted;
        outcome.sent_bytes_mean += bytes / static_cast<double>(nodes_.size());
        outcome.sent_bytes_most = std::max(outcome.sent_bytes_most, bytes);
        outcome.frames += static_cast<double>(sent.frames - sent_before_[index].frames) / counted /
                          static_cast<double>(nodes_.size());
        outcome.retained_bytes = std::max(outcome.retained_bytes, nodes_[index].retained_bytes);
    }
    std::vector<double> seconds;
    for (Step step = 2; step <= options_.steps; ++step)
        seconds.push_back(std::chrono::duration<double>(step_ends_[step] - step_ends_[step - 1]).count());
    std::ranges::sort(seconds);
    outcome.step_median_s = seconds[seconds.size() / 2];
    outcome.step_longest_s = seconds.back();
    outcome.broken_links = broken_links_;
    return outcome;
}

void Simulation::start() {
    std::vector<exchange::NodeName> names;
    for (std::size_t node = 0; node < nodes_.size(); ++node)
        names.push_back({.name = "n" + std::to_string(node), .address = "10.0.0.1"});
    const exchange::JobTimes times{.round_deadline = kLimit, .peer_timeout = kLimit, .max_late = std::nullopt};
    exchange::JobLimits limits;
    limits.credit_bytes = std::max<ByteCount>(1, limits.credit_bytes / options_.scale);
    limits.frame_target_bytes = std::max<ByteCount>(1, limits.frame_target_bytes / options_.scale);
    for (std::size_t index = 0; index < nodes_.size(); ++index)
        nodes_[index].machine.emplace(exchange::JobKey{"scaling", "one"}, static_cast<PeerIndex>(index), names, times,
                                      limits, options_.seed * 131 + index);
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        auto& machine = *nodes_[index].machine;
        for (std::size_t other = 0; other < nodes_.size(); ++other)
            if (other != index)
                machine.on_link(static_cast<PeerIndex>(other), exchange::LinkState::kUp, 1, "", agenda_.now());
        const auto status = machine.on_rank_attached(static_cast<Rank>(index), spec_, agenda_.now());
        if (!status.is_ok()) throw std::runtime_error(status.to_string());
        pump(index);
    }
    tick();
}

void Simulation::tick() {
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        nodes_[index].machine->on_time(agenda_.now());
        pump(index);
    }
    agenda_.after(kTick, [this] { tick(); });
}

/// The rank computes, and hands each tensor in as its backward pass gives it.
void Simulation::begin_step(std::size_t index, Step step) {
    auto& node = nodes_[index];
    node.step = step;
    node.waited = options_.tensors.size();
    const double late = stragglers_[step] == index ? options_.straggler_seconds : 0;
    const auto count = static_cast<double>(options_.tensors.size());
    for (exchange::TensorNumber tensor = 0; tensor < options_.tensors.size(); ++tensor) {
        const double share = 1 - options_.backward_share * (1 - (tensor + 1) / count);
        const double seconds = options_.step_seconds * share + late;
        agenda_.after(Duration(static_cast<std::int64_t>(seconds * 1e9)), [this, index, tensor, step] {
            const auto status =
                nodes_[index].machine->on_submitted(static_cast<Rank>(index), tensor, step, agenda_.now());
            if (!status.is_ok()) throw std::runtime_error(status.to_string());
            pump(index);
        });
    }
}

/// The last node has all averages of a step.
void Simulation::end_step(Step step) {
    step_ends_[step] = agenda_.now();
    steps_done_ = step;
    if (step > 1) return;
    for (std::size_t index = 0; index < nodes_.size(); ++index) sent_before_.push_back(network_.sent(index));
}

// ---- what machines want done ----

void Simulation::pump(std::size_t index) {
    auto& machine = *nodes_[index].machine;
    for (const bool is_last : {false, true}) {
        for (const auto& action : machine.take_actions())
            std::visit([&](const auto& value) { act(index, value); }, action);
        if (!is_last) machine.flush();
    }
}

void Simulation::act(std::size_t index, const exchange::SendFrame& frame) {
    const auto body = joined(frame);
    const double held = payload_bytes(frame, body);
    const double counted = static_cast<double>(body.bytes().size()) + held * (options_.scale - 1.0);
    const auto to = static_cast<std::size_t>(frame.to);
    const bool may_break = options_.breaks > 0;
    if (may_break && steps_done_ > 0 && pair(index, to).is_up &&
        static_cast<double>(random_() >> 11U) * 0x1p-53 < options_.breaks)
        break_link(index, to);
    const auto life = may_break ? pair(index, to).life : 0;
    if (may_break && !pair(index, to).is_up) return;
    network_.send(index, to, frame.is_bulk, bytes_on_the_wire(counted),
                  [this, index, to, life, type = frame.type, epoch = frame.epoch, step = frame.step, body] {
                      if (options_.breaks > 0 && pair(index, to).life != life) return;
                      nodes_[to].machine->on_frame(static_cast<PeerIndex>(index), type, epoch, step, body,
                                                   agenda_.now());
                      pump(to);
                  });
}

void Simulation::act(std::size_t index, const exchange::StartJob& start) {
    for (std::size_t place = 0; place < start.members.size(); ++place)
        if (start.members[place].peer != place) throw std::logic_error("members are not in node order");
    begin_step(index, 1);
}

void Simulation::act(std::size_t index, const exchange::EncodeTensor& encode) {
    const bool is_average = options_.is_sharded && encode.phase == 1;
    const auto& codec = is_average ? options_.down : options_.codec;
    std::vector<std::pair<std::uint32_t, SharedView>> chunks;
    std::vector<double> seconds;
    for (std::uint32_t chunk = 0; chunk < chunk_count(encode.tensor); ++chunk) {
        if (is_average && owners_[encode.tensor][chunk] != index) continue;
        const auto of_chunk = chunk_elements(encode.tensor, chunk);
        seconds.push_back(static_cast<double>(of_chunk) * codec.encode_seconds_per_element);
        chunks.emplace_back(chunk, SharedView(payload_, *payload_).part(0, held_bytes(of_chunk, is_average)));
    }
    agenda_.at(coded_at(index, seconds), [this, index, encode, chunks = std::move(chunks)]() mutable {
        nodes_[index].machine->on_encoded(encode.tensor, encode.step, std::move(chunks), agenda_.now());
        pump(index);
    });
}

void Simulation::act(std::size_t index, const exchange::DecodeTensor& decode) {
    auto& node = nodes_[index];
    const auto& codec = options_.is_sharded && decode.phase == 1 ? options_.down : options_.codec;
    std::vector<double> seconds(chunk_count(decode.tensor));  // by chunk, of all nodes' payloads
    for (const auto& payload : decode.payloads)
        for (const auto& [chunk, view] : payload.chunks)
            seconds[chunk] +=
                static_cast<double>(chunk_elements(decode.tensor, chunk)) * codec.decode_seconds_per_element;
    node.retained_bytes =
        std::max(node.retained_bytes,
                 static_cast<double>(node.machine->snapshot(agenda_.now()).payload_bytes_retained) * options_.scale);
    const auto done = coded_at(index, seconds);
    const bool is_result = !options_.is_sharded || decode.phase == 1;
    const std::uint64_t digest = is_result ? decode.step * 1000003 + decode.tensor + 1 : 0;
    agenda_.at(done, [this, index, tensor = decode.tensor, step = decode.step, digest] {
        nodes_[index].machine->on_decoded(tensor, step, digest, {}, agenda_.now());
        pump(index);
    });
}

void Simulation::act(std::size_t index, const exchange::DeliverResult& result) {
    auto& node = nodes_[index];
    if (!result.status.is_ok()) throw std::runtime_error(result.status.to_string());
    if (result.step != node.step || --node.waited > 0) return;
    if (++nodes_done_[result.step] == nodes_.size()) end_step(result.step);
    if (result.step < options_.steps) begin_step(index, result.step + 1);
}

void Simulation::act(std::size_t, const exchange::AbortStep& abort) {
    throw std::runtime_error("step " + std::to_string(abort.step) + " failed: " + abort.status.to_string());
}

void Simulation::act(std::size_t, const exchange::EndJob& end) { throw std::runtime_error(end.status.to_string()); }

}  // namespace gradsieve::scaling
