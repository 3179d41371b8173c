// A trace as the JSON that chrome://tracing and Perfetto open (the Trace Event Format). Pure; any thread.
#pragma once

#include "cli/trace_steps.hpp"
#include "shm/trace_message.hpp"

#include <string>
#include <vector>

namespace gradsieve::cli {

/// One process, the job on its node; a track for each group's steps, one for each tensor with its phases inside the
/// step, and payloads to and from each node as asynchronous events. Times are microseconds from the beginning of the
/// trace.
[[nodiscard]] std::string chrome_trace(const shm::TraceReply& reply, const std::vector<TracedStep>& steps,
                                       const shm::TraceRequest& request);

}  // namespace gradsieve::cli
