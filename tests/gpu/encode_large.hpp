// Parts of the encoder's check that have files of their own.
#pragma once

#include "gpu_check.hpp"

namespace gradsieve::gpu_check {

/// Against the CPU's fast form at 25.6 M, 134 M and 2^28 + 17 elements, for the main pipelines.
void check_large(const Options& options, Report& report);
/// What `begin` and `finish` refuse, in words.
void check_refusals(const Options& options, Report& report);

}  // namespace gradsieve::gpu_check
