// The sharded plan: which member averages which chunks of a tensor. Plain functions; any thread.
#pragma once

#include "exchange/job_spec.hpp"

#include <cstdint>
#include <vector>

namespace gradsieve::exchange {

/// Owner of each chunk (kChunkElements elements, the last one fewer) of one tensor, as its place among the members;
/// empty where the plan is gather.
using ChunkOwners = std::vector<std::uint16_t>;

/// By tensor. Chunks go round in the tensors' order, each to the member that has the fewest elements so far, the lowest
/// of several: shards differ by less than a chunk, and every member's is of all parts of the model. The same on all
/// nodes. `members`: 1 .. kWorldSizeLimit - 1.
[[nodiscard]] std::vector<ChunkOwners> shard_owners(const JobSpec& spec, std::size_t members);

}  // namespace gradsieve::exchange
