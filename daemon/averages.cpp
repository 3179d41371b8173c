#include "daemon/averages.hpp"

#include "codec/state_arrays.hpp"
#include "daemon/kept_epoch.hpp"

#include <cstring>

namespace gradsieve::daemon {
namespace {

static_assert(kEpochArray == codec::kEpochName);

/// In four bytes, of a tensor of one element; never 0.
std::uint32_t folded(Epoch epoch) { return static_cast<std::uint32_t>(epoch ^ (epoch >> 32U)) | 1U; }

void write_epoch(Epoch epoch, std::span<float> array) {
    const std::uint32_t half = folded(epoch);
    if (array.size() == 1) std::memcpy(array.data(), &half, sizeof(half));
    if (array.size() == 2) std::memcpy(array.data(), &epoch, sizeof(epoch));
}

}  // namespace

void prepare_averages(const HostedTensor& tensor, Step committed, CodecTask& inout_task) {
    const auto live = tensor.live_generation(committed);
    const auto& in = tensor.generations[live];
    const auto& out = tensor.generations[1 - live];
    inout_task.request.in = in.arrays;
    inout_task.request.out = out.arrays;
    inout_task.out_generation = 1 - live;
    inout_task.scale = in.scale;
    inout_task.keeps_state = !out.is_valid || out.stamp != inout_task.step;
    const auto elements = codec::size_of(*codec::find_state_array(codec::kEpochName), tensor.pipeline, tensor.elements);
    write_epoch(tensor.epoch, {out.arrays.epoch, elements});
}

}  // namespace gradsieve::daemon
