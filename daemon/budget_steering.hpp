// Fits what a job's encoders send to a budget: after each committed step of a group, its controller says at which
// density the group's tensors are encoded from the next one on. All tensors of a group move by one factor, so they
// share the budget in the proportion that their codecs were written in. Payloads say what they hold, so each node moves
// alone, and all get the same averages. Conductor thread; owned by the job.
#pragma once

#include "codec/density.hpp"
#include "daemon/config.hpp"
#include "daemon/config_budget.hpp"
#include "daemon/hosted_group.hpp"
#include "daemon/hosted_tensor.hpp"
#include "exchange/density_controller.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::daemon {

/// The array in which a group's controller outlives the daemon, with one of its tensors (docs/state-format.md).
inline constexpr std::string_view kSteeringName = "steering";
inline constexpr ByteCount kSteeringBytes = 64;

/// How one group's budget stands, for status.
struct BudgetView {
    std::string verdict;  ///< "searching", "holding", "densest", "over at least", "off"
    std::string text;     ///< what was chosen, and why
    double limit = 0,
           cost = 0;  ///< of a step: bytes or milliseconds; cost: in the mean (median of times), 0 = not known
    double density = 1;
    std::uint64_t moves = 0;  ///< how often the density has changed in this life
    double coded_ms = 0;      ///< of the last step: coding and sending; 0 = the link has not been measured
    double plain_ms = 0;      ///< what sending all of it as fp32 would take, at the best that the link has shown
};
/// What a committed step of a group took.
struct SteeredStep {
    std::size_t members = 1;      ///< nodes of the job
    double codec_ms = 0;          ///< encoding and decoding, by all threads together
    double link_ms_per_byte = 0;  ///< of a payload byte for every other node; 0 = not known
    double best_ms_per_byte = 0;  ///< the least of that lately, of large payloads
};

class BudgetSteering {
public:
    /// Once, before state is laid out. `own`: the budget in the codec's text, if it names one.
    void lay_out(std::span<const HostedTensor> tensors, std::span<const GroupTotals> groups, const Budget& own,
                 const Config& config);
    /// The tensor's state has the array `steering`, in which its group's controller outlives the daemon.
    [[nodiscard]] bool is_kept_with(exchange::TensorNumber tensor) const noexcept;

    /// State is in place, and the group goes on after `committed` (0: begins anew).
    void start(exchange::GroupNumber group, Step committed, std::span<HostedTensor> tensors);
    /// Every tensor of the group has been encoded and decoded, and the step is about to count as committed in `state`.
    void on_committed(exchange::GroupNumber group, Step step, std::span<HostedTensor> tensors, const SteeredStep& took,
                      const Config& config);

    /// That counts now: the job's own, or the configuration's.
    [[nodiscard]] Budget budget(const Config& config) const noexcept;
    [[nodiscard]] bool is_own() const noexcept { return own_.is_set(); }
    [[nodiscard]] BudgetView view(exchange::GroupNumber group, std::span<const HostedTensor> tensors,
                                  const Config& config) const;

private:
    struct Steered {
        std::vector<exchange::TensorNumber> tensors;  ///< of the group: those that have a density
        std::vector<exchange::TensorNumber> all;
        std::optional<exchange::TensorNumber> keeper;  ///< in whose state the controller is kept
        exchange::DensityRange range;
        codec::DensityResponse response = codec::DensityResponse::kExact;
        double share = 1;       ///< of the job's budget: as its codecs, as written, send
        bool is_timed = false;  ///< what the controller's costs are
        std::optional<exchange::DensityController> controller;
        std::uint64_t moves = 0;
        SteeredStep last;  ///< while there is a budget
        double last_bytes = 0;
    };
    struct Costs {
        double all = 0, fixed = 0;
    };
    void judge(Steered& group, const Costs& bytes, const Budget& limits);
    static void set_density(Steered& group, std::span<HostedTensor> tensors);
    static void keep(const Steered& group, Step step, std::span<HostedTensor> tensors);
    void begin(Steered& group, bool is_timed, const exchange::DensityState& state);
    [[nodiscard]] static Costs sent_bytes(const Steered& group, Step step, std::span<const HostedTensor> tensors);

    Budget own_;
    std::vector<Steered> groups_;  ///< by number
};

}  // namespace gradsieve::daemon
