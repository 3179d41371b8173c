#include "cli/trace_steps.hpp"

#include <algorithm>

namespace gradsieve::cli {

namespace {

using shm::TraceEventKind;
using Moment = std::optional<std::int64_t>;

struct Arrival {
    Moment first_ns, last_ns;  ///< when its frames arrived
    Moment taken_ns;           ///< when the last one was looked at
};
struct Departure {
    Moment made_ns;           ///< when the first records were put into a frame
    std::uint64_t frame = 0;  ///< the last one
    std::int64_t last_made_ns = 0;
};
/// What the events say of one tensor in one step.
struct Seen {
    std::vector<std::pair<Rank, std::int64_t>> hand_ins;
    Moment encode_asked, encode_began, encode_ended, decode_asked, decode_began, decode_ended, handed_back;
    std::map<PeerIndex, Arrival> from;
    std::map<PeerIndex, Departure> to;
    ByteCount payload_bytes = 0;
};
using Frames = std::map<std::uint64_t, std::int64_t>;

void first_one(Moment& inout_moment, std::int64_t time_ns) {
    if (!inout_moment) inout_moment = time_ns;
}

/// Of a tensor whose step has two phases, what is between the codings counts as encoding.
void note(Seen& inout_seen, const shm::TraceEvent& event) {
    switch (event.kind) {
        case TraceEventKind::kHandIn: inout_seen.hand_ins.emplace_back(event.who, event.time_ns); return;
        case TraceEventKind::kEncodeAsked: return first_one(inout_seen.encode_asked, event.time_ns);
        case TraceEventKind::kEncoded:
            first_one(inout_seen.encode_began, event.time_ns);
            inout_seen.encode_ended = event.until_ns;
            inout_seen.payload_bytes += event.number;
            return;
        case TraceEventKind::kRecordsOut: {
            auto& departure = inout_seen.to[event.who];
            first_one(departure.made_ns, event.time_ns);
            departure.frame = event.number;
            departure.last_made_ns = event.time_ns;
            return;
        }
        case TraceEventKind::kFirstRecord: return first_one(inout_seen.from[event.who].first_ns, event.time_ns);
        case TraceEventKind::kLastRecord:
            inout_seen.from[event.who].last_ns = event.time_ns;
            inout_seen.from[event.who].taken_ns = event.until_ns;
            return;
        case TraceEventKind::kDecodeAsked: inout_seen.decode_asked = event.time_ns; return;
        case TraceEventKind::kDecoded:
            inout_seen.decode_began = event.time_ns;
            inout_seen.decode_ended = event.until_ns;
            return;
        case TraceEventKind::kHandedBack: return first_one(inout_seen.handed_back, event.time_ns);
        case TraceEventKind::kFrameSent:
        case TraceEventKind::kStepCommitted:
        case TraceEventKind::kStepFailed: return;
    }
}

Moment begin_of(const Seen& seen) {
    Moment begin;
    const auto take = [&](Moment moment) {
        if (moment && (!begin || *moment < *begin)) begin = moment;
    };
    for (const auto& [rank, time_ns] : seen.hand_ins) take(time_ns);
    for (const auto& [peer, arrival] : seen.from) take(arrival.first_ns);
    take(seen.encode_asked);
    take(seen.handed_back);
    return begin;
}

/// Walks along a tensor's time; every phase begins where the last one ended, so none overlaps another.
class PhaseWalk {
public:
    PhaseWalk(std::int64_t begin_ns, std::int64_t stop_ns, std::vector<PhaseSpan>& ret_phases)
        : at_ns_(begin_ns), stop_ns_(std::max(begin_ns, stop_ns)), phases_(ret_phases) {}
    /// False where the phase did not end: it lasts to the stop, and nothing comes after it.
    bool go(Phase phase, Moment until) {
        const auto end_ns = until ? std::clamp(*until, at_ns_, stop_ns_) : stop_ns_;
        phases_.push_back({phase, at_ns_, end_ns, !until});
        at_ns_ = end_ns;
        return until.has_value();
    }

private:
    std::int64_t at_ns_;
    std::int64_t stop_ns_;
    std::vector<PhaseSpan>& phases_;
};

/// When the last local rank had handed in.
Moment ranks_done(const Seen& seen, const shm::TraceReply& reply) {
    if (seen.hand_ins.empty() || (seen.hand_ins.size() < reply.ranks.size() && !seen.encode_asked))
        return seen.encode_asked;
    return seen.hand_ins.back().second;
}

Moment peers_done(const Seen& seen, const shm::TraceReply& reply, std::optional<PeerIndex>& ret_last) {
    Moment done = seen.encode_ended;
    for (const auto& peer : reply.peers) {
        const auto arrival = seen.from.find(peer.peer);
        if (arrival == seen.from.end() || !arrival->second.taken_ns) return seen.decode_asked;
        if (!done || *arrival->second.taken_ns < *done) continue;
        done = arrival->second.taken_ns;
        ret_last = peer.peer;
    }
    return done;
}

void walk(const Seen& seen, const shm::TraceReply& reply, TracedTensor& inout_tensor) {
    PhaseWalk walk(*begin_of(seen), seen.handed_back.value_or(reply.end_ns), inout_tensor.phases);
    if (!walk.go(Phase::kWaitForRanks, ranks_done(seen, reply))) return;
    if (!walk.go(Phase::kWaitForAcks, seen.encode_asked)) return;
    if (!walk.go(Phase::kQueueToEncode, seen.encode_began)) return;
    if (!walk.go(Phase::kEncode, seen.encode_ended)) return;
    if (!reply.peers.empty() && !walk.go(Phase::kWaitForPeers, peers_done(seen, reply, inout_tensor.last_peer))) return;
    if (!seen.decode_asked && seen.handed_back) {
        walk.go(Phase::kNoAverage, seen.handed_back);
        return;
    }
    if (!walk.go(Phase::kQueueToDecode, seen.decode_began)) return;
    if (!walk.go(Phase::kDecode, seen.decode_ended)) return;
    walk.go(Phase::kHandBack, seen.handed_back);
}

TracedTensor trace_of(std::uint32_t number, const Seen& seen, const shm::TraceReply& reply, const Frames& frames) {
    TracedTensor tensor{.tensor = number, .hand_ins = seen.hand_ins, .payload_bytes = seen.payload_bytes};
    walk(seen, reply, tensor);
    for (const auto rank : reply.ranks)
        if (std::ranges::none_of(seen.hand_ins, [rank](const auto& one) { return one.first == rank; }))
            tensor.missing_ranks.push_back(rank);
    for (const auto& peer : reply.peers) {
        const auto arrival = seen.from.find(peer.peer);
        if (arrival == seen.from.end() || !arrival->second.taken_ns) tensor.missing_peers.push_back(peer.peer);
    }
    for (const auto& [peer, arrival] : seen.from) {
        const auto begin_ns = arrival.first_ns.value_or(arrival.last_ns.value_or(reply.end_ns));
        tensor.receives[peer] = {begin_ns, std::max(begin_ns, arrival.taken_ns.value_or(tensor.end_ns())),
                                 !arrival.taken_ns};
    }
    for (const auto& [peer, departure] : seen.to) {
        const auto begin_ns = seen.encode_ended.value_or(*departure.made_ns);
        const auto sent = frames.find(departure.frame);
        const auto end_ns = sent == frames.end() ? departure.last_made_ns : sent->second;
        tensor.sends[peer] = {begin_ns, std::max(begin_ns, end_ns), sent == frames.end()};
    }
    return tensor;
}

double quantile(const std::vector<double>& sorted, double share) {
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

std::string_view phase_name(Phase phase) noexcept {
    switch (phase) {
        case Phase::kWaitForRanks: return "wait for ranks";
        case Phase::kWaitForAcks: return "wait for acknowledgements";
        case Phase::kQueueToEncode: return "queue to encode";
        case Phase::kEncode: return "reduce + encode";
        case Phase::kWaitForPeers: return "wait for peers";
        case Phase::kQueueToDecode: return "queue to decode";
        case Phase::kDecode: return "decode + average";
        case Phase::kHandBack: return "hand back";
        case Phase::kNoAverage: return "no average";
    }
    return "unknown";
}

std::vector<TracedStep> put_together(const shm::TraceReply& reply) {
    Frames frames;
    std::map<std::pair<std::uint32_t, Step>, std::map<std::uint32_t, Seen>> seen;
    std::map<std::pair<std::uint32_t, Step>, std::pair<TracedStep::Outcome, std::int64_t>> ends;
    for (const auto& event : reply.events) {
        if (event.kind == TraceEventKind::kFrameSent)
            frames[event.number] = event.time_ns;
        else if (event.kind == TraceEventKind::kStepCommitted)
            ends[{event.tensor, event.step}] = {TracedStep::Outcome::kCommitted, event.time_ns};
        else if (event.kind == TraceEventKind::kStepFailed)
            ends[{event.tensor, event.step}] = {TracedStep::Outcome::kFailed, event.time_ns};
        else
            note(seen[{reply.tensors[event.tensor].group, event.step}][event.tensor], event);
    }
    std::vector<TracedStep> steps;
    for (const auto& [key, tensors] : seen) {
        TracedStep step{.group = key.first, .step = key.second, .end_ns = reply.end_ns};
        const auto end = ends.find(key);
        if (end != ends.end()) std::tie(step.outcome, step.end_ns) = end->second;
        for (const auto& [number, one] : tensors)
            if (begin_of(one)) step.tensors.push_back(trace_of(number, one, reply, frames));
        if (step.tensors.empty()) continue;
        step.begin_ns = step.tensors.front().begin_ns();
        for (const auto& tensor : step.tensors) {
            step.begin_ns = std::min(step.begin_ns, tensor.begin_ns());
            step.end_ns = std::max(step.end_ns, tensor.end_ns());
        }
        steps.push_back(std::move(step));
    }
    std::ranges::stable_sort(steps, {}, &TracedStep::begin_ns);
    return steps;
}

std::array<PhaseFigures, kPhaseCount> figures_of(const std::vector<TracedStep>& steps) {
    std::array<std::vector<double>, kPhaseCount> times;
    for (const auto& step : steps)
        for (const auto& tensor : step.tensors)
            for (const auto& span : tensor.phases)
                if (!span.is_cut)
                    times[static_cast<std::size_t>(span.phase)].push_back(
                        static_cast<double>(span.end_ns - span.begin_ns) / 1e6);
    std::array<PhaseFigures, kPhaseCount> figures;
    for (std::size_t phase = 0; phase < kPhaseCount; ++phase) {
        auto& sorted = times[phase];
        if (sorted.empty()) continue;
        std::ranges::sort(sorted);
        figures[phase] = {sorted.size(), quantile(sorted, 0.5), quantile(sorted, 0.9), sorted.back()};
    }
    return figures;
}

}  // namespace gradsieve::cli
