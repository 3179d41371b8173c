// The status document as values: what docs/status-document.md says, with every key optional, because the daemon may be
// older or newer than this tool. Names are made harmless on the way in. Plain values; any thread.
#pragma once

#include "base/status.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::cli {

inline constexpr std::int64_t kDocumentFormat = 1;

struct ErrorView {
    std::string text;
    std::uint64_t count = 0;
    double last_s_ago = 0;
};
struct DaemonView {
    std::string version, node, config_file, socket, bound, cpu_form, state;
    double uptime_s = 0, cpu_s = 0;
    std::uint64_t threads = 0, memory_bytes = 0, memory_limit_bytes = 0;
    std::vector<ErrorView> errors;
};
/// How traffic between nodes is secured, and what the node's port turned away.
struct SecurityView {
    std::string mode;  ///< "curve", "plain", or "none" for a single node; "" = an older daemon
    std::string public_key, warning, last_refusal;
    std::uint64_t keys_refused = 0, handshakes_failed = 0;
};
struct PeerView {
    std::string name, address, state, last_refusal;
    std::string handshake;  ///< why this node's connections to it do not come about; empty unless so
    bool is_self = false;
    std::optional<double> silent_s;
    std::uint64_t bytes_sent = 0, bytes_received = 0, frames_sent = 0, frames_received = 0, frames_refused = 0;
    std::uint64_t queued_bytes = 0;
};
struct GpuView {
    std::string uuid, name;
    std::string peers;  ///< how it reaches GPUs of the same jobs: "direct", "staged" or, without any, ""
    bool has_context = false;
    std::uint64_t memory_bytes = 0, state_bytes = 0, workspace_bytes = 0, buffers = 0, threshold_misses = 0;
};
struct RankView {
    std::uint64_t rank = 0;
    std::string node, state;
    bool is_local = false;
    std::uint64_t pid = 0;
};
struct GroupView {
    std::string name;
    std::uint64_t committed_step = 0, steps_committed = 0, steps_aborted = 0, resumed_step = 0;
};
struct WaitView {
    std::string group, tensor;
    std::uint64_t step = 0;
    double for_s = 0;
    std::vector<std::uint64_t> ranks;
    std::vector<std::string> peers;
};
struct StepTimeView {
    std::optional<double> median, p90, last, encode, exchange, decode;
};
/// How one group's budget stands; limit and cost in bytes or milliseconds, as the job's budget is.
struct BudgetGroupView {
    std::string name, verdict, text;
    double limit = 0, density = 1;
    std::optional<double> cost, coded_ms, plain_ms;
};
struct BudgetView {
    std::optional<double> bytes_per_step, ms_per_step;  ///< one of them, if there is a budget
    std::string origin;
    std::vector<BudgetGroupView> groups;
};
/// Which tensors go plain because the link is faster than their codec.
struct StepAsideView {
    std::string text;  ///< "" = not asked for
    std::uint64_t tensors = 0, eligible = 0, aside = 0, trying = 0;
    std::optional<double> coded_ms, plain_ms, saved_ms;
    struct Refusal {
        std::string text;
        std::uint64_t tensors = 0;
    };
    std::vector<Refusal> refusals;  ///< why others may not
};
struct TensorView {
    std::string name, group, place, codec, variance_source;
    std::uint64_t elements = 0, kept_elements = 0, payload_bytes = 0, residual_step = 0;
    std::optional<double> bits_per_kept, payload_ratio, residual_norm;
    std::optional<double> similarity;  ///< only of codecs that measure it
};
struct JobView {
    std::string name, run_id, phase, epoch, codec, codec_origin, last_refusal, state_text;
    std::uint64_t world_size = 0, bytes_sent = 0, allreduce_bytes = 0, digests_compared = 0, digests_different = 0;
    std::uint64_t frames_refused = 0, memory_bytes = 0;
    std::optional<double> wire_ratio, payload_ratio;
    std::vector<RankView> ranks;
    std::vector<std::uint64_t> missing_ranks;
    std::vector<GroupView> groups;
    std::vector<WaitView> waiting;
    StepTimeView step_ms;
    BudgetView budget;
    StepAsideView step_aside;
    std::vector<TensorView> tensors;
};
struct EndedJobView {
    std::string name, run_id, text;
    std::uint64_t steps_committed = 0;
    std::optional<double> wire_ratio;
    double ago_s = 0;
};
/// State of a job that does not run, or that is no more.
struct KeptStateView {
    std::string name, run_id, text;
    std::uint64_t bytes = 0;
    std::vector<GroupView> groups;
    double age_s = 0;
    std::uint64_t gpu_bytes = 0;  ///< of all GPUs
};
struct StatusView {
    std::int64_t format = 0;  ///< 0 = no document yet
    DaemonView daemon;
    SecurityView security;
    std::vector<GpuView> gpus;
    std::vector<PeerView> peers;
    std::vector<JobView> jobs;
    std::vector<EndedJobView> ended_jobs;
    bool is_parked = false;  ///< a service manager keeps the states when the daemon dies
    std::vector<KeptStateView> kept, lost;
};

/// Missing keys and values of another type take their defaults; "" is a document that was not published yet.
/// Errors: kCorrupt (not a JSON object).
[[nodiscard]] Result<StatusView> parse_status_document(std::string_view document);

/// How the daemon is, for the JSON form.
struct HealthView {
    std::string state;  ///< "live", "hung", "dead", "stopped", "never-ran", "unreadable"
    std::int64_t pid = 0;
    double heartbeat_age_s = 0;
    bool is_suspended = false;  ///< hung, and the kernel says stopped by a signal or a debugger
    std::string page;           ///< the status page's path
    std::string text;           ///< for the last two: why
    std::string advice;         ///< and what to do, if the text does not say it
    /// Both as one sentence.
    [[nodiscard]] std::string sentence() const { return advice.empty() ? text : text + "; " + advice; }
};
/// The document with the key `health` added, indented, one newline at its end. A document that is no JSON object counts
/// as an empty one.
[[nodiscard]] std::string document_with_health(std::string_view document, const HealthView& health);
/// {"health": ..., "peers": [...]} out of it, likewise.
[[nodiscard]] std::string peers_with_health(std::string_view document, const HealthView& health);

}  // namespace gradsieve::cli
