// One group's step: who handed in what, whose payloads are here, what was coded, decoded and acknowledged. Facts and
// questions only; GroupRounds draws the conclusions. One thread; owned by GroupRounds.
#pragma once

#include "base/clock.hpp"
#include "base/id.hpp"
#include "exchange/record.hpp"

#include <map>
#include <optional>
#include <vector>

namespace gradsieve::exchange {

/// One member's payload of one tensor, as far as it is here.
class Assembly {
public:
    enum class Taken : std::uint8_t { kNew, kRepeated, kConflict };
    /// Takes a record's content; an equal repetition changes nothing, a different one is refused.
    [[nodiscard]] Taken take(const Record& record);
    [[nodiscard]] bool is_empty() const { return !mark_ && chunks_.empty(); }
    [[nodiscard]] bool is_complete() const { return mark_.has_value() || (count_ && chunks_.size() == *count_); }
    /// The failure that stands in place of a payload.
    [[nodiscard]] const std::optional<Status>& failure() const { return failure_; }
    /// The records that say all this again, for sending. Only when complete.
    [[nodiscard]] std::vector<Record> records(std::uint32_t tensor) const;
    [[nodiscard]] std::vector<std::pair<std::uint32_t, SharedView>> chunks() const;
    [[nodiscard]] ByteCount payload_bytes() const { return payload_bytes_; }

private:
    [[nodiscard]] Taken take_mark(const Record& record);

    std::map<std::uint32_t, SharedView> chunks_;
    std::optional<std::uint32_t> count_;
    std::optional<Record> mark_;
    std::optional<Status> failure_;
    ByteCount payload_bytes_ = 0;
};

/// Our own payload as records.
[[nodiscard]] std::vector<Record> records_of_chunks(std::uint32_t tensor,
                                                    std::vector<std::pair<std::uint32_t, SharedView>> chunks);
/// The mark that stands for a failed tensor.
[[nodiscard]] Record mark_of_failure(std::uint32_t tensor, const Status& status);

/// One payload of every member: a tensor's, or that of one of its phases.
struct TensorRound {
    std::vector<bool> submitted;  ///< by local rank; empty for a second phase, which nobody hands in
    std::vector<Assembly> from;   ///< by member
    bool is_encode_requested = false;
    bool is_encoded = false;
    bool is_decode_requested = false;
    bool is_decoded = false;
    bool is_delivered = false;
    std::uint64_t digest = 0;
    [[nodiscard]] bool is_submitted() const;
    [[nodiscard]] bool is_complete() const;
};

struct Round {
    struct Acknowledgement {
        bool is_aborted = false;
        std::optional<std::uint64_t> digest;  ///< nothing: inferred from what the peer did next
        bool is_compared = false;
    };
    struct RemoteProgress {
        bool is_submitted = false;
        std::vector<Rank> late_ranks;
    };
    Round() = default;
    /// `second_phases` of the payloads, the last ones, follow on another one.
    Round(Step number, std::size_t payloads, std::size_t second_phases, std::size_t members, std::size_t local_ranks);

    [[nodiscard]] bool is_submitted() const;  ///< by all local ranks
    [[nodiscard]] bool is_complete() const;   ///< all payloads of all members are here
    [[nodiscard]] bool has_all_from(std::size_t member) const;
    [[nodiscard]] bool has_submission() const;  ///< by any local rank
    [[nodiscard]] ByteCount payload_bytes() const;

    Step step = 0;
    std::vector<TensorRound> payloads;                 ///< by position in the group
    std::vector<std::optional<Acknowledgement>> acks;  ///< by member
    std::vector<RemoteProgress> progress;              ///< by member
    std::optional<TimePoint> opened_at;                ///< first sign of the step, from anywhere
    std::optional<TimePoint> submitted_at;             ///< all live ranks have handed in, as far as known
    std::optional<TimePoint> reported_at;              ///< last Progress sent
    bool has_fetched = false;                          ///< the first deadline passed
    bool is_aborted = false;
    std::uint64_t digest = 0;
};

}  // namespace gradsieve::exchange
