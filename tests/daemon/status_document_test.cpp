// The document from facts written by hand, field by field; and its keys against docs/status-document.md.
#include "daemon/status_document.hpp"

#include "daemon/hosted_job.hpp"
#include "tests/daemon/daemon_testing.hpp"
#include "tests/shm/state_testing.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

namespace gradsieve::daemon::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using transport::PeerState;

/// One job of one rank on a single node.
class OneJob {
public:
    explicit OneJob(const shm::AttachRequest& request)
        : doorbell_(shm::Doorbell::make().value()), wake_(doorbell_.fd()), pool_(1, wake_), rank_(request, 99) {
        budget_.limit_bytes = ByteCount{64} << 20U;
        job_ =
            HostedJob::make(request, {&config_, &pool_, &gpus_, nullptr, &workspace_, &budget_, &log_.log(), 1}, now_)
                .value();
        const auto status = rank_.attach(*job_, now_);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        job_->run(now_);
    }
    /// Hands in and settles; the step takes `took`.
    void step(Step number, const std::vector<float>& values, Duration took) {
        rank_.client->submit(0, number, values);
        shm::Submission submission;
        while (rank_.session.memory->try_pop(submission).value()) job_->on_submission(rank_.session, submission, now_);
        now_ += took;
        job_->run(now_);
    }
    [[nodiscard]] const HostedJob& job() const { return *job_; }
    [[nodiscard]] TimePoint now() const { return now_; }
    [[nodiscard]] MemoryRank& rank() { return rank_; }

private:
    Config config_;
    LogLines log_;
    MemoryBudget budget_;
    shm::Doorbell doorbell_;
    WakeFlag wake_;
    CodecPool pool_;
    GpuPool gpus_{wake_};
    codec::EncodeWorkspace workspace_;
    MemoryRank rank_;
    TimePoint now_ = TimePoint(100h);
    std::unique_ptr<HostedJob> job_;
};

/// What a conductor would state; tests change what they are about.
struct Written {
    Written() {
        config.nodes = {{"a", "192.0.2.1", 7077}, {"b", "192.0.2.2", 7078}, {"c", "2001:db8::3"}};
        config.self = 0;
        config.file = "/etc/gradsieve/gradsieved.toml";
        config.socket_path = "/run/gradsieve/gradsieved.sock";
        peers.resize(3);
        counters.resize(3);
    }
    [[nodiscard]] StatusFacts facts() const {
        return {.config = config,
                .peers = peers,
                .counters = counters,
                .port = port,
                .bound = "192.0.2.1:7077 (eth0 routes to 192.0.2.2)",
                .jobs = jobs,
                .ended_jobs = ended,
                .kept_states = kept,
                .errors = errors,
                .memory_bytes = 1234,
                .memory_limit_bytes = 5678,
                .threads = 3,
                .started = now - 12340ms,
                .is_stopping = false};
    }
    [[nodiscard]] json document() const { return json::parse(status_document(facts(), now)); }

    TimePoint now{100h};
    Config config;
    std::vector<PeerView> peers;
    std::vector<transport::PeerCounters> counters;
    transport::PortCounters port;
    std::vector<const HostedJob*> jobs;
    std::deque<EndedJob> ended;
    MemoryBudget budget{.limit_bytes = ByteCount{1} << 30U};
    LogLines log;
    KeptStates kept{budget, log.log()};
    std::deque<DistinctError> errors;
};

TEST(StatusDocument, Security_part_tells_the_mode_and_what_was_turned_away) {
    Written written;
    written.config.nodes[0].public_key = std::string(40, 'A');
    written.port = {17, 3, "key X from 192.0.2.9 refused"};
    written.counters[1].handshake = "key refused by b";
    EXPECT_EQ(written.document().at("security"),
              json::parse(R"({"mode":"curve","public_key":")" + std::string(40, 'A') +
                          R"(","warning":"","keys_refused":17,"handshakes_failed":3,
                                                             "last_refusal":"key X from 192.0.2.9 refused"})"));
    EXPECT_EQ(written.document().at("peers").at(1).at("handshake"), "key refused by b");
    EXPECT_EQ(written.document().at("peers").at(2).at("handshake"), "");
    written.config.security = kSecurityPlain;
    EXPECT_EQ(written.document().at("security").at("mode"), "plain");
    EXPECT_EQ(written.document().at("security").at("public_key"), "") << "it is not in use";
    EXPECT_EQ(written.document().at("security").at("warning"), kPlainTextWarning);
    written.config.nodes.clear();
    EXPECT_EQ(written.document().at("security").at("mode"), "none");
    EXPECT_EQ(written.document().at("security").at("warning"), "");
}
TEST(StatusDocument, Daemon_part_says_what_it_was_told) {
    Written written;
    written.errors = {{"accept: too many open files", 17, written.now - 2500ms}};
    const auto part = written.document().at("daemon");
    EXPECT_EQ(written.document().at("format"), 1);
    EXPECT_EQ(part.at("version"), GRADSIEVE_VERSION);
    EXPECT_EQ(part.at("pid"), ::getpid());
    EXPECT_EQ(part.at("node"), "a");
    EXPECT_EQ(part.at("uptime_s"), 12.3);
    EXPECT_EQ(part.at("config_file"), "/etc/gradsieve/gradsieved.toml");
    EXPECT_EQ(part.at("socket"), "/run/gradsieve/gradsieved.sock");
    EXPECT_EQ(part.at("bound"), "192.0.2.1:7077 (eth0 routes to 192.0.2.2)");
    EXPECT_EQ(part.at("threads"), 3);
    EXPECT_EQ(part.at("memory_bytes"), 1234);
    EXPECT_EQ(part.at("memory_limit_bytes"), 5678);
    EXPECT_EQ(part.at("state"), "running");
    EXPECT_EQ(part.at("errors"),
              json::parse(R"([{"text": "accept: too many open files", "count": 17, "last_s_ago": 2.5}])"));
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    EXPECT_NEAR(part.at("started_unix_s").get<double>(), std::chrono::duration<double>(wall).count() - 12.34, 30);
    EXPECT_GE(part.at("cpu_s").get<double>(), 0);
}
TEST(StatusDocument, Peers_show_the_conductors_state_and_the_networks_counters) {
    Written written;
    written.peers[1] = {PeerState::kClosed, 77, "connection closed by 192.0.2.2:7078", written.now - 150ms};
    auto& counter = written.counters[1];
    counter.state = PeerState::kUp;  // taken before the connection broke
    counter.bytes_sent = 1;
    counter.bytes_received = 2;
    counter.frames_sent = 3;
    counter.frames_received = 4;
    counter.frames_refused = 5;
    counter.queued_bytes = 6;
    counter.peer_tick = 7;
    counter.last_refusal = "bad checksum";
    counter.last_heard = written.now - 1250ms;
    const auto peers = written.document().at("peers");
    ASSERT_EQ(peers.size(), 3U);
    EXPECT_EQ(peers[1], json::parse(R"({"name": "b", "address": "192.0.2.2:7078", "self": false, "state": "closed",
        "state_s": 0.15, "silent_s": 1.25, "bytes_sent": 1, "bytes_received": 2, "frames_sent": 3,
        "frames_received": 4, "frames_refused": 5, "queued_bytes": 6, "tick": 7, "last_refusal": "bad checksum",
        "handshake": "", "text": "connection closed by 192.0.2.2:7078"})"));
    EXPECT_EQ(peers[0].at("state"), "self");
    EXPECT_EQ(peers[0].at("self"), true);
    EXPECT_EQ(peers[2].at("state"), "connecting");
    EXPECT_TRUE(peers[2].at("state_s").is_null() && peers[2].at("silent_s").is_null()) << "never heard of";
    EXPECT_EQ(peers[2].at("address"), "[2001:db8::3]:7077");
}
TEST(StatusDocument, Gpus_show_what_the_daemon_holds_of_them) {
    Written written;
    auto facts = written.facts();
    EXPECT_EQ(json::parse(status_document(facts, written.now)).at("gpus"), json::array());
    codec::cuda::DeviceInfo device;
    device.name = "Card";
    device.uuid = "GPU-1234";
    device.total_bytes = 100;
    GpuFigures figures;
    figures.state_bytes = 20;
    figures.workspace_bytes = 30;
    figures.buffers = 4;
    figures.threshold_misses = 5;
    figures.has_context = true;
    facts.gpus.push_back({device, figures, 6});
    EXPECT_EQ(json::parse(status_document(facts, written.now)).at("gpus"),
              json::parse(R"([{"uuid": "GPU-1234", "name": "Card", "memory_bytes": 100, "context": true,
                  "state_bytes": 20, "workspace_bytes": 30, "buffers": 4, "queued": 6, "threshold_misses": 5,
                  "peers": null, "failure": ""}])"));
    const auto peers = [&](bool is_direct) {
        facts.gpus.front().figures.is_direct = is_direct;
        return json::parse(status_document(facts, written.now)).at("gpus")[0].at("peers");
    };
    EXPECT_EQ(peers(true), "direct");
    EXPECT_EQ(peers(false), "staged");
}
TEST(StatusDocument, Single_node_has_no_peers_and_says_so) {
    Written written;
    written.config.nodes.clear();
    written.counters.clear();
    auto facts = written.facts();
    facts.bound.clear();
    facts.is_stopping = true;
    const auto document = json::parse(status_document(facts, written.now));
    EXPECT_EQ(document.at("peers"), json::array());
    EXPECT_EQ(document.at("daemon").at("bound"), "nothing: single node");
    EXPECT_EQ(document.at("daemon").at("node"), "this node");
    EXPECT_EQ(document.at("daemon").at("state"), "stopping");
}
TEST(StatusDocument, Ended_jobs_keep_their_order_and_a_ratio_only_where_something_was_sent) {
    Written written;
    written.ended = {{{"new", "r2"}, "all ranks detached", 100, 143.26, 1234.9, written.now - 5s},
                     {{"old", "r1"}, "peer-failed: rank 3", 7, 0, 0, written.now - 3661s}};
    EXPECT_EQ(written.document().at("ended_jobs"), json::parse(R"([
        {"name": "new", "run_id": "r2", "text": "all ranks detached", "steps_committed": 100, "wire_ratio": 143.3,
         "bytes_sent": 1234, "ago_s": 5.0},
        {"name": "old", "run_id": "r1", "text": "peer-failed: rank 3", "steps_committed": 7, "wire_ratio": null,
         "bytes_sent": 0, "ago_s": 3661.0}])"));
}
TEST(StatusDocument, Bytes_that_are_no_utf_8_are_replaced) {
    Written written;
    written.peers[1].text = "closed by \xFF\xFE";
    EXPECT_EQ(written.document().at("peers")[1].at("text"), "closed by \xEF\xBF\xBD\xEF\xBF\xBD");
}
TEST(StatusDocument, Running_job_shows_its_figures) {
    OneJob one(make_request(0, 1, {{.name = "w", .group = "g", .shape = {20, 50}}}, "all | f32"));
    one.step(1, std::vector<float>(1000, 0.5F), 5ms);
    one.step(2, std::vector<float>(1000, 0.25F), 7ms);
    one.step(3, std::vector<float>(1000, 0.25F), 6ms);
    Written written;
    written.now = one.now();
    written.jobs = {&one.job()};
    const auto job = written.document().at("jobs").at(0);
    EXPECT_EQ(job.at("name"), "demo");
    EXPECT_EQ(job.at("run_id"), "one");
    EXPECT_EQ(job.at("phase"), "running");
    EXPECT_EQ(job.at("world_size"), 1);
    EXPECT_EQ(job.at("codec"), "all | f32 | auto");
    EXPECT_EQ(job.at("codec_origin"), "client");
    EXPECT_EQ(job.at("epoch").get<std::string>().size(), 16U);
    EXPECT_EQ(job.at("ranks"), json::parse(R"([{"rank": 0, "node": "a", "local": true, "pid": 99, "user": "alice",
                                                "state": "attached"}])"));
    EXPECT_EQ(job.at("groups"), json::parse(R"([{"name": "g", "committed_step": 3, "steps_committed": 3,
                                                 "steps_aborted": 0, "resumed_step": 0, "snapshot_step": 0,
                                                 "pinned_step": 0}])"));
    EXPECT_EQ(job.at("state_text"), "");
    EXPECT_EQ(job.at("missing_ranks"), json::array());
    EXPECT_EQ(job.at("waiting"), json::array());
    EXPECT_EQ(job.at("step_ms").at("median"), 6.0);
    EXPECT_EQ(job.at("step_ms").at("p90"), 6.0) << "of three: the second";
    EXPECT_EQ(job.at("step_ms").at("last"), 6.0);
    EXPECT_TRUE(job.at("wire_ratio").is_null()) << "one node sends nothing";
    EXPECT_EQ(job.at("tensors_omitted"), 0);
    ASSERT_EQ(job.at("tensors").size(), 1U);
    const auto& tensor = job.at("tensors")[0];
    EXPECT_EQ(tensor.at("name"), "w");
    EXPECT_EQ(tensor.at("group"), "g");
    EXPECT_EQ(tensor.at("elements"), 1000);
    EXPECT_EQ(tensor.at("kept_elements"), 1000);
    const double bits = 8.0 * tensor.at("payload_bytes").get<double>();
    EXPECT_GE(bits, 32'000) << "1,000 plain floats";
    EXPECT_NEAR(tensor.at("bits_per_kept").get<double>(), bits / 1000, 0.01);
    EXPECT_NEAR(tensor.at("payload_ratio").get<double>(), 32'000 / bits, 0.1);
    EXPECT_TRUE(tensor.at("residual_norm").is_null()) << "not yet taken";
}
TEST(StatusDocument, A_budget_is_shown_where_there_is_one) {
    OneJob one(make_request(0, 1, {{.name = "w", .group = "g", .shape = {4}}}, "topk(0.5); budget_ms_per_step = 2.5"));
    Written written;
    written.jobs = {&one.job()};
    EXPECT_EQ(written.document().at("jobs").at(0).at("budget"), json::parse(R"({"bytes_per_step": null,
        "ms_per_step": 2.5, "origin": "client", "groups": [{"name": "g", "verdict": "off", "text":
        "off: nothing has been sent to another node", "limit": 2.5, "cost": null, "density_factor": 1.0, "moves": 0,
        "coded_ms": null, "plain_ms": null}]})"));
}
TEST(StatusDocument, Similarity_is_shown_of_codecs_that_measure_it) {
    const auto tensor_after = [](const char* codec, bool has_second_step) {
        OneJob one(make_request(0, 1, {{.name = "w", .shape = {4}}}, codec));
        one.step(1, {1, 2, 3, 4}, 5ms);
        if (has_second_step) one.step(2, {-1, 2, 3, 4}, 5ms);
        Written written;
        written.jobs = {&one.job()};
        return written.document().at("jobs").at(0).at("tensors").at(0);
    };
    EXPECT_FALSE(tensor_after("all | f32", true).contains("similarity"));
    EXPECT_TRUE(tensor_after("similarity | all | f32", false).at("similarity").is_null());
    EXPECT_TRUE(tensor_after("similarity | all | f32", false).at("similarity_bits_differ").is_null());
    const auto tensor = tensor_after("similarity | all | f32", true);
    EXPECT_EQ(tensor.at("similarity"), 0.9333) << "28 / 30";
    EXPECT_EQ(tensor.at("similarity_bits_differ"), 1);
    EXPECT_EQ(tensor.at("codec"), "similarity | all | f32 | auto");
}
TEST(StatusDocument, Skipped_steps_are_counted_of_codecs_that_may_skip) {
    OneJob one(make_request(0, 1, {{.name = "w", .shape = {4}}}, "similarity(skip=0.5) | all | bf16"));
    const auto tensor = [&] {
        Written written;
        written.jobs = {&one.job()};
        return written.document().at("jobs").at(0).at("tensors").at(0);
    };
    one.step(1, {1, 2, 3, 4}, 5ms);
    EXPECT_TRUE(tensor().at("reuse_share").is_null());
    EXPECT_EQ(tensor().at("reused_steps"), 0);
    const auto payload_bytes = tensor().at("payload_bytes").get<std::uint64_t>();
    EXPECT_EQ(payload_bytes, 10U) << "two of header";
    one.step(2, {1, 2, 3, 5}, 5ms);
    EXPECT_EQ(tensor().at("reuse_share"), 0.9744) << "38 / 39";
    EXPECT_EQ(tensor().at("reused_steps"), 1);
    EXPECT_EQ(tensor().at("reuse_saved_bytes"), payload_bytes - codec::kReuseBytes);
    EXPECT_EQ(tensor().at("kept_elements"), 0);
    one.step(3, {-1, 2, 3, 4}, 5ms);
    EXPECT_EQ(tensor().at("reused_steps"), 1 + (tensor().at("reuse_share").get<double>() >= 0.5 ? 1 : 0));
    EXPECT_FALSE(tensor().at("reuse_share").is_null()) << "also of a step that is sent in full";
}
TEST(StatusDocument, Place_of_a_tensor_in_host_memory_says_whether_a_rank_stages_it) {
    const auto request =
        make_request(0, 1, {{.name = "b", .shape = {4}, .staged = true}, {.name = "a", .shape = {4}}}, "all | f32");
    const OneJob one(request);
    Written written;
    written.jobs = {&one.job()};
    const auto tensors = written.document().at("jobs").at(0).at("tensors");
    EXPECT_EQ(tensors.at(0).at("name"), "a");
    EXPECT_EQ(tensors.at(0).at("place"), "host");
    EXPECT_EQ(tensors.at(1).at("place"), "staged");
}
TEST(StatusDocument, Forming_job_names_who_is_missing_and_an_open_step_who_is_late) {
    OneJob one(make_request(1, 3, {{.name = "w", .shape = {4}}}));
    Written written;
    written.jobs = {&one.job()};
    auto job = written.document().at("jobs").at(0);
    EXPECT_EQ(job.at("phase"), "forming");
    EXPECT_EQ(job.at("missing_ranks"), json::parse("[0, 2]"));
    EXPECT_EQ(job.at("ranks")[0].at("rank"), 1);
    OneJob open(make_request(0, 1, {{.name = "v", .shape = {4}}, {.name = "w", .shape = {4}}}));
    open.step(1, {1, 2, 3, 4}, 1500ms);  // v only
    written.now = open.now();
    written.jobs = {&open.job()};
    job = written.document().at("jobs").at(0);
    EXPECT_EQ(job.at("waiting"), json::parse(R"([{"group": "", "step": 1, "for_s": 1.5, "ranks": [0], "peers": [],
                                                  "tensor": "w"}])"));
    open.rank().session.is_gone = true;
    EXPECT_EQ(written.document().at("jobs").at(0).at("ranks")[0].at("state"), "gone");
}
TEST(StatusDocument, Only_the_first_thousand_tensors_are_listed) {
    std::vector<shm::TensorEntry> tensors;
    for (int number = 0; number < 1003; ++number)
        tensors.push_back({.name = "t" + std::to_string(10'000 + number), .shape = {1}});
    OneJob one(make_request(0, 1, tensors));
    Written written;
    written.jobs = {&one.job()};
    const auto job = written.document().at("jobs").at(0);
    EXPECT_EQ(job.at("tensors").size(), 1000U);
    EXPECT_EQ(job.at("tensors_omitted"), 3);
    EXPECT_EQ(job.at("tensors")[999].at("name"), "t10999");
}

/// The example document of the page.
json documented() {
    std::ifstream file(GRADSIEVE_SOURCE_DIR "/docs/status-document.md");
    std::stringstream text;
    text << file.rdbuf();
    const auto page = text.str();
    const auto begin = page.find("```json\n");
    const auto end = page.find("```", begin + 3);
    EXPECT_TRUE(begin != std::string::npos && end != std::string::npos);
    return json::parse(page.substr(begin + 8, end - begin - 8));
}
/// All keys below `value`, as "jobs[].ranks[].pid"; objects in a list count together.
void collect_keys(const json& value, const std::string& path, std::set<std::string>& ret_keys) {
    if (value.is_array())
        for (const auto& element : value) collect_keys(element, path + "[]", ret_keys);
    if (!value.is_object()) return;
    for (const auto& [key, inner] : value.items()) {
        const auto place = path.empty() ? key : path + "." + key;
        ret_keys.insert(place);
        collect_keys(inner, place, ret_keys);
    }
}
TEST(StatusDocument, Has_exactly_the_keys_of_its_page) {
    OneJob one(make_request(0, 1, {{.name = "v", .shape = {4}}, {.name = "w", .shape = {4}}}));
    one.step(1, {1, 2, 3, 4}, 5ms);
    OneJob done(make_request(0, 1, {{.name = "w", .shape = {4}}}, "topk(0.5); budget_ms_per_step = 1"));
    done.step(1, {1, 2, 3, 4}, 5ms);
    Written written;
    written.config.step_aside = true;
    written.now = one.now();
    written.jobs = {&one.job(), &done.job()};
    written.ended = {{{"old", "r1"}, "all ranks detached", 7, 10, 10, written.now}};
    written.errors = {{"text", 1, written.now}};
    auto state = shm::StateSegment::make("test", shm::gpu_table(), 2).value();
    ASSERT_TRUE(state.place(shm::small_placement()).is_ok());
    written.kept.keep({std::move(state)}, "rank 3 died", written.now);
    written.kept.note_lost("old", "its memory is needed", written.now);
    std::set<std::string> shown;
    std::set<std::string> promised;
    auto facts = written.facts();
    facts.gpus.push_back({});
    collect_keys(json::parse(status_document(facts, written.now)), "", shown);
    collect_keys(documented(), "", promised);
    EXPECT_EQ(shown, promised);
}

}  // namespace
}  // namespace gradsieve::daemon::test
