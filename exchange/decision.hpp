// How the nodes decide together what becomes of open steps once a peer failed or a deadline passed: complain to the
// coordinator, who asks everybody, who freeze and report; then one verdict for all. One thread; owned by JobMachine.
//
// Why no two nodes differ: from its report until the verdict a node ends no step. If any node that answers is done with
// (or has all payloads of) the newest step, or reaches a member that is, that step counts and the others fetch what
// they lack; else it fails. Whoever gets the verdict passes it on before it acts, so it reaches all that can be
// reached, even if the coordinator dies while sending. A node asked by two coordinators obeys the one with the lowest
// rank that it can still reach and tells the other, which stays frozen until that one's verdict comes in by way of a
// third node, or gives up without a result.
#pragma once

#include "exchange/group_rounds.hpp"
#include "exchange/job_context.hpp"

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace gradsieve::exchange {

class Decision {
public:
    Decision(JobContext& context, std::vector<GroupRounds>& rounds);

    /// Something was found here.
    void start(const Complaint& complaint, TimePoint now);
    void on_complaint(std::size_t from, const Complaint& complaint, TimePoint now);
    void on_query(std::size_t from, const Query& query, TimePoint now);
    void on_report(std::size_t from, const Report& report, TimePoint now);
    void on_verdict(std::size_t from, const Verdict& verdict, TimePoint now);
    void on_members_changed(TimePoint now);
    void on_time(TimePoint now);
    void resend_to(std::size_t member, TimePoint now);

    [[nodiscard]] bool is_open() const { return stage_ != Stage::kNone; }
    [[nodiscard]] bool is_decided() const { return verdict_.has_value(); }
    [[nodiscard]] bool has_given_up() const { return given_up_.has_value(); }
    /// The verdict's reason once it is known: what ranks get from now on.
    [[nodiscard]] std::optional<Status> reason() const;
    /// Set once there is nothing left to do; the job ends with it.
    [[nodiscard]] std::optional<Status> outcome(TimePoint now) const;

private:
    enum class Stage : std::uint8_t {
        kNone,
        kComplaining,  ///< the coordinator was told
        kReported,     ///< frozen, waiting for `leader_`'s verdict
        kAsking,       ///< frozen, collecting reports
        kOverruled,    ///< frozen, a better coordinator lives that we do not reach: its verdict may come by others
        kDecided,      ///< carrying the verdict out
        kGivenUp,      ///< no verdict can reach us
    };
    [[nodiscard]] std::size_t coordinator() const;
    void freeze();
    void pursue(TimePoint now);
    void begin_asking(TimePoint now);
    void ask(std::size_t member);
    void check_reports(TimePoint now);
    void decide(TimePoint now);
    void adopt(const Verdict& verdict, TimePoint now);
    void carry_out(TimePoint now);
    void give_up(const std::string& why);
    void drop_silent_members(TimePoint now);
    [[nodiscard]] bool is_expected(std::size_t member, TimePoint now) const;
    [[nodiscard]] Report own_report() const;
    [[nodiscard]] bool is_carried_out() const;

    JobContext& context_;
    std::vector<GroupRounds>& rounds_;
    Stage stage_ = Stage::kNone;
    Reason cause_;
    std::vector<PeerIndex> failed_;    ///< whom we complain about
    std::optional<std::size_t> told_;  ///< whom we complained to
    std::size_t leader_ = 0;
    TimePoint since_{};                      ///< of the stage, or of the present addressee
    TimePoint sent_at_{};                    ///< last repetition
    std::uint32_t attempt_ = 0;              ///< of our asking
    std::uint32_t leader_attempt_ = 0;       ///< of the leader's
    std::map<std::size_t, Report> reports_;  ///< by member
    std::optional<Verdict> verdict_;
    std::set<std::size_t> echoed_;  ///< members known to have the verdict
    std::string overruled_by_;
    std::optional<Status> given_up_;
};

}  // namespace gradsieve::exchange
