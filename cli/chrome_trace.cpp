#include "cli/chrome_trace.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

namespace gradsieve::cli {

namespace {

/// Quoted; broken UTF-8 is replaced.
std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string_view outcome_name(TracedStep::Outcome outcome) {
    switch (outcome) {
        case TracedStep::Outcome::kOpen: return "open";
        case TracedStep::Outcome::kCommitted: return "committed";
        case TracedStep::Outcome::kFailed: return "failed";
    }
    return "open";
}

class Writer {
public:
    Writer(const shm::TraceReply& reply, const shm::TraceRequest& request) : reply_(reply) {
        for (const auto& tensor : reply.tensors) names_.push_back(quoted(tensor.name));
        for (const auto& peer : reply.peers) peers_[peer.peer] = quoted(peer.name);
        put(R"({{"displayTimeUnit":"ms","otherData":{{"generator":"gradsieve {}","job":{},"run_id":{},"node":{},)"
            R"("codec":{},"steps_asked":{},"steps_ended":{},"events_lost":{},"begin_unix_ns":{}}},"traceEvents":[)",
            GRADSIEVE_VERSION, quoted(request.job_name), quoted(request.run_id), quoted(reply.node),
            quoted(reply.codec), request.steps, reply.steps_ended, reply.events_lost, reply.begin_unix_ns);
        name_tracks(request);
    }
    void add(const TracedStep& step) {
        const auto name = fmt::format("step {}", step.step);
        span(step.group + 1, name, "step", step.begin_ns, step.end_ns,
             fmt::format(R"("step":{},"group":{},"outcome":"{}")", step.step, quoted(reply_.groups[step.group]),
                         outcome_name(step.outcome)));
        for (const auto& tensor : step.tensors) add(step, tensor, name);
    }
    [[nodiscard]] std::string finish() {
        out_ += "\n]}\n";
        return std::move(out_);
    }

private:
    template <typename... Arguments>
    void put(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
    }
    void begin_event() {
        out_ += is_first_ ? "\n" : ",\n";
        is_first_ = false;
    }
    /// Microseconds, exact to the nanosecond.
    [[nodiscard]] static std::string microseconds(std::int64_t ns) {
        return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
    }
    [[nodiscard]] std::string time(std::int64_t ns) const { return microseconds(ns - reply_.begin_ns); }
    [[nodiscard]] std::size_t track_of(std::uint32_t tensor) const { return reply_.groups.size() + 1 + tensor; }

    void name_track(std::size_t track, const std::string& name) {
        begin_event();
        put(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})", track, name);
        begin_event();
        put(R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_sort_index","args":{{"sort_index":{0}}}}})", track);
    }
    void name_tracks(const shm::TraceRequest& request) {
        begin_event();
        put(R"({{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{{"name":{}}}}})",
            quoted("job '" + request.job_name + "' on " + reply_.node));
        for (std::size_t group = 0; group < reply_.groups.size(); ++group)
            name_track(group + 1,
                       reply_.groups[group].empty() ? "\"steps\"" : quoted("steps of " + reply_.groups[group]));
        for (std::uint32_t tensor = 0; tensor < reply_.tensors.size(); ++tensor)
            name_track(track_of(tensor), names_[tensor]);
    }
    void span(std::size_t track, std::string_view name, std::string_view category, std::int64_t begin_ns,
              std::int64_t end_ns, const std::string& arguments) {
        begin_event();
        put(R"({{"ph":"X","pid":1,"tid":{},"name":"{}","cat":"{}","ts":{},"dur":{},"args":{{{}}}}})", track, name,
            category, time(begin_ns), microseconds(end_ns - begin_ns), arguments);
    }
    void add(const TracedStep& step, const TracedTensor& tensor, const std::string& name) {
        const auto track = track_of(tensor.tensor);
        span(track, name, "tensor", tensor.begin_ns(), tensor.end_ns(),
             fmt::format(R"("step":{},"tensor":{},"elements":{},"payload_bytes":{})", step.step, names_[tensor.tensor],
                         reply_.tensors[tensor.tensor].elements, tensor.payload_bytes));
        for (const auto& [rank, time_ns] : tensor.hand_ins) {
            begin_event();
            put(R"({{"ph":"i","s":"t","pid":1,"tid":{},"name":"hand-in of rank {}","cat":"hand-in","ts":{},)"
                R"("args":{{"step":{},"rank":{}}}}})",
                track, rank, time(time_ns), step.step, rank);
        }
        for (const auto& phase : tensor.phases)
            span(track, phase_name(phase.phase), "phase", phase.begin_ns, phase.end_ns,
                 arguments_of(step, tensor, phase));
        for (const auto& [peer, passage] : tensor.sends) add("send to ", "send", step, tensor, peer, passage);
        for (const auto& [peer, passage] : tensor.receives)
            add("receive from ", "receive", step, tensor, peer, passage);
    }
    [[nodiscard]] std::string arguments_of(const TracedStep& step, const TracedTensor& tensor, const PhaseSpan& phase) {
        auto text = fmt::format(R"("step":{})", step.step);
        if (phase.is_cut) text += R"(,"cut":true)";
        if (phase.phase == Phase::kWaitForRanks) {
            if (!tensor.hand_ins.empty()) text += fmt::format(R"(,"last_rank":{})", tensor.hand_ins.back().first);
            text += list("missing_ranks", tensor.missing_ranks, [](Rank rank) { return std::to_string(rank); });
        }
        if (phase.phase == Phase::kWaitForPeers) {
            if (tensor.last_peer) text += R"(,"last_node":)" + name_of(*tensor.last_peer);
            text += list("missing_nodes", tensor.missing_peers, [this](PeerIndex peer) { return name_of(peer); });
        }
        if (phase.phase == Phase::kEncode) text += fmt::format(R"(,"payload_bytes":{})", tensor.payload_bytes);
        return text;
    }
    template <typename Items, typename Text>
    [[nodiscard]] static std::string list(std::string_view key, const Items& items, Text text) {
        if (items.empty()) return {};
        std::string all;
        for (const auto item : items) all += (all.empty() ? "" : ",") + text(item);
        return fmt::format(R"(,"{}":[{}])", key, all);
    }
    [[nodiscard]] std::string name_of(PeerIndex peer) const {
        const auto found = peers_.find(peer);
        return found == peers_.end() ? quoted("node " + std::to_string(peer)) : found->second;
    }
    /// Those of several tensors overlap, so they cannot lie on a track.
    void add(std::string_view verb, std::string_view category, const TracedStep& step, const TracedTensor& tensor,
             PeerIndex peer, const Passage& passage) {
        const auto node = name_of(peer);
        const auto id = ++last_id_;
        begin_event();
        put(R"({{"ph":"b","pid":1,"tid":{},"id":{},"name":"{}{}","cat":"{}","ts":{},)"
            R"("args":{{"step":{},"tensor":{},"node":{}{}}}}})",
            track_of(tensor.tensor), id, verb, std::string_view(node).substr(1, node.size() - 2), category,
            time(passage.begin_ns), step.step, names_[tensor.tensor], node, passage.is_cut ? R"(,"cut":true)" : "");
        begin_event();
        put(R"({{"ph":"e","pid":1,"tid":{},"id":{},"name":"{}{}","cat":"{}","ts":{}}})", track_of(tensor.tensor), id,
            verb, std::string_view(node).substr(1, node.size() - 2), category, time(passage.end_ns));
    }

    const shm::TraceReply& reply_;
    std::vector<std::string> names_;
    std::map<PeerIndex, std::string> peers_;
    std::string out_;
    std::uint64_t last_id_ = 0;
    bool is_first_ = true;
};

}  // namespace

std::string chrome_trace(const shm::TraceReply& reply, const std::vector<TracedStep>& steps,
                         const shm::TraceRequest& request) {
    Writer writer(reply, request);
    for (const auto& step : steps) writer.add(step);
    return writer.finish();
}

}  // namespace gradsieve::cli
