// Tensors under the sharded plan: which chunks this node averages is known once the members are, and a residual of
// averages that another life of the job kept of other chunks goes on in this node's own.
#include "daemon/hosted_job.hpp"
#include "exchange/shards.hpp"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <numeric>

namespace gradsieve::daemon {
namespace {

/// Whole pages of the range go back: they read as zeros from then on. What the kernel refuses stays as it is, zero.
void give_pages_back(float* values, ElementCount elements) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<std::uintptr_t>(values) + page - 1) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(values + elements) / page * page;
    if (end > begin) static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE));
}

/// The mean gets `share` of this node's residual.
void fold(float* down, float* residual, ElementCount elements, float share) {
    if (std::all_of(down, down + elements, [](float value) { return value == 0; })) return;
    if (residual != nullptr)
        for (ElementCount element = 0; element < elements; ++element) residual[element] += down[element] / share;
    std::fill_n(down, elements, 0.0F);
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
        auto& arrays = tensor.generations[tensor.live_generation(groups_[tensor.group].committed)].arrays;
        if (arrays.down == nullptr) continue;
        for (ElementCount first = 0; first < tensor.elements; first += kChunkElements) {
            if (tensor.shard->owns(static_cast<std::uint32_t>(first / kChunkElements))) continue;
            const auto elements = std::min(kChunkElements, tensor.elements - first);
            fold(arrays.down + first, arrays.residual == nullptr ? nullptr : arrays.residual + first, elements, share);
            give_pages_back(arrays.down + first, elements);
        }
    }
}

}  // namespace gradsieve::daemon
