// Where the configuration asks for it, compression steps aside: after each committed step of a group, what coding and
// sending each of its tensors took says whether the next step sends the tensor coded or plain. Payloads say what they
// hold, so each node chooses alone, and all get the same averages. Time decides, so nothing of it is kept: whoever goes
// on from a step begins coded. Conductor thread; owned by the job.
#pragma once

#include "daemon/budget_steering.hpp"
#include "daemon/hosted_group.hpp"
#include "daemon/hosted_tensor.hpp"
#include "exchange/step_aside.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::daemon {

/// How the choice stands for a job's tensors, for status. Milliseconds are of a step: coding and sending all tensors
/// that may go plain, were nothing to overlap.
struct PlainView {
    std::size_t eligible = 0;           ///< that may go plain
    std::size_t aside = 0;              ///< that go plain
    std::size_t trying = 0;             ///< that do so to measure it
    std::string text;                   ///< what was chosen, and why
    double coded_ms = 0, plain_ms = 0;  ///< were all of them coded, or plain; 0 = not known
    double saved_ms = 0;                ///< beside the one that was not chosen
    std::uint64_t moves = 0;            ///< how often a tensor has changed in this life
    struct Refusal {
        std::string_view text;
        std::size_t tensors = 0;
    };
    std::vector<Refusal> refusals;  ///< why others may not
};

class PlainChoice {
public:
    /// Once, before the job starts.
    void lay_out(std::span<const HostedTensor> tensors);
    /// The group begins, coded.
    void start(const GroupTotals& group, std::span<HostedTensor> tensors);
    /// Every tensor of the group has been encoded and decoded. `is_asked`: by the configuration, and no budget is set;
    /// otherwise all go as they are written.
    void on_committed(const GroupTotals& group, Step step, std::span<HostedTensor> tensors, const SteeredStep& took,
                      bool is_asked);

    [[nodiscard]] PlainView view(std::span<const HostedTensor> tensors, bool has_budget) const;

private:
    struct Chosen {
        std::string_view refusal;  ///< "" = it may go plain
        std::optional<exchange::StepAside> choice;
        bool is_plain = false;  ///< as its pipeline is
    };
    static void set_plain(Chosen& chosen, HostedTensor& tensor, bool is_plain);

    std::vector<Chosen> chosen_;  ///< by tensor number
};

}  // namespace gradsieve::daemon
