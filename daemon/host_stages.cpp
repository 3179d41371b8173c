#include "daemon/host_stages.hpp"

#include "daemon/codec_choice.hpp"

#include <algorithm>
#include <numeric>

namespace gradsieve::daemon {

HostStages find_host_stages(const Config& config, const shm::AttachRequest& request) {
    HostStages found;
    const auto& tensors = request.tensors;
    if (std::ranges::none_of(tensors, &shm::TensorEntry::on_device)) return found;
    std::vector<std::uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::uint32_t index) -> const std::string& { return tensors[index].name; });
    std::vector<shm::TensorEntry> sorted;
    for (const auto index : order) sorted.push_back(tensors[index]);
    const auto choice = choose_codecs(config, request.codec, sorted);
    if (!choice.is_ok()) return found;
    for (std::size_t place = 0; place < order.size(); ++place) {
        auto [name, remedy] = codec::host_stage(choice->pipelines[place]);
        if (name.empty() && choice->downs[place]) {
            name = "down";
            remedy = "set codec.plan to \"gather\"";
        }
        if (!sorted[place].on_device || name.empty()) continue;
        if (found.tensors.empty())
            found.refusal = {StatusCode::kInvalidArgument,
                             "tensor '" + sorted[place].name + "': codec stage '" + std::string(name) +
                                 "' on a device: allowed are tensors in host memory, staged ones too; " +
                                 std::string(remedy) +
                                 ", give host tensors alone a rule with it, or register the tensor in host memory"};
        found.tensors.push_back(order[place]);
    }
    std::ranges::sort(found.tensors);
    return found;
}

}  // namespace gradsieve::daemon
