#include "exchange/shards.hpp"

#include <algorithm>
#include <queue>
#include <tuple>

namespace gradsieve::exchange {

std::vector<ChunkOwners> shard_owners(const JobSpec& spec, std::size_t members) {
    using Load = std::tuple<ElementCount, std::uint16_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
    for (std::size_t member = 0; member < members; ++member) loads.emplace(0, static_cast<std::uint16_t>(member));
    std::vector<ChunkOwners> owners(spec.tensors.size());
    for (std::size_t tensor = 0; tensor < spec.tensors.size(); ++tensor) {
        if (!spec.tensors[tensor].is_sharded) continue;
        for (ElementCount left = spec.tensors[tensor].elements(); left > 0;) {
            const auto elements = std::min(left, kChunkElements);
            const auto [load, member] = loads.top();
            loads.pop();
            loads.emplace(load + elements, member);
            owners[tensor].push_back(member);
            left -= elements;
        }
    }
    return owners;
}

}  // namespace gradsieve::exchange
