#include "daemon/status_document.hpp"

#include "codec/cpu_form.hpp"
#include "daemon/config_key_file.hpp"
#include "daemon/hosted_job.hpp"
#include "daemon/service.hpp"

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace gradsieve::daemon {

namespace {

using Json = nlohmann::ordered_json;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double rounded(double value, double per_unit) { return std::round(value * per_unit) / per_unit; }

double cpu_seconds() {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
}

std::string node_name(const Config& config, PeerIndex peer) {
    return peer < config.nodes.size() ? config.nodes[peer].name : "this node";
}

Json daemon_part(const StatusFacts& facts, TimePoint now) {
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    Json errors = Json::array();
    for (const auto& error : facts.errors)
        errors.push_back(
            {{"text", error.text}, {"count", error.count}, {"last_s_ago", rounded(seconds(now - error.last), 10)}});
    return {{"version", GRADSIEVE_VERSION},
            {"pid", ::getpid()},
            {"node", node_name(facts.config, facts.config.self)},
            {"started_unix_s", std::chrono::duration_cast<std::chrono::seconds>(wall - (now - facts.started)).count()},
            {"uptime_s", rounded(seconds(now - facts.started), 10)},
            {"config_file", facts.config.file},
            {"socket", facts.config.socket_path},
            {"bound", facts.bound.empty() ? "nothing: single node" : facts.bound},
            {"cpu_form", std::string(codec::cpu_form_name(codec::chosen_cpu_form().value_or(codec::CpuForm::kScalar)))},
            {"threads", facts.threads},
            {"cpu_s", rounded(cpu_seconds(), 1000)},
            {"memory_bytes", facts.memory_bytes},
            {"memory_limit_bytes", facts.memory_limit_bytes},
            {"state", facts.is_stopping ? "stopping" : "running"},
            {"errors", errors}};
}

Json security_part(const StatusFacts& facts) {
    const auto& nodes = facts.config.nodes;
    const bool has_peers = nodes.size() > 1;
    const bool has_key = is_encrypted(facts.config);
    return {{"mode", has_peers ? facts.config.security : "none"},
            {"public_key", has_key ? nodes[facts.config.self].public_key : ""},
            {"warning", has_peers && !has_key ? kPlainTextWarning : ""},
            {"keys_refused", facts.port.keys_refused},
            {"handshakes_failed", facts.port.handshakes_failed},
            {"last_refusal", facts.port.last_refusal}};
}

Json gpus_part(const StatusFacts& facts) {
    Json gpus = Json::array();
    for (const auto& gpu : facts.gpus)
        gpus.push_back(
            {{"uuid", gpu.device.uuid},
             {"name", gpu.device.name},
             {"memory_bytes", gpu.device.total_bytes},
             {"context", gpu.figures.has_context},
             {"state_bytes", gpu.figures.state_bytes},
             {"workspace_bytes", gpu.figures.workspace_bytes},
             {"buffers", gpu.figures.buffers},
             {"queued", gpu.queued},
             {"threshold_misses", gpu.figures.threshold_misses},
             {"peers", gpu.figures.is_direct ? Json(*gpu.figures.is_direct ? "direct" : "staged") : Json(nullptr)},
             {"failure", gpu.figures.failure}});
    return gpus;
}

/// The state is the conductor's, which knows it at once; counters are up to a tenth of a second older.
Json peers_part(const StatusFacts& facts, TimePoint now) {
    const auto& nodes = facts.config.nodes;
    Json peers = Json::array();
    for (PeerIndex peer = 0; peer < nodes.size() && peer < facts.counters.size(); ++peer) {
        const auto& counter = facts.counters[peer];
        const auto& view = facts.peers[peer];
        const bool is_self = peer == facts.config.self;
        const bool was_heard = counter.last_heard != TimePoint{};
        const bool has_changed = view.since != TimePoint{};
        peers.push_back(
            {{"name", nodes[peer].name},
             {"address", nodes[peer].endpoint()},
             {"self", is_self},
             {"state", is_self ? "self" : std::string(transport::peer_state_name(view.state))},
             {"state_s", has_changed ? Json(rounded(seconds(now - view.since), 100)) : Json(nullptr)},
             {"silent_s", was_heard ? Json(rounded(seconds(now - counter.last_heard), 100)) : Json(nullptr)},
             {"bytes_sent", counter.bytes_sent},
             {"bytes_received", counter.bytes_received},
             {"frames_sent", counter.frames_sent},
             {"frames_received", counter.frames_received},
             {"frames_refused", counter.frames_refused},
             {"queued_bytes", counter.queued_bytes},
             {"tick", counter.peer_tick},
             {"last_refusal", counter.last_refusal},
             {"handshake", counter.handshake},
             {"text", view.text}});
    }
    return peers;
}

Json ranks_part(const HostedJob& job, const exchange::JobSnapshot& snapshot, const Config& config) {
    Json ranks = Json::array();
    const auto add_local = [&](Rank rank, const Session& session) {
        ranks.push_back({{"rank", rank},
                         {"node", node_name(config, config.self)},
                         {"local", true},
                         {"pid", session.who.pid},
                         {"user", session.user},
                         {"state", session.is_gone        ? "gone"
                                   : session.has_detached ? "detached"
                                                          : "attached"}});
    };
    if (snapshot.members.empty())
        for (const auto& [rank, session] : job.sessions()) add_local(rank, *session);
    for (const auto& member : snapshot.members)
        for (const auto rank : member.ranks) {
            const auto local = job.sessions().find(rank);
            if (local != job.sessions().end())
                add_local(rank, *local->second);
            else
                ranks.push_back({{"rank", rank},
                                 {"node", node_name(config, member.peer)},
                                 {"local", false},
                                 {"state", "attached"}});
        }
    return ranks;
}

Json waiting_part(const HostedJob& job, const exchange::JobSnapshot& snapshot, const Config& config) {
    Json waiting = Json::array();
    for (const auto& round : snapshot.open_rounds) {
        Json peers = Json::array();
        for (const auto peer : round.peers_waited_for) peers.push_back(node_name(config, peer));
        const auto& tensors = job.tensors();
        waiting.push_back(
            {{"group", round.group < job.groups().size() ? job.groups()[round.group].name : ""},
             {"step", round.step},
             {"for_s", rounded(seconds(round.open_for), 100)},
             {"ranks", round.ranks_not_submitted},
             {"peers", peers},
             {"tensor", round.first_missing_tensor < tensors.size() ? tensors[round.first_missing_tensor].name : ""}});
    }
    return waiting;
}

Json step_part(const std::deque<StepTimes>& times) {
    if (times.empty()) return nullptr;
    std::vector<double> totals;
    for (const auto& step : times) totals.push_back(step.total_ms);
    std::sort(totals.begin(), totals.end());
    const auto at = [&](double share) {
        return totals[static_cast<std::size_t>(share * static_cast<double>(totals.size() - 1))];
    };
    const auto& last = times.back();
    return {{"median", rounded(at(0.5), 1000)},
            {"p90", rounded(at(0.9), 1000)},
            {"last", rounded(last.total_ms, 1000)},
            {"encode", rounded(last.encode_ms, 1000)},
            {"exchange", rounded(std::max(0.0, last.total_ms - last.encode_ms - last.decode_ms), 1000)},
            {"decode", rounded(last.decode_ms, 1000)}};
}

/// The page has room for about 5,000 of them; who has more tensors looks at the totals.
constexpr std::size_t kTensorsShown = 1000;

/// A host tensor that some local rank copies from and to its GPU.
bool is_staged(const HostedJob& job, exchange::TensorNumber number) {
    return std::any_of(job.sessions().begin(), job.sessions().end(), [number](const auto& entry) {
        const auto& session = *entry.second;
        return session.tensors[session.index_of_number[number]].staged;
    });
}

std::string place_of(const HostedJob& job, const HostedTensor& tensor) {
    if (tensor.gpu != nullptr) return tensor.gpu->names();
    if (tensor.on_device) return "unbound";
    return is_staged(job, tensor.number) ? "staged" : "host";
}

Json tensors_part(const HostedJob& job) {
    Json tensors = Json::array();
    for (const auto& tensor : job.tensors()) {
        if (tensors.size() == kTensorsShown) break;
        const auto& totals = tensor.totals;
        const double bits = 8.0 * static_cast<double>(totals.payload_bytes);
        const auto kept = static_cast<double>(totals.kept_elements);
        tensors.push_back(
            {{"name", tensor.name},
             {"group", job.groups()[tensor.group].name},
             {"elements", tensor.elements},
             {"place", place_of(job, tensor)},
             {"codec", tensor.codec_text},
             {"kept_elements", totals.kept_elements},
             {"payload_bytes", totals.payload_bytes},
             {"bits_per_kept", kept > 0 ? Json(rounded(bits / kept, 100)) : Json(nullptr)},
             {"payload_ratio",
              bits > 0 ? Json(rounded(32.0 * static_cast<double>(tensor.elements) / bits, 10)) : Json(nullptr)},
             {"residual_norm", totals.residual_step > 0 ? Json(totals.residual_norm) : Json(nullptr)},
             {"residual_step", totals.residual_step},
             {"variance_source", std::string(codec::variance_source_name(totals.variance_source))}});
        if (tensor.down) tensors.back()["averages"] = codec::canonical_text(*tensor.down, codec::Knobs::kKeep);
        if (!tensor.pipeline.measures_similarity) continue;
        tensors.back()["similarity"] = totals.similarity ? Json(rounded(*totals.similarity, 10000)) : Json(nullptr);
        tensors.back()["similarity_bits_differ"] = totals.bits_differ ? Json(*totals.bits_differ) : Json(nullptr);
        if (!codec::has_reuse(tensor.pipeline)) continue;
        tensors.back()["reuse_share"] = totals.reuse_share ? Json(rounded(*totals.reuse_share, 10000)) : Json(nullptr);
        tensors.back()["reused_steps"] = totals.reused_steps;
        tensors.back()["reuse_saved_bytes"] = totals.reuse_saved_bytes;
    }
    return tensors;
}

Json kept_gpus_part(const shm::StateSegment& state) {
    Json gpus = Json::array();
    if (state.placement())
        for (const auto& part : state.placement()->parts) gpus.push_back({{"uuid", part.gpu}, {"bytes", part.bytes}});
    return gpus;
}

Json kept_part(const KeptStates& kept, const Config& config, TimePoint now) {
    Json states = Json::array();
    for (const auto& entry : kept.all()) {
        const auto& state = entry.state.segment;
        const auto& table = state.table();
        Json groups = Json::array();
        for (std::size_t group = 0; group < table.groups.size(); ++group)
            groups.push_back({{"name", table.groups[group]}, {"committed_step", state.committed(group)}});
        states.push_back({{"name", table.job_name},
                          {"run_id", table.run_id},
                          {"world_size", table.world_size},
                          {"ranks", state.ranks()},
                          {"groups", groups},
                          {"bytes", state.size_bytes()},
                          {"gpus", kept_gpus_part(state)},
                          {"why", entry.why},
                          {"for_s", rounded(seconds(now - entry.since), 10)}});
    }
    Json lost = Json::array();
    for (const auto& entry : kept.lost())
        lost.push_back({{"name", entry.job}, {"text", entry.text}, {"ago_s", rounded(seconds(now - entry.at), 10)}});
    return {{"parked", has_descriptor_store()},
            {"folder", config.state_directory},
            {"snapshot_steps", config.snapshot_steps},
            {"kept", states},
            {"lost", lost}};
}

Json budget_part(const HostedJob& job, const Config& config) {
    const auto& steering = job.steering();
    const auto budget = steering.budget(config);
    if (!budget.is_set()) return nullptr;
    const auto figure = [](double value) { return value > 0 ? Json(rounded(value, 1000)) : Json(nullptr); };
    Json groups = Json::array();
    for (exchange::GroupNumber group = 0; group < job.groups().size(); ++group) {
        const auto view = steering.view(group, job.tensors(), config);
        groups.push_back({{"name", job.groups()[group].name},
                          {"verdict", view.verdict},
                          {"text", view.text},
                          {"limit", rounded(view.limit, 1000)},
                          {"cost", figure(view.cost)},
                          {"density_factor", rounded(view.density, 10000)},
                          {"moves", view.moves},
                          {"coded_ms", figure(view.coded_ms)},
                          {"plain_ms", figure(view.plain_ms)}});
    }
    return {{"bytes_per_step", figure(budget.bytes_per_step)},
            {"ms_per_step", figure(budget.ms_per_step)},
            {"origin", steering.is_own() ? job.choice().origin : "configuration"},
            {"groups", groups}};
}

/// Null where the configuration does not ask for it, or nothing goes to another node.
Json step_aside_part(const HostedJob& job, const Config& config) {
    if (!config.step_aside || config.nodes.size() < 2) return nullptr;
    const auto view = job.plain().view(job.tensors(), job.steering().budget(config).is_set());
    const bool is_known = view.coded_ms > 0;
    const auto figure = [&](double value) { return is_known ? Json(rounded(value, 1000)) : Json(nullptr); };
    Json refusals = Json::array();
    for (const auto& refusal : view.refusals)
        refusals.push_back({{"text", std::string(refusal.text)}, {"tensors", refusal.tensors}});
    return {{"tensors", job.tensors().size()},
            {"eligible", view.eligible},
            {"aside", view.aside},
            {"trying", view.trying},
            {"text", view.text},
            {"coded_ms", figure(view.coded_ms)},
            {"plain_ms", figure(view.plain_ms)},
            {"saved_ms", figure(view.saved_ms)},
            {"moves", view.moves},
            {"refusals", refusals}};
}

double payload_ratio(const HostedJob& job) {
    double plain_bits = 0;
    double payload_bits = 0;
    for (const auto& tensor : job.tensors()) {
        plain_bits += 32.0 * static_cast<double>(tensor.elements) * static_cast<double>(tensor.totals.steps);
        payload_bits += 8.0 * static_cast<double>(tensor.totals.payload_bytes_all);
    }
    return payload_bits > 0 ? plain_bits / payload_bits : 0;
}

Json job_part(const HostedJob& job, const Config& config, TimePoint now) {
    const auto snapshot = job.snapshot(now);
    std::array<char, 20> epoch{};
    std::snprintf(epoch.data(), epoch.size(), "%016llx", static_cast<unsigned long long>(snapshot.epoch));
    Json groups = Json::array();
    for (const auto& group : job.groups())
        groups.push_back({{"name", group.name},
                          {"committed_step", group.committed},
                          {"resumed_step", group.resumed},
                          {"snapshot_step", group.snapshot},
                          {"pinned_step", group.pinned},
                          {"steps_committed", group.steps_committed},
                          {"steps_aborted", group.steps_aborted}});
    const double ratio = payload_ratio(job);
    const bool has_wire_ratio = job.sent_bytes() > 0 && job.allreduce_bytes() > 0;
    return {
        {"name", job.key().name},
        {"run_id", job.key().run_id},
        {"phase", snapshot.phase},
        {"epoch", epoch.data()},
        {"world_size", job.world_size()},
        {"codec", job.choice().text},
        {"codec_origin", job.choice().origin},
        {"ranks", ranks_part(job, snapshot, config)},
        {"missing_ranks", snapshot.missing_ranks},
        {"groups", groups},
        {"state_text", job.state_text()},
        {"waiting", waiting_part(job, snapshot, config)},
        {"wire_ratio", has_wire_ratio ? Json(rounded(job.allreduce_bytes() / job.sent_bytes(), 10)) : Json(nullptr)},
        {"payload_ratio", ratio > 0 ? Json(rounded(ratio, 10)) : Json(nullptr)},
        {"bytes_sent", static_cast<std::uint64_t>(job.sent_bytes())},
        {"allreduce_bytes", static_cast<std::uint64_t>(job.allreduce_bytes())},
        {"step_ms", step_part(job.step_times())},
        {"budget", budget_part(job, config)},
        {"step_aside", step_aside_part(job, config)},
        {"digests_compared", snapshot.digests_compared},
        {"digests_different", snapshot.digests_different},
        {"frames_refused", snapshot.frames_refused},
        {"last_refusal", snapshot.last_refusal},
        {"memory_bytes", job.memory_bytes()},
        {"tensors_omitted", job.tensors().size() - std::min(job.tensors().size(), kTensorsShown)},
        {"tensors", tensors_part(job)}};
}

}  // namespace

std::string status_document(const StatusFacts& facts, TimePoint now) {
    Json jobs = Json::array();
    for (const auto* job : facts.jobs) jobs.push_back(job_part(*job, facts.config, now));
    Json ended = Json::array();
    for (const auto& job : facts.ended_jobs)
        ended.push_back({{"name", job.key.name},
                         {"run_id", job.key.run_id},
                         {"text", job.text},
                         {"steps_committed", job.steps_committed},
                         {"wire_ratio", job.wire_ratio > 0 ? Json(rounded(job.wire_ratio, 10)) : Json(nullptr)},
                         {"bytes_sent", static_cast<std::uint64_t>(job.sent_bytes)},
                         {"ago_s", rounded(seconds(now - job.at), 10)}});
    const Json document = {{"format", 1},
                           {"daemon", daemon_part(facts, now)},
                           {"security", security_part(facts)},
                           {"gpus", gpus_part(facts)},
                           {"peers", peers_part(facts, now)},
                           {"jobs", jobs},
                           {"ended_jobs", ended},
                           {"states", kept_part(facts.kept_states, facts.config, now)}};
    return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gradsieve::daemon
