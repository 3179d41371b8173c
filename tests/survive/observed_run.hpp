// A job of four ranks on two nodes whose processes are killed and frozen from outside while all that they say is taken
// down. Of one thread; whatever it started dies with it.
#pragma once

#include "tests/survive/fault_row.hpp"
#include "tests/survive/residue.hpp"
#include "tests/survive/run_ledger.hpp"

#include <functional>
#include <optional>

namespace gradsieve::survive {

using e2e::Milliseconds;

struct RunSetting {
    std::string codec;
    std::uint64_t steps = 100;
    unsigned compute_ms = 4;  ///< what a training step takes besides
    std::string configuration;
    std::vector<e2e::Place> places;  ///< none: both daemons on loopback
    Milliseconds deadline{10'000};   ///< of each call of a rank
};

inline constexpr std::size_t kNodes = 2;
inline constexpr std::size_t kWorld = 4;

class ObservedRun {
public:
    explicit ObservedRun(const RunSetting& setting);

    /// Takes down what was said since, and waits up to `patience` for `condition`; false if it does not come true.
    bool pump_until(const std::function<bool()>& condition, Milliseconds patience);
    /// The same for that long.
    void pump_for(std::chrono::microseconds time);
    bool wait_for_step(std::size_t rank, std::uint64_t step, Milliseconds patience = Milliseconds(60'000));
    /// When the daemon first said `text` behind the first `from` bytes of its output; nothing at the deadline.
    std::optional<Instant> wait_for_word(std::size_t node, const std::string& text, std::size_t from,
                                         Milliseconds patience);

    void kill_rank(std::size_t rank);
    void start_rank(std::size_t rank);
    void signal_rank(std::size_t rank, int number) const { ranks_[rank].process->send_signal(number); }
    /// All come to the last step, keep it on disk, and leave; what is kept and what is left behind is noted.
    void finish();

    [[nodiscard]] e2e::Cluster& cluster() { return cluster_; }
    [[nodiscard]] RunLedger& ledger() { return ledger_; }
    [[nodiscard]] std::string daemon_output(std::size_t node);
    /// Whether the last that `node` said of the other one is that it is up.
    [[nodiscard]] bool calls_peer_up(std::size_t node);
    [[nodiscard]] std::uint64_t newest_step() const;
    [[nodiscard]] const RunSetting& setting() const { return setting_; }

    /// Files beside socket and status page in the folder of a daemon that is dead.
    void look_at_folder(std::size_t node);

    std::vector<std::string> residue;           ///< what was left and should not have been
    std::vector<std::string> troubles;          ///< what went wrong otherwise
    std::map<std::string, std::uint64_t> kept;  ///< digests of the state after the last step, by node and file
    std::map<std::string, double> residuals;    ///< weighted sums by group, of codecs that keep residuals alone

private:
    struct Rank {
        std::unique_ptr<e2e::Process> process;
        std::size_t parsed = 0;
    };
    void pump();
    void note_kept();
    void note_residue();
    void trouble(const std::string& what);

    RunSetting setting_;
    std::set<std::string> shared_memory_before_;
    e2e::Cluster cluster_;
    std::vector<Holdings> before_;  ///< of the daemons, without a job
    std::vector<Rank> ranks_;
    RunLedger ledger_;
};

/// Of a run in which no step may fail: breaches of `row` for whoever began anew, for averages that did not reach every
/// rank, and for what went wrong otherwise.
void judge_unfailed(FaultRow& row, ObservedRun& run);

}  // namespace gradsieve::survive
