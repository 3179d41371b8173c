// What a training process says to its daemon, and the daemon to it: one byte tells which, the rest is a message of the
// local socket or a cell of a ring.
#include "shm/cell.hpp"
#include "shm/device_message.hpp"
#include "shm/message.hpp"
#include "shm/state_message.hpp"
#include "shm/trace_message.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>

namespace gradsieve::fuzz {
namespace {

enum : std::uint8_t {
    kAttach = 0,
    kAttachReply = 1,
    kBind = 2,
    kBindReply = 3,
    kSubmission = 4,
    kCompletion = 5,
    kState = 6,
    kStateReply = 7,
    kTrace = 8,
    kTraceReply = 9
};

std::vector<shm::TensorEntry> model() {
    std::vector<shm::TensorEntry> tensors(3);
    tensors[0].name = "a";
    tensors[0].shape = {64, 3};
    tensors[1].name = "b";
    tensors[1].group = "g";
    tensors[1].shape = {7};
    tensors[1].samples_max = 4;
    tensors[1].has_second_moment = true;
    tensors[2].name = "c";
    tensors[2].shape = {5, 5};
    tensors[2].on_device = true;
    return tensors;
}

shm::BindRequest bind_request() {
    shm::BindRequest request;
    request.number = 1;
    request.descriptor_bytes = {2U << 20U};
    shm::Binding binding;
    binding.tensor_index = 2;
    binding.gradient.kind = shm::MemoryKind::kDescriptors;
    binding.gradient.pieces = {{0, 256, 100}};
    request.bindings = {binding};
    return request;
}

template <typename Cell>
Cell cell_of(ByteView bytes) {
    Cell cell{};
    std::copy_n(bytes.begin(), std::min(bytes.size(), cell.size()), cell.begin());
    return cell;
}

void run_attach(ByteView bytes) {
    const auto request = shm::parse_attach_request(bytes);
    if (!request.is_ok()) return;
    require(shm::check_attach_request(*request).is_ok(),
            "a request that was taken holds what the client's own check asks");
    require(shm::parse_attach_request(shm::build_attach_request(*request)).is_ok(),
            "a request that was taken can be built and taken again");
}
void run_bind(ByteView bytes) {
    const auto request = shm::parse_bind_request(bytes);
    if (!request.is_ok()) return;
    static_cast<void>(shm::check_bind_request(*request, model(), request->descriptor_bytes.size()));
    require(shm::parse_bind_request(shm::build_bind_request(*request)).is_ok(),
            "a bind request that was taken can be built and taken again");
}
void run_state(ByteView bytes) {
    const auto request = shm::parse_state_request(bytes);
    if (!request.is_ok()) return;
    require(shm::parse_state_request(shm::build_state_request(*request)).is_ok(),
            "a state request that was taken can be built and taken again");
}
void run_state_reply(ByteView bytes) {
    const auto reply = shm::parse_state_reply(bytes);
    if (!reply.is_ok()) return;
    const auto again = shm::parse_state_reply(shm::build_state_reply(*reply));
    require(again.is_ok() && again->parts == reply->parts, "a state reply that was taken can be built and taken again");
}
void run_trace(ByteView bytes) {
    const auto request = shm::parse_trace_request(bytes);
    if (!request.is_ok()) return;
    require(shm::parse_trace_request(shm::build_trace_request(*request)).is_ok(),
            "a trace request that was taken can be built and taken again");
}
void run_trace_reply(ByteView bytes) {
    const auto reply = shm::parse_trace_reply(bytes);
    if (!reply.is_ok()) return;
    const auto again = shm::parse_trace_reply(shm::build_trace_reply(*reply));
    require(again.is_ok() && again->events == reply->events,
            "a trace reply that was taken can be built and taken again");
}
void run_submission(ByteView bytes) {
    static const auto layout = shm::gradient_layout(model());
    const auto submission = shm::parse_submission_cell(cell_of<shm::SubmissionCell>(bytes), layout->slabs);
    if (!submission.is_ok()) return;
    const auto again = shm::parse_submission_cell(shm::build_submission_cell(*submission), layout->slabs);
    require(again.is_ok(), "a submission that was taken can be built and taken again");
}
void run_completion(ByteView bytes) {
    const auto completion = shm::parse_completion_cell(cell_of<shm::CompletionCell>(bytes), model().size());
    if (!completion.is_ok()) return;
    require(shm::parse_completion_cell(shm::build_completion_cell(*completion), model().size()).is_ok(),
            "a completion that was taken can be built and taken again");
}

}  // namespace

std::vector<Bytes> seeds() {
    shm::AttachRequest attach;
    attach.job_name = "job";
    attach.run_id = "1";
    attach.world_size = 2;
    attach.codec = "topk(0.01)";
    attach.tensors = model();
    shm::AttachReply reply;
    reply.control_bytes = 4096;
    reply.gradient_bytes = 8192;
    reply.result_bytes = 4096;
    reply.result_offsets = {0, 768, 832};
    shm::AttachReply refusal;
    refusal.status = Status(StatusCode::kInvalidArgument, "no");
    shm::Submission submission;
    submission.kind = shm::SubmissionKind::kAverage;
    submission.step = 1;
    shm::Completion completion;
    shm::StateRequest state;
    state.job_name = "job";
    state.step = 4;
    const shm::StateReply kept{
        .number = 1,
        .status = {},
        .parts = {{.group = "g", .step = 4, .node = "a", .ranks = {0, 1}, .digest = 7, .bytes = 8}}};
    shm::TraceRequest trace;
    trace.job_name = "job";
    shm::TraceReply traced;
    traced.groups = {""};
    traced.tensors = {{.name = "a", .group = 0, .elements = 4}};
    traced.ranks = {0};
    traced.peers = {{.peer = 1, .name = "b"}};
    traced.events = {{.kind = shm::TraceEventKind::kHandIn, .step = 1}};
    return {tagged(kTrace, shm::build_trace_request(trace)),
            tagged(kTraceReply, shm::build_trace_reply(traced)),
            tagged(kState, shm::build_state_request(state)),
            tagged(kStateReply, shm::build_state_reply(kept)),
            tagged(kAttach, shm::build_attach_request(attach)),
            tagged(kAttachReply, shm::build_attach_reply(reply)),
            tagged(kAttachReply, shm::build_attach_reply(refusal)),
            tagged(kBind, shm::build_bind_request(bind_request())),
            tagged(kBindReply, shm::build_bind_reply({})),
            tagged(kSubmission, shm::build_submission_cell(submission)),
            tagged(kCompletion, shm::build_completion_cell(completion))};
}

void run_one(ByteView input) {
    if (input.empty()) return;
    const auto rest = input.subspan(1);
    switch (std::to_integer<std::uint8_t>(input[0]) % 10) {
        case kAttach: run_attach(rest); return;
        case kAttachReply: static_cast<void>(shm::parse_attach_reply(rest)); return;
        case kBind: run_bind(rest); return;
        case kBindReply: static_cast<void>(shm::parse_bind_reply(rest)); return;
        case kSubmission: run_submission(rest); return;
        case kState: run_state(rest); return;
        case kStateReply: run_state_reply(rest); return;
        case kTrace: run_trace(rest); return;
        case kTraceReply: run_trace_reply(rest); return;
        default: run_completion(rest); return;
    }
}

}  // namespace gradsieve::fuzz
