#include "cli/status_view.hpp"

#include "cli/codec_list.hpp"
#include "cli/human.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace gradsieve::cli {

namespace {

using Json = nlohmann::ordered_json;

/// A member of an object, or null.
const Json& member(const Json& object, const char* key) {
    static const Json kNull;
    if (!object.is_object()) return kNull;
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
}
std::string text_of(const Json& value) {
    return value.is_string() ? printable(value.get_ref<const std::string&>()) : "";
}
std::string text(const Json& object, const char* key) { return text_of(member(object, key)); }
std::uint64_t count_of(const Json& value) {
    if (value.is_number_unsigned()) return value.get<std::uint64_t>();
    return value.is_number_float() && value.get<double>() >= 0 && value.get<double>() < 1.8e19
               ? static_cast<std::uint64_t>(value.get<double>())
               : 0;
}
std::uint64_t count(const Json& object, const char* key) { return count_of(member(object, key)); }
std::optional<double> figure(const Json& object, const char* key) {
    const auto& value = member(object, key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
    return value.get<double>();
}
double seconds(const Json& object, const char* key) { return figure(object, key).value_or(0); }
bool flag(const Json& object, const char* key) {
    const auto& value = member(object, key);
    return value.is_boolean() && value.get<bool>();
}
template <typename Parse>
auto list(const Json& object, const char* key, Parse parse) {
    std::vector<decltype(parse(object))> values;
    if (const auto& array = member(object, key); array.is_array())
        for (const auto& entry : array) values.push_back(parse(entry));
    return values;
}

ErrorView error_of(const Json& object) {
    return {text(object, "text"), count(object, "count"), seconds(object, "last_s_ago")};
}

DaemonView daemon_of(const Json& object) {
    DaemonView daemon;
    daemon.version = text(object, "version");
    daemon.node = text(object, "node");
    daemon.config_file = text(object, "config_file");
    daemon.socket = text(object, "socket");
    daemon.bound = text(object, "bound");
    daemon.cpu_form = text(object, "cpu_form");
    daemon.state = text(object, "state");
    daemon.uptime_s = seconds(object, "uptime_s");
    daemon.cpu_s = seconds(object, "cpu_s");
    daemon.threads = count(object, "threads");
    daemon.memory_bytes = count(object, "memory_bytes");
    daemon.memory_limit_bytes = count(object, "memory_limit_bytes");
    daemon.errors = list(object, "errors", error_of);
    return daemon;
}

SecurityView security_of(const Json& object) {
    return {text(object, "mode"),         text(object, "public_key"),    text(object, "warning"),
            text(object, "last_refusal"), count(object, "keys_refused"), count(object, "handshakes_failed")};
}

PeerView peer_of(const Json& object) {
    PeerView peer;
    peer.name = text(object, "name");
    peer.address = text(object, "address");
    peer.state = text(object, "state");
    peer.last_refusal = text(object, "last_refusal");
    peer.handshake = text(object, "handshake");
    peer.is_self = flag(object, "self");
    peer.silent_s = figure(object, "silent_s");
    peer.bytes_sent = count(object, "bytes_sent");
    peer.bytes_received = count(object, "bytes_received");
    peer.frames_sent = count(object, "frames_sent");
    peer.frames_received = count(object, "frames_received");
    peer.frames_refused = count(object, "frames_refused");
    peer.queued_bytes = count(object, "queued_bytes");
    return peer;
}

GpuView gpu_of(const Json& object) {
    GpuView gpu;
    gpu.uuid = text(object, "uuid");
    gpu.name = text(object, "name");
    gpu.has_context = flag(object, "context");
    gpu.memory_bytes = count(object, "memory_bytes");
    gpu.state_bytes = count(object, "state_bytes");
    gpu.workspace_bytes = count(object, "workspace_bytes");
    gpu.buffers = count(object, "buffers");
    gpu.threshold_misses = count(object, "threshold_misses");
    gpu.peers = text(object, "peers");
    return gpu;
}

RankView rank_of(const Json& object) {
    return {count(object, "rank"), text(object, "node"), text(object, "state"), flag(object, "local"),
            count(object, "pid")};
}
GroupView group_of(const Json& object) {
    return {text(object, "name"), count(object, "committed_step"), count(object, "steps_committed"),
            count(object, "steps_aborted"), count(object, "resumed_step")};
}
WaitView wait_of(const Json& object) {
    return {text(object, "group"),    text(object, "tensor"),          count(object, "step"),
            seconds(object, "for_s"), list(object, "ranks", count_of), list(object, "peers", text_of)};
}
StepTimeView step_time_of(const Json& object) {
    return {figure(object, "median"), figure(object, "p90"),      figure(object, "last"),
            figure(object, "encode"), figure(object, "exchange"), figure(object, "decode")};
}

BudgetGroupView budget_group_of(const Json& object) {
    BudgetGroupView group;
    group.name = text(object, "name");
    group.verdict = text(object, "verdict");
    group.text = text(object, "text");
    group.limit = figure(object, "limit").value_or(0);
    group.density = figure(object, "density_factor").value_or(1);
    group.cost = figure(object, "cost");
    group.coded_ms = figure(object, "coded_ms");
    group.plain_ms = figure(object, "plain_ms");
    return group;
}
BudgetView budget_of(const Json& object) {
    return {figure(object, "bytes_per_step"), figure(object, "ms_per_step"), text(object, "origin"),
            list(object, "groups", budget_group_of)};
}

StepAsideView::Refusal refusal_of(const Json& object) { return {text(object, "text"), count(object, "tensors")}; }
StepAsideView step_aside_of(const Json& object) {
    return {text(object, "text"),       count(object, "tensors"),   count(object, "eligible"),
            count(object, "aside"),     count(object, "trying"),    figure(object, "coded_ms"),
            figure(object, "plain_ms"), figure(object, "saved_ms"), list(object, "refusals", refusal_of)};
}

TensorView tensor_of(const Json& object) {
    TensorView tensor;
    tensor.name = text(object, "name");
    tensor.group = text(object, "group");
    tensor.place = text(object, "place");
    tensor.codec = text(object, "codec");
    tensor.variance_source = text(object, "variance_source");
    tensor.elements = count(object, "elements");
    tensor.kept_elements = count(object, "kept_elements");
    tensor.payload_bytes = count(object, "payload_bytes");
    tensor.residual_step = count(object, "residual_step");
    tensor.bits_per_kept = figure(object, "bits_per_kept");
    tensor.payload_ratio = figure(object, "payload_ratio");
    tensor.residual_norm = figure(object, "residual_norm");
    tensor.similarity = figure(object, "similarity");
    return tensor;
}

JobView job_of(const Json& object) {
    JobView job;
    job.name = text(object, "name");
    job.run_id = text(object, "run_id");
    job.phase = text(object, "phase");
    job.epoch = text(object, "epoch");
    job.codec = text(object, "codec");
    job.codec_origin = text(object, "codec_origin");
    job.last_refusal = text(object, "last_refusal");
    job.state_text = text(object, "state_text");
    job.world_size = count(object, "world_size");
    job.bytes_sent = count(object, "bytes_sent");
    job.allreduce_bytes = count(object, "allreduce_bytes");
    job.digests_compared = count(object, "digests_compared");
    job.digests_different = count(object, "digests_different");
    job.frames_refused = count(object, "frames_refused");
    job.memory_bytes = count(object, "memory_bytes");
    job.wire_ratio = figure(object, "wire_ratio");
    job.payload_ratio = figure(object, "payload_ratio");
    job.ranks = list(object, "ranks", rank_of);
    job.missing_ranks = list(object, "missing_ranks", count_of);
    job.groups = list(object, "groups", group_of);
    job.waiting = list(object, "waiting", wait_of);
    job.step_ms = step_time_of(member(object, "step_ms"));
    job.budget = budget_of(member(object, "budget"));
    job.step_aside = step_aside_of(member(object, "step_aside"));
    job.tensors = list(object, "tensors", tensor_of);
    return job;
}

EndedJobView ended_job_of(const Json& object) {
    return {text(object, "name"),         text(object, "run_id"),
            text(object, "text"),         count(object, "steps_committed"),
            figure(object, "wire_ratio"), seconds(object, "ago_s")};
}

KeptStateView kept_state_of(const Json& object) {
    KeptStateView state{text(object, "name"),   text(object, "run_id"),           text(object, "why"),
                        count(object, "bytes"), list(object, "groups", group_of), seconds(object, "for_s")};
    for (const auto bytes : list(object, "gpus", [](const Json& gpu) { return count(gpu, "bytes"); }))
        state.gpu_bytes += bytes;
    return state;
}
KeptStateView lost_state_of(const Json& object) {
    return {text(object, "name"), "", text(object, "text"), 0, {}, seconds(object, "ago_s")};
}

Json json_of(const HealthView& health) {
    Json entry = {{"state", health.state},
                  {"pid", health.pid},
                  {"heartbeat_age_s", health.heartbeat_age_s},
                  {"page", health.page}};
    if (health.state == "hung") entry["suspended"] = health.is_suspended;
    if (!health.text.empty()) entry["text"] = health.sentence();
    return entry;
}

std::string text_of_document(const Json& document) {
    return document.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

Result<StatusView> parse_status_document(std::string_view document) {
    if (document.empty()) return StatusView();
    const auto root = Json::parse(document, nullptr, /*allow_exceptions=*/false);
    if (!root.is_object())
        return Status(StatusCode::kCorrupt,
                      fmt::format("status document of {} bytes: not a JSON object: allowed is what the daemon writes; "
                                  "restart the daemon, and report it if it comes back",
                                  document.size()));
    StatusView view;
    view.format = static_cast<std::int64_t>(count(root, "format"));
    view.daemon = daemon_of(member(root, "daemon"));
    view.security = security_of(member(root, "security"));
    view.gpus = list(root, "gpus", gpu_of);
    view.peers = list(root, "peers", peer_of);
    view.jobs = list(root, "jobs", job_of);
    view.ended_jobs = list(root, "ended_jobs", ended_job_of);
    const auto& states = member(root, "states");
    view.is_parked = flag(states, "parked");
    view.kept = list(states, "kept", kept_state_of);
    view.lost = list(states, "lost", lost_state_of);
    return view;
}

std::string document_with_health(std::string_view document, const HealthView& health) {
    auto root = Json::parse(document, nullptr, /*allow_exceptions=*/false);
    if (!root.is_object()) root = Json::object();
    root["health"] = json_of(health);
    return text_of_document(root);
}

std::string peers_with_health(std::string_view document, const HealthView& health) {
    const auto root = Json::parse(document, nullptr, /*allow_exceptions=*/false);
    const auto& peers = member(root, "peers");
    return text_of_document({{"health", json_of(health)}, {"peers", peers.is_array() ? peers : Json::array()}});
}

std::string stages_json(const std::vector<StageView>& stages) {
    auto list = Json::array();
    for (const auto& stage : stages)
        list.push_back({{"name", stage.name},
                        {"role", stage.role},
                        {"parameters", stage.parameters},
                        {"scope", stage.scope},
                        {"state", stage.state},
                        {"meaning", stage.meaning},
                        {"source", stage.source},
                        {"combine", stage.combine},
                        {"backends", stage.backends}});
    return text_of_document(list);
}

}  // namespace gradsieve::cli
