// Tensors whose codec has two phases of payloads in a step: the round machine asks for each of them, and what the first
// leaves for the second lies in the tensor's memory of phases.
#include "daemon/hosted_job.hpp"

namespace gradsieve::daemon {

Status HostedJob::lay_out_phases() {
    ByteCount bytes = 0;
    for (const auto& tensor : tensors_)
        if (codec::has_phases(tensor.pipeline)) bytes += codec::phase_bytes(tensor.pipeline, tensor.elements);
    GRADSIEVE_TRY(surroundings_.budget->take(bytes, "what the phases of lowrank and sketch leave for one another"));
    memory_bytes_ += bytes;
    for (auto& tensor : tensors_)
        if (codec::has_phases(tensor.pipeline)) tensor.phases.emplace(tensor.pipeline, tensor.elements);
    return {};
}

/// What is known of a step's gradient once it was read; counts of what is sent begin.
void HostedJob::note_gradient(HostedTensor& tensor, CodecTask& task) {
    auto& totals = tensor.totals;
    totals.kept_elements = 0;
    totals.payload_bytes = 0;
    totals.variance_source = (*task.encoded)->variance_source;
    totals.similarity.reset();
    totals.bits_differ.reset();
    if (task.signature && tensor.sent_signature) {
        totals.similarity = codec::cosine_of(*task.signature, *tensor.sent_signature);
        totals.bits_differ = codec::differing_bits(*task.signature, *tensor.sent_signature);
    }
    tensor.open_signature = std::move(task.signature);
}

}  // namespace gradsieve::daemon
