// The inside of JobMachine: its parts, and how events reach them. Included by the job_*.cpp files only. One thread.
#pragma once

#include "exchange/decision.hpp"
#include "exchange/formation.hpp"
#include "exchange/group_rounds.hpp"
#include "exchange/job_machine.hpp"
#include "exchange/outbox.hpp"
#include "exchange/side_rounds.hpp"
#include "exchange/snapshot_rounds.hpp"

#include <optional>
#include <vector>

namespace gradsieve::exchange {

struct JobMachine::Impl {
    enum class Phase : std::uint8_t { kForming, kRunning, kEnded };
    struct Early {
        PeerIndex from = 0;
        std::uint16_t type = 0;
        Epoch epoch = 0;
        Step step = 0;
        SharedView body;
    };

    Impl(JobKey key, PeerIndex self, std::vector<NodeName> nodes, const JobTimes& times, const JobLimits& limits,
         std::uint64_t epoch_seed);

    // -- life (job_machine.cpp) --
    void begin(const Start& agreed, Epoch agreed_epoch, TimePoint now);
    void start_if_ready(TimePoint now);
    /// After every event: acts on what the parts found.
    void settle(TimePoint now);
    void refuse_start(const Status& status);
    void end_everywhere(const Status& status);
    void finish(const Status& status);
    [[nodiscard]] Status check_local(Rank rank) const;
    [[nodiscard]] Status check_submission(Rank rank, TensorNumber tensor) const;
    void on_rank_left(Rank rank, bool is_clean, const std::string& text, TimePoint now);
    void on_rank_died(Rank rank, const std::string& text, std::optional<PeerIndex> heard_from);
    void detach(Rank rank, TimePoint now);
    void on_members_changed(TimePoint now);
    [[nodiscard]] bool is_leaving_done(TimePoint now) const;

    // -- peers and time (job_peers.cpp) --
    void on_link(PeerIndex peer, LinkState state, std::uint64_t instance, const std::string& text, TimePoint now);
    void resend_to(PeerIndex peer, TimePoint now);
    void send_start(PeerIndex to);
    [[nodiscard]] Bytes detached_body() const;
    void on_time(TimePoint now);
    void check_links(TimePoint now);
    void check_answers(TimePoint now);
    void fail_peer(PeerIndex peer, const std::string& text, TimePoint now);
    [[nodiscard]] JobSnapshot snapshot(TimePoint now) const;

    // -- frames (job_frames.cpp) --
    void on_frame(const Early& frame, TimePoint now);
    void on_prepared(PeerIndex from, ByteView body, TimePoint now);
    void on_prepared_while_running(PeerIndex from, const Prepared& prepared, TimePoint now);
    void on_start(const Early& frame, TimePoint now);
    void on_refuse(PeerIndex from, ByteView body);
    void keep_early(const Early& frame);
    void answer_after_end(const Early& frame);
    void on_member_frame(std::size_t from, const Early& frame, TimePoint now);
    void on_round_frame(std::size_t from, const Early& frame, TimePoint now);
    void on_decision_frame(std::size_t from, const Early& frame, TimePoint now);
    void on_data(std::size_t from, const Early& frame, TimePoint now);
    void on_ack(std::size_t from, Step step, const Ack& ack, TimePoint now);
    void on_progress(std::size_t from, Step step, const Progress& progress, TimePoint now);
    void on_detached(std::size_t from, const Detached& detached, TimePoint now);
    void on_end(PeerIndex from, const Reason& reason);
    [[nodiscard]] GroupRounds* rounds_of_stream(Stream stream);

    // constant after construction
    const std::uint64_t epoch_seed;

    // changes with events
    JobContext context;
    Formation formation;
    Phase phase = Phase::kForming;
    Outbox outbox;
    std::vector<GroupRounds> group_rounds;  ///< by group, once started
    SideRounds sides;
    SnapshotRounds snapshots;
    std::optional<Decision> decision;  ///< once started
    std::optional<Start> start;
    TimePoint started_at{};
    std::optional<TimePoint> leaving_since;  ///< all local ranks have detached
    std::vector<Early> early;                ///< frames of members that started before us
    ByteCount early_bytes = 0;
    bool has_answered_sides = false;
    std::optional<Status> end;  ///< what the job ended with
};

}  // namespace gradsieve::exchange
