// What the tool asks of its node's daemon about the time of a job's steps, and the events that the daemon answers with.
// Messages on the local socket, without an attach. Field by field in docs/shared-memory.md. Parse functions read
// untrusted bytes. Plain values; any thread.
#pragma once

#include "base/clock.hpp"
#include "shm/message.hpp"

#include <string>
#include <vector>

namespace gradsieve::shm {

/// Steps of one trace.
inline constexpr std::uint32_t kTraceStepLimit = 10'000;
/// Events of one trace: a reply of so many fits into a message.
inline constexpr std::uint32_t kTraceEventLimit = 500'000;
/// Longest wait for the steps to come, in milliseconds.
inline constexpr std::uint32_t kTraceTimeoutLimitMs = 86'400'000;
inline constexpr std::uint32_t kTracePeerLimit = 65'536;

/// Client to daemon: record the next steps that begin.
struct TraceRequest {
    std::uint32_t abi_version = kAbiVersion;
    std::uint64_t number = 0;  ///< the caller's own; the reply repeats it
    std::string job_name = {};
    std::string run_id = {};
    std::uint32_t steps = 1;  ///< 1 .. kTraceStepLimit, of all groups together
    std::uint32_t timeout_ms = 60'000;
};

enum class TraceEventKind : std::uint8_t {
    kHandIn = 1,          ///< local rank `who` handed the tensor in
    kEncodeAsked = 2,     ///< all local ranks did, and every member is done with the step before
    kEncoded = 3,         ///< the pass over the local ranks' gradients, `time` to `until`; `bytes` of payload
    kRecordsOut = 4,      ///< records of the tensor were put into frame `number` for node `who`
    kFrameSent = 5,       ///< the transport has taken frame `number`; no tensor
    kFirstRecord = 6,     ///< of node `who`: its frame arrived at `time`, and was looked at `until` then
    kLastRecord = 7,      ///< of node `who`: nothing of its payload is missing any more
    kDecodeAsked = 8,     ///< every node's payload is here
    kDecoded = 9,         ///< decoding and averaging, `time` to `until`
    kHandedBack = 10,     ///< the local ranks were told
    kStepCommitted = 11,  ///< `tensor` is a group
    kStepFailed = 12,     ///< `tensor` is a group
};
struct TraceEvent {
    TraceEventKind kind = TraceEventKind::kHandIn;
    std::uint32_t tensor = 0;  ///< place in TraceReply::tensors; of a step's end, in ::groups
    std::uint32_t who = 0;     ///< a rank, or a node's place in the configuration
    Step step = 0;
    std::int64_t time_ns = 0;   ///< steady time of the node
    std::int64_t until_ns = 0;  ///< kEncoded, kDecoded: their end; records: when they were looked at; else 0
    std::uint64_t number = 0;   ///< a frame's number, or bytes
    bool operator==(const TraceEvent&) const = default;
};
struct TraceTensor {
    std::string name = {};
    std::uint32_t group = 0;  ///< place in TraceReply::groups
    ElementCount elements = 0;
    bool operator==(const TraceTensor&) const = default;
};
struct TracePeer {
    PeerIndex peer = 0;
    std::string name = {};
    bool operator==(const TracePeer&) const = default;
};
/// Daemon to client.
struct TraceReply {
    std::uint32_t abi_version = kAbiVersion;
    std::uint64_t number = 0;
    /// kTimeout, or what ended the job, may come with the events that there are; another one comes without.
    Status status = {};
    std::string node = {};
    std::string codec = {};
    std::vector<std::string> groups = {};
    std::vector<TraceTensor> tensors = {};
    std::vector<Rank> ranks = {};       ///< on this node, ascending
    std::vector<TracePeer> peers = {};  ///< the job's other nodes
    std::int64_t begin_ns = 0;          ///< steady time when recording began
    std::int64_t end_ns = 0;            ///< when it ended
    std::int64_t begin_unix_ns = 0;     ///< the same moment as begin_ns on the wall clock
    std::uint32_t steps_ended = 0;
    std::uint64_t events_lost = 0;  ///< more came than there was room for
    std::vector<TraceEvent> events = {};
};

/// Errors: kInvalidArgument (names as in an attach request; the value is named).
[[nodiscard]] Status check_trace_request(const TraceRequest& request);
[[nodiscard]] Bytes build_trace_request(const TraceRequest& request);
/// Errors: kVersionMismatch (before anything else is read), kCorrupt, kInvalidArgument (a value out of range; named).
[[nodiscard]] Result<TraceRequest> parse_trace_request(ByteView bytes);
[[nodiscard]] Bytes build_trace_reply(const TraceReply& reply);
/// Every event names a tensor or group of the reply. Errors: kVersionMismatch, kCorrupt.
[[nodiscard]] Result<TraceReply> parse_trace_reply(ByteView bytes);

}  // namespace gradsieve::shm
