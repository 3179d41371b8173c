// Tensors whose codec sends differences (delta): every node keeps the average of what all have sent, in generations as
// all state, and says beside it in which life of the job it was made. Conductor thread; owns nothing.
#pragma once

#include "daemon/hosted_tensor.hpp"

namespace gradsieve::daemon {

/// The tensor is about to be decoded, from one generation into the other, which says the job's epoch from here on, and
/// which takes over what encoding keeps if this node sends nothing in the step. `committed`: of its group.
void prepare_averages(const HostedTensor& tensor, Step committed, CodecTask& inout_task);

}  // namespace gradsieve::daemon
