// Plays several nodes of one job in one process: machines joined by a simulated network under a simulated clock, with a
// codec of plain sums whose right answer is computed independently. Every run checks the exchange's promises as it
// goes. One thread; a test owns it.
#pragma once

#include "exchange/job_machine.hpp"
#include "exchange/messages.hpp"

#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gradsieve::exchange {

struct SimOptions {
    std::vector<std::vector<Rank>> ranks;  ///< by node
    JobSpec spec;
    JobTimes times{.round_deadline = std::chrono::seconds(2),
                   .peer_timeout = std::chrono::seconds(3),
                   .announce_every = std::chrono::milliseconds(200),
                   .max_late = std::nullopt};
    JobLimits limits = {};
    std::uint64_t seed = 1;
    Duration delay_least = std::chrono::microseconds(100);
    Duration delay_most = std::chrono::microseconds(100);
    double repeat = 0;              ///< probability that a frame arrives twice
    double lose = 0;                ///< probability that a frame is lost although the link is up
    bool is_bulk_ordered = true;    ///< false: data frames overtake one another
    bool keep_ended = true;         ///< the hall keeps ended machines
    bool asks_for_answers = false;  ///< every other node measures its links
    bool can_mismatch = false;      ///< digests are tampered with on purpose
};

/// `tensors` tensors over `groups` groups, some of several chunks.
[[nodiscard]] JobSpec make_spec(std::uint32_t world_size, std::uint32_t tensors, std::uint32_t groups,
                                std::uint8_t non_finite_policy = 0);
/// The same, in which every tensor with an odd number has two phases; the second one's values depend on what the first
/// one's decoded to.
[[nodiscard]] JobSpec make_phased_spec(std::uint32_t world_size, std::uint32_t tensors, std::uint32_t groups,
                                       std::uint8_t non_finite_policy = 0);

/// The same, in which these and the tensors of three chunks are sharded: an owner sends twice the sum of what it got.
[[nodiscard]] JobSpec make_sharded_spec(std::uint32_t world_size, std::uint32_t tensors, std::uint32_t groups,
                                        std::uint8_t non_finite_policy = 0);

class Sim {
public:
    explicit Sim(SimOptions options);

    // -- what ranks do --
    [[nodiscard]] Status attach(Rank rank);
    [[nodiscard]] Status attach(std::size_t node, Rank rank, const JobSpec& spec);
    void attach_all();
    [[nodiscard]] Status submit(Rank rank, TensorNumber tensor, Step step);
    void submit_all(Step step);  ///< every tensor, by every rank
    void leave(Rank rank, bool is_clean, const std::string& text = "killed by signal 9");
    /// Each rank trains by itself: attaches, runs `steps` steps of every group in an order of its own, detaches.
    void train(Step steps, Duration pause_most = Duration(0));
    void make_non_finite(Rank rank, TensorNumber tensor, Step step) { non_finite_.insert({rank, tensor, step}); }

    // -- what networks and nodes do --
    void set_link(std::size_t a, std::size_t b, LinkState state);  ///< both sides are told; frames on the way are lost
    void kill(std::size_t node);                                   ///< the daemon dies
    void restart(std::size_t node);  ///< and comes back with another instance, without jobs
    /// Sees every frame that is sent; false drops it.
    std::function<bool(std::size_t from, const SendFrame& frame)> filter;
    /// Changes what a node decodes, to play broken arithmetic.
    std::function<std::uint64_t(std::size_t node, TensorNumber tensor, Step step, std::uint64_t bits)> tamper;
    /// Lets an encode fail.
    std::function<Status(std::size_t node, const EncodeTensor& encode)> fail_encode;
    /// Lets a decode fail.
    std::function<Status(std::size_t node, TensorNumber tensor, Step step)> fail_decode;
    std::map<std::size_t, KeptState> kept;  ///< by node: what its next machine offers

    // -- time --
    void run_for(Duration duration);
    /// Until all frames and codec work are done (ticks aside).
    void run_quiet(Duration limit = std::chrono::milliseconds(50));
    /// Until every rank that trains has ended; false if that takes longer.
    [[nodiscard]] bool run_until_done(Duration limit);
    void at(Duration from_start, std::function<void()> event);
    [[nodiscard]] TimePoint now() const { return now_; }

    // -- what came of it --
    struct Node {
        std::optional<JobMachine> machine;
        bool is_alive = true;
        std::uint64_t instance = 1;
        std::vector<Rank> ranks;
        std::vector<Action> log;  ///< all actions but SendFrame
        std::vector<Member> members;
        std::map<GroupNumber, Step> done, committed;
        std::map<std::pair<TensorNumber, Step>, Status> results;
        std::map<std::pair<TensorNumber, Step>, bool> nan_results;
        std::map<std::pair<TensorNumber, Step>, std::uint64_t> areas;         ///< decoded bits
        std::map<std::pair<TensorNumber, Step>, std::uint64_t> first_phases;  ///< the same of first phases
        /// By chunk: of first phases of sharded tensors.
        std::map<std::pair<TensorNumber, Step>, std::map<std::uint32_t, std::uint64_t>> shards;
        std::map<Step, Status> broadcasts, checks;
        std::map<Step, Bytes> broadcast_bytes;
        std::map<std::pair<GroupNumber, Step>, SnapshotOutcome> saved;  ///< what SaveSnapshot is answered with
        std::map<std::pair<GroupNumber, Step>, std::vector<DeliverSnapshot>> snapshots;
        std::vector<std::pair<GroupNumber, Step>> kept_everywhere;
        std::optional<Status> end;
        std::set<TensorNumber> encoding, decoding;
        std::set<std::pair<TensorNumber, Step>> delivered;
        std::uint64_t frames = 0;  ///< sent
    };
    [[nodiscard]] Node& node(std::size_t index) { return nodes_[index]; }
    [[nodiscard]] std::size_t size() const { return nodes_.size(); }
    [[nodiscard]] std::size_t node_of(Rank rank) const;
    [[nodiscard]] JobMachine& machine_of(Rank rank) { return *nodes_[node_of(rank)].machine; }
    [[nodiscard]] std::uint64_t expected_bits(TensorNumber tensor, Step step) const;
    /// Broken promises seen so far, in words; empty = all kept.
    [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
    [[nodiscard]] std::string text() const;  ///< of all machines, for failure messages
    struct Trainer {
        bool is_training = false, is_done = false;
        std::optional<Status> error;
        std::map<GroupNumber, Step> step;
        std::map<GroupNumber, std::set<TensorNumber>> open;  ///< handed in, no result yet
    };
    [[nodiscard]] const Trainer& trainer(Rank rank) { return trainers_[rank]; }
    [[nodiscard]] const JobKey& key() const { return key_; }
    /// Hands a frame to a node as if a peer had sent it.
    void deliver(std::size_t from, std::size_t to, const SendFrame& frame);

    /// Carries out what a test made a machine want by calling it directly.
    void deliver_actions(std::size_t node) { pump(node); }

private:
    struct Event {
        TimePoint at;
        std::uint64_t number;
        bool is_tick;
        std::function<void()> run;
        bool operator>(const Event& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
    };
    void push(Duration after, std::function<void()> run, bool is_tick = false);
    void step_event();
    void tick(std::size_t index);
    void create(std::size_t index);
    void pump(std::size_t index);
    void act(std::size_t index, const SendFrame& frame);
    void act(std::size_t index, const StartJob& start);
    void act(std::size_t index, const EncodeTensor& encode);
    void act(std::size_t index, const DecodeTensor& decode);
    void act(std::size_t index, const DeliverResult& result);
    void act(std::size_t index, const CommitStep& commit);
    void act(std::size_t index, const AbortStep& abort);
    void act(std::size_t index, const DeliverBroadcast& broadcast);
    void act(std::size_t index, const ReadBroadcast& read);
    void act(std::size_t index, const DeliverCheck& check);
    void act(std::size_t index, const SaveSnapshot& save);
    void act(std::size_t index, const SnapshotKept& kept);
    void act(std::size_t index, const DeliverSnapshot& snapshot);
    void act(std::size_t index, const EndJob& end);
    void close_step(std::size_t index, GroupNumber group, Step step);
    void train_on(Rank rank);
    void begin_step(Rank rank, GroupNumber group);
    void take_result(Rank rank, TensorNumber tensor, const Status& status);
    void end_rank(Rank rank, const Status& status);
    void violation(const std::string& text);
    [[nodiscard]] GroupNumber group_of(TensorNumber tensor) const;
    [[nodiscard]] std::vector<TensorNumber> tensors_of(GroupNumber group) const;
    [[nodiscard]] std::vector<std::pair<std::uint32_t, SharedView>> encode(std::size_t index,
                                                                           const EncodeTensor& action) const;
    [[nodiscard]] std::uint64_t expected_bits(TensorNumber tensor, Step step, std::uint64_t first_phase) const;
    [[nodiscard]] bool is_first_of_two(TensorNumber tensor, std::uint8_t phase) const {
        return options_.spec.tensors[tensor].phases == 2 && phase == 0;
    }
    [[nodiscard]] bool is_sharded(TensorNumber tensor) const { return options_.spec.tensors[tensor].is_sharded; }
    [[nodiscard]] std::vector<std::vector<Rank>> members_in_order() const;
    [[nodiscard]] std::uint64_t expected_shards(TensorNumber tensor, Step step) const;
    [[nodiscard]] Duration random_delay();

    SimOptions options_;
    JobKey key_{"job", "run-1"};
    std::mt19937_64 random_;
    TimePoint now_{std::chrono::hours(1)};
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::uint64_t next_number_ = 0, busy_events_ = 0;
    std::vector<Node> nodes_;
    std::map<std::pair<std::size_t, std::size_t>, std::uint64_t>
        link_lives_;  ///< ascending pair: frames of an old life are lost
    std::map<std::pair<std::size_t, std::size_t>, LinkState> links_;
    std::map<std::tuple<std::size_t, std::size_t, bool>, TimePoint> last_arrival_;
    std::map<Rank, Trainer> trainers_;
    Step steps_ = 0;
    Duration pause_most_{};
    std::set<std::tuple<Rank, TensorNumber, Step>> non_finite_;
    std::vector<std::string> violations_;
    std::vector<std::string> group_names_;
};

[[nodiscard]] inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}
[[nodiscard]] inline bool is_type(const SendFrame& frame, FrameType type) {
    return frame.type == static_cast<std::uint16_t>(type);
}

}  // namespace gradsieve::exchange
