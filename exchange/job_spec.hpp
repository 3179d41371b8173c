// What all nodes of a job must agree on before its first step, and how they compare it. Plain values; parse reads
// untrusted bytes. Any thread.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/status.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace gradsieve::exchange {

/// Ranks of one job: keeps tables that are sized by untrusted numbers small.
inline constexpr std::uint32_t kWorldSizeLimit = 65536;

struct JobKey {
    std::string name;
    std::string run_id;
    auto operator<=>(const JobKey&) const = default;
};
/// Steps that a node's state of one group can go on from, newest first: the two in memory, and those of snapshots.
inline constexpr std::size_t kKeptStepsLimit = 8;
struct KeptSteps {
    std::vector<Step> steps;  ///< none of them 0; empty = nothing kept: the group begins anew
    /// Beside each step the life of the job that made it, where nodes can go on together only from states of one life;
    /// 0 or missing = from those of any.
    std::vector<Epoch> epochs = {};
    [[nodiscard]] bool has(Step step) const { return std::find(steps.begin(), steps.end(), step) != steps.end(); }
    [[nodiscard]] bool has(Step step, Epoch epoch) const { return has(step) && epoch_of(step) == epoch; }
    [[nodiscard]] Epoch epoch_of(Step step) const;
    /// In its place; one that is there stays as it is.
    void add(Step step, Epoch epoch);
    void remove(Step step);
    [[nodiscard]] Step newest() const { return steps.empty() ? 0 : steps.front(); }
    bool operator==(const KeptSteps&) const = default;
};
struct TensorSpec {
    std::string name;
    std::string group;
    std::vector<std::uint64_t> shape;
    std::string rule;  ///< canonical codec text of this tensor with the encoder's knobs blanked; opaque here
    /// Rounds of payloads that a step of it has, 1 or 2. Whoever knows the rule knows it: neither sent nor compared.
    std::uint8_t phases = 1;
    /// The sharded plan (shards.hpp), only with two phases: each chunk of a first payload goes to the member that owns
    /// it, whose second payload has its chunks alone. Neither sent nor compared either.
    bool is_sharded = false;
    [[nodiscard]] ElementCount elements() const noexcept;
    bool operator==(const TensorSpec& other) const {
        return name == other.name && group == other.group && shape == other.shape && rule == other.rule;
    }
};
struct JobSpec {
    std::uint32_t world_size = 1;
    std::uint8_t non_finite_policy = 0;
    std::string codec;                ///< canonical text, knobs blanked; opaque here
    std::vector<TensorSpec> tensors;  ///< sorted by name; the position is the tensor's number on the wire
    bool operator==(const JobSpec&) const = default;
};
[[nodiscard]] Bytes build_job_spec(const JobSpec& spec);
[[nodiscard]] Result<JobSpec> parse_job_spec(ByteView bytes);
/// "tensor 'fc.weight': shape [10, 128] on node a, [10, 256] on node b"; empty if equal. Names as "node a", "rank 3".
[[nodiscard]] std::string first_difference(const JobSpec& left, std::string_view left_name, const JobSpec& right,
                                           std::string_view right_name);

}  // namespace gradsieve::exchange
