// Tensors under the sharded plan: which chunks this node averages is known once the members are, and a residual of
// averages that another life of the job kept of other chunks goes on in this node's own.
#include "daemon/hosted_job.hpp"
#include "exchange/shards.hpp"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>

namespace gradsieve::daemon {
namespace {

/// Whole pages of the range go back: they read as zeros from then on. What the kernel refuses stays as it is, zero.
void give_pages_back(float* values, ElementCount elements) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<std::uintptr_t>(values) + page - 1) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(values + elements) / page * page;
    if (end > begin) static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE));
}

}  // namespace

Status HostedJob::lay_out_shards() {
    const auto owners = exchange::shard_owners(spec_, members_.size());
    const auto own = static_cast<std::size_t>(
        std::ranges::find(members_, surroundings_.config->self, &exchange::Member::peer) - members_.begin());
    ByteCount bytes = 0;
    for (auto& tensor : tensors_) {
        if (!tensor.down) continue;
        std::vector<std::uint32_t> chunks;
        for (std::uint32_t chunk = 0; chunk < owners[tensor.number].size(); ++chunk)
            if (owners[tensor.number][chunk] == own) chunks.push_back(chunk);
        tensor.shard.emplace(tensor.id, tensor.elements, std::move(chunks));
        bytes += tensor.shard->elements() * sizeof(float);
    }
    GRADSIEVE_TRY(surroundings_.budget->take(bytes, "the averages of the job's shard"));
    memory_bytes_ += bytes;
    return {};
}

/// Nothing of the mean is lost where another node averages the chunk from here on.
void HostedJob::fold_shards() {
    const float share = factors_.at(surroundings_.config->self);
    for (auto& tensor : tensors_) {
        if (!tensor.shard) continue;
        const auto live = tensor.live_generation(groups_[tensor.group].committed);
        auto& arrays = tensor.generations[live].arrays;
        if (arrays.down == nullptr || arrays.residual == nullptr) continue;
        tensor.stale_down = 1 - live;
        const auto chunks = (tensor.elements + kChunkElements - 1) / kChunkElements;
        for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
            if (tensor.shard->owns(chunk)) continue;
            tensor.shard->give_up(chunk, arrays.down, arrays.residual, share);
            give_pages_back(arrays.down + chunk * kChunkElements, tensor.shard->chunk_elements(chunk));
        }
    }
}

/// The first step of a life writes the chunks that are its own: those of others, which an earlier life left there,
/// would be taken over once more.
void HostedJob::clear_stale(HostedTensor& tensor, std::size_t generation) {
    if (tensor.stale_down != generation) return;
    tensor.stale_down.reset();
    float* const down = tensor.generations[generation].arrays.down;
    for (ElementCount first = 0; first < tensor.elements; first += kChunkElements) {
        const auto chunk = static_cast<std::uint32_t>(first / kChunkElements);
        if (tensor.shard->owns(chunk)) continue;
        std::fill_n(down + first, tensor.shard->chunk_elements(chunk), 0.0F);
        give_pages_back(down + first, tensor.shard->chunk_elements(chunk));
    }
}

}  // namespace gradsieve::daemon
