// The control messages between the machines of one job, as values, and their bytes. Every body starts with the 64-bit
// hash of the job's key; epoch and step stand in the transport's header. Parse reads untrusted bytes and takes nothing
// from a body that does not parse. Layouts: docs/wire-format-jobs.md. Any thread; plain values.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/status.hpp"
#include "exchange/job_spec.hpp"

#include <string>
#include <vector>

namespace gradsieve::exchange {

/// Numbers are on the wire: never reused.
enum class FrameType : std::uint16_t {
    kPrepared = 16,
    kStart = 17,
    kRefuse = 18,
    kRecords = 19,  ///< the sender's own payloads
    kRelay = 20,    ///< payloads of a third node, on request
    kAck = 21,
    kCredit = 22,
    kProgress = 23,
    kFetch = 24,
    kComplaint = 25,
    kQuery = 26,
    kReport = 27,
    kVerdict = 28,
    kRankDied = 29,
    kDetached = 30,
    kEnd = 31,
    kBroadcastAsk = 32,
    kBroadcast = 33,  ///< a piece of the root's bytes
    kCheck = 34,
    kSnapshotAsk = 35,
    kSnapshotAnswer = 36,
    kSnapshotKept = 37,  ///< every member has it
};

/// What is acknowledged, credited and reported on: side rounds by their running number, groups by their step.
using Stream = std::uint32_t;
inline constexpr Stream kBroadcastStream = 0;
inline constexpr Stream kCheckStream = 1;
inline constexpr Stream kFirstGroupStream = 2;  ///< + group number

inline constexpr std::size_t kMessageTextLimitBytes = 4096;
/// In front of a job specification, whose first byte is its format: the epochs of kept steps come first.
inline constexpr std::uint8_t kKeptEpochs = 2;

struct Prepared {  // "these ranks are here, and this is what they want"
    JobKey key;
    std::uint64_t nonce = 0;            ///< one life of the sender's machine
    std::uint64_t sequence = 0;         ///< grows with every announcement of that life
    std::vector<Rank> ranks;            ///< ascending
    std::vector<Step> next_steps;       ///< per group: 1, or the one after the step that is named to go on from
    std::vector<KeptSteps> kept_steps;  ///< per group; empty = nothing kept
    JobSpec spec;
};
struct StartMember {
    PeerIndex peer = 0;
    std::uint64_t nonce = 0;
    std::vector<Rank> ranks;
};
struct Start {
    std::uint64_t spec_digest = 0;
    std::vector<StartMember> members;  ///< ascending by lowest rank
    std::vector<Step> first_steps;
};
/// Refuse and End: why the job cannot start, or has ended.
struct Reason {
    StatusCode code = StatusCode::kOk;
    std::string text;
    [[nodiscard]] Status status() const { return {code, text}; }
};
struct Ack {
    Stream stream = 0;
    bool is_aborted = false;
    std::uint64_t digest = 0;
};
struct Credit {
    Stream stream = 0;
    ByteCount bytes = 0;
};
struct Progress {
    Stream stream = 0;
    bool is_submitted = false;  ///< all ranks of the sender have handed in the whole step
    bool is_complete = false;   ///< all payloads of the step are at the sender
    bool is_reply = false;      ///< asks for no reply itself
    std::vector<Rank> late_ranks;
};
struct Fetch {
    struct Want {
        PeerIndex origin = 0;
        std::uint32_t tensor = 0;
    };
    std::vector<Want> wants;  ///< of the group that the tensors belong to
};
struct Complaint {  // to the coordinator: the nodes must decide together
    Reason reason;
    std::vector<PeerIndex> failed;  ///< whom the sender holds for failed
};
struct Query {
    std::uint32_t attempt = 0;
    Reason reason;
};
struct Report {
    struct Group {
        Step done = 0;             ///< last step that ended here
        bool is_complete = false;  ///< all payloads of the step after it are here
    };
    std::uint32_t attempt = 0;
    bool is_refused = false;    ///< the sender still reaches a better coordinator
    PeerIndex coordinator = 0;  ///< that one
    std::vector<Group> groups;
};
struct Verdict {
    struct Group {
        Step target = 0;       ///< the last step that counts; every later one fails everywhere
        PeerIndex source = 0;  ///< who has its payloads
    };
    Reason reason;  ///< what the job ends with after it
    std::vector<Group> groups;
};
struct RankDied {
    Rank rank = 0;
    std::string text;
};
struct Detachment {
    Rank rank = 0;
    Step last_broadcast = 0;  ///< numbers up to these were asked by the rank
    Step last_check = 0;
    std::vector<Step> last_steps;  ///< per group: last step with all of the rank's samples coded
    bool operator==(const Detachment&) const = default;
};
struct Detached {
    std::vector<Detachment> ranks;  ///< all that the sender knows of
};
struct BroadcastAsk {  // number in the header's step
    std::uint32_t tensor = 0;
    Rank root = 0;
    bool operator==(const BroadcastAsk&) const = default;
};
struct BroadcastPiece {  // the bytes follow to the end of the body
    BroadcastAsk ask;
    ByteCount total_bytes = 0;
    ByteCount first_byte = 0;
    std::size_t header_bytes = 0;  ///< set by parse: where the bytes begin in the body
};
struct Check {  // number in the header's step
    std::vector<std::pair<Rank, std::uint64_t>> digests;
};

struct SnapshotAsk {  // step in the header; also says that every member has one
    std::uint32_t group = 0;
};
struct SnapshotAnswer {  // step in the header
    std::uint32_t group = 0;
    Reason reason;             ///< kOk: it is there
    std::uint64_t digest = 0;  ///< of the sender's values
    ByteCount bytes = 0;       ///< of the sender's values
};

[[nodiscard]] Bytes build_message(std::uint64_t hash, const Prepared& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Start& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Reason& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Ack& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Credit& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Progress& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Fetch& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Complaint& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Query& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Report& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Verdict& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const RankDied& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Detached& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const BroadcastAsk& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const Check& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const SnapshotAsk& message);
[[nodiscard]] Bytes build_message(std::uint64_t hash, const SnapshotAnswer& message);

/// Data frames begin with a flags byte after the hash; bit 0: the sender waits for credit.
inline constexpr std::uint8_t kFlagCreditWanted = 1;
[[nodiscard]] Bytes build_data_prefix(std::uint64_t hash, std::uint8_t flags);
/// A relay also names whose payloads follow.
[[nodiscard]] Bytes build_relay_prefix(std::uint64_t hash, std::uint8_t flags, PeerIndex origin);
/// What stands before a broadcast piece's bytes, after the prefix.
[[nodiscard]] Bytes build_piece_header(const BroadcastPiece& piece);

struct DataPrefix {
    std::uint8_t flags = 0;
    PeerIndex origin = 0;        ///< relays only
    std::size_t first_byte = 0;  ///< where the records begin
};

/// Errors of all of them: kCorrupt, naming the message. The hash is skipped, not compared.
[[nodiscard]] Result<Prepared> parse_prepared(ByteView body);
[[nodiscard]] Result<Start> parse_start(ByteView body);
[[nodiscard]] Result<Reason> parse_reason(ByteView body);
[[nodiscard]] Result<Ack> parse_ack(ByteView body);
[[nodiscard]] Result<Credit> parse_credit(ByteView body);
[[nodiscard]] Result<Progress> parse_progress(ByteView body);
[[nodiscard]] Result<Fetch> parse_fetch(ByteView body);
[[nodiscard]] Result<Complaint> parse_complaint(ByteView body);
[[nodiscard]] Result<Query> parse_query(ByteView body);
[[nodiscard]] Result<Report> parse_report(ByteView body);
[[nodiscard]] Result<Verdict> parse_verdict(ByteView body);
[[nodiscard]] Result<RankDied> parse_rank_died(ByteView body);
[[nodiscard]] Result<Detached> parse_detached(ByteView body);
[[nodiscard]] Result<BroadcastAsk> parse_broadcast_ask(ByteView body);
[[nodiscard]] Result<Check> parse_check(ByteView body);
[[nodiscard]] Result<SnapshotAsk> parse_snapshot_ask(ByteView body);
[[nodiscard]] Result<SnapshotAnswer> parse_snapshot_answer(ByteView body);
[[nodiscard]] Result<DataPrefix> parse_data_prefix(ByteView body, bool is_relay);
[[nodiscard]] Result<BroadcastPiece> parse_broadcast_piece(ByteView body);

}  // namespace gradsieve::exchange
