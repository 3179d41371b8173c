// Parts of the sections similarity and end-to-end that are about the stage `similarity`.
#pragma once

#include "gpu_check.hpp"

namespace gradsieve::gpu_check {

/// Skipped steps of tensors on cards.
void check_reuse(const Options& options, Report& report);
/// Whole jobs: what the status says, and averages, are those of the same jobs in host memory.
void check_similarity_end_to_end(Report& report);

}  // namespace gradsieve::gpu_check
