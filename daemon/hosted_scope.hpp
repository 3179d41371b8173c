// The tensors of a group whose pipeline selects over all of them (topk(scope=model)), and where the open step stands
// with them. Each is passed over as soon as it is handed in; its answer to the round waits until all are. Owned by its
// job; conductor thread only. Why it is so: docs/decisions/0014-model-scope.md.
#pragma once

#include "daemon/hosted_tensor.hpp"

#include <map>
#include <memory>
#include <vector>

namespace gradsieve::daemon {

struct HostedScope {
    // constant after construction
    exchange::GroupNumber group = 0;
    codec::Pipeline pipeline;                     ///< of every member, but for what it measures
    std::vector<exchange::TensorNumber> tensors;  ///< ascending, which is by name
    ElementCount elements = 0;                    ///< of all
    bool on_device = false;  ///< all members are, or none: on GPUs they list nothing (codec/narrow_scope.hpp)
    // the open step
    Step step = 0;  ///< 0: none yet
    codec::ScopePhase phase = codec::ScopePhase::kObserve;
    codec::ScopeTerms terms;
    std::uint32_t next_hint = 0;
    std::size_t arrived = 0;                          ///< members that are in, or failed
    std::size_t tasks_out = 0;                        ///< of this phase
    std::vector<std::unique_ptr<CodecTask>> waiting;  ///< members between two phases
    bool is_ending = false;                  ///< the step has ended without them: they are answered when no task is out
    std::map<Rank, TimePoint> handed_in_at;  ///< each local rank's last hand-in
};

}  // namespace gradsieve::daemon
