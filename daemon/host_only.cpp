#include "daemon/host_only.hpp"

#include "codec/model_scope.hpp"
#include "daemon/codec_choice.hpp"

#include <algorithm>
#include <numeric>

namespace gradsieve::daemon {

namespace {

/// Which tensors are selected from together with some in host memory: a scope has one form.
std::vector<bool> find_mixed_scopes(std::span<const shm::TensorEntry> tensors,
                                    std::span<const codec::Pipeline> pipelines) {
    std::vector<std::size_t> on_host;  // of each scope that has some, one
    const auto is_of = [&](std::size_t place, std::size_t other) {
        return tensors[place].group == tensors[other].group && codec::is_one_scope(pipelines[place], pipelines[other]);
    };
    const auto is_known = [&](std::size_t place) {
        return std::ranges::any_of(on_host, [&](std::size_t other) { return is_of(place, other); });
    };
    for (std::size_t place = 0; place < tensors.size(); ++place)
        if (codec::has_model_scope(pipelines[place]) && !tensors[place].on_device && !is_known(place))
            on_host.push_back(place);
    std::vector<bool> mixed(tensors.size(), false);
    for (std::size_t place = 0; place < tensors.size(); ++place) mixed[place] = is_known(place);
    return mixed;
}

}  // namespace

HostOnly find_host_only(const Config& config, const shm::AttachRequest& request) {
    HostOnly found;
    const auto& tensors = request.tensors;
    if (std::ranges::none_of(tensors, &shm::TensorEntry::on_device)) return found;
    std::vector<std::uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::uint32_t index) -> const std::string& { return tensors[index].name; });
    std::vector<shm::TensorEntry> sorted;
    for (const auto index : order) sorted.push_back(tensors[index]);
    const auto choice = choose_codecs(config, request.codec, sorted);
    if (!choice.is_ok()) return found;
    const auto mixed = find_mixed_scopes(sorted, choice->pipelines);
    for (std::size_t place = 0; place < order.size(); ++place) {
        if (!sorted[place].on_device || (!choice->downs[place] && !mixed[place])) continue;
        const auto [what, remedy] =
            choice->downs[place]
                ? std::pair("the sharded plan",
                            "set codec.plan to \"gather\", or give the tensor a codec that goes to "
                            "all nodes")
                : std::pair("topk(scope=model) with tensors in host memory",
                            "let all tensors that it selects from lie on devices, or use scope=tensor");
        if (found.tensors.empty())
            found.refusal = {StatusCode::kInvalidArgument,
                             "tensor '" + sorted[place].name + "': " + what +
                                 " on a device: allowed are tensors in host memory, staged ones too; " + remedy +
                                 ", or register the tensor in host memory"};
        found.tensors.push_back(order[place]);
    }
    std::ranges::sort(found.tensors);
    return found;
}

}  // namespace gradsieve::daemon
