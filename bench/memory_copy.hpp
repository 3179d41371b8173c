// A plain copy of memory with non-temporal stores: what the machine's memory allows one core, to hold other passes
// against in the same run.
#pragma once

#include <cstddef>

namespace gradsieve::bench {

/// Copies `bytes` (a multiple of 64) between 64-byte aligned, separate arrays, around the caches, with the widest
/// vectors this CPU has.
void copy_around_caches(void* target, const void* source, std::size_t bytes);

}  // namespace gradsieve::bench
