// A plain copy of memory with non-temporal stores: what the machine's memory allows one core, to hold other passes
// against in the same run.
#pragma once

#include <cstddef>
#include <span>

namespace gradsieve::bench {

/// Reads `bytes` (a multiple of 64) of every source and writes as many to every target, around the caches, line by line
/// in turn, with the widest vectors this CPU has. Target t gets source t; further sources are only read. 64-byte
/// aligned, separate arrays; at least as many sources as targets.
void copy_around_caches(std::span<float* const> targets, std::span<const float* const> sources, std::size_t bytes);

}  // namespace gradsieve::bench
