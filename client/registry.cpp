#include "client/registry.hpp"

#include "base/bytes.hpp"
#include "client/options.hpp"

#include <limits>

namespace gradsieve::client {
namespace {

constexpr ByteCount kSlabLimitBytes = std::numeric_limits<std::int64_t>::max();  // what a file may measure

std::string shape_text(std::span<const std::uint64_t> shape) {
    std::string text = "[";
    for (const auto extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    return text + "]";
}

/// The slab of one tensor must be countable in bytes; whether there is memory for it is the daemon's answer.
Status check_sizes(const shm::TensorEntry& entry) {
    std::optional<std::uint64_t> bytes = sizeof(float);
    bool has_zero = false;
    for (const auto extent : entry.shape) {
        has_zero = has_zero || extent == 0;
        if (bytes) bytes = checked_multiply(*bytes, extent);
    }
    const std::uint64_t slices = std::uint64_t{entry.samples_max} + (entry.has_second_moment ? 1 : 0);
    if (bytes) bytes = checked_multiply(*bytes, slices);
    if (has_zero || (bytes && *bytes <= kSlabLimitBytes)) return {};
    return {StatusCode::kInvalidArgument,
            "tensor '" + entry.name + "': shape " + shape_text(entry.shape) + " with " + std::to_string(slices) +
                " slices is more than " + std::to_string(kSlabLimitBytes) + " bytes: allowed is less; check the shape"};
}

}  // namespace

Result<std::uint32_t> Registry::add(std::string_view name, std::span<const std::uint64_t> shape,
                                    const TensorOptions& options) {
    GRADSIEVE_TRY(check_name("the tensor's name", name, shm::kNameLimitBytes));
    const auto subject = "tensor '" + std::string(name) + "'";
    if (!options.group.empty())
        GRADSIEVE_TRY(check_name(subject + ": the group's name", options.group, shm::kNameLimitBytes));
    if (options.samples_max < 1 || options.samples_max > shm::kSamplesLimit)
        return Status(StatusCode::kInvalidArgument,
                      subject + ": samples_max is " + std::to_string(options.samples_max) + ": allowed is 1 .. " +
                          std::to_string(shm::kSamplesLimit) + "; hand in fewer, larger micro-batches");
    if (shape.size() > shm::kDimensionLimit)
        return Status(StatusCode::kInvalidArgument, subject + ": the shape has " + std::to_string(shape.size()) +
                                                        " dimensions: allowed is " +
                                                        std::to_string(shm::kDimensionLimit) + " or fewer; join some");
    if (names_.contains(name))
        return Status(StatusCode::kAlreadyExists,
                      subject + " is registered already: allowed is each name once per job; rename one of the two");
    if (tensors_.size() >= shm::kTensorLimit)
        return Status(StatusCode::kResourceExhausted,
                      subject + " would be tensor number " + std::to_string(tensors_.size() + 1) + ": allowed is " +
                          std::to_string(shm::kTensorLimit) + " per job; join small tensors");
    shm::TensorEntry entry;
    entry.name = name;
    entry.group = options.group;
    entry.shape.assign(shape.begin(), shape.end());
    entry.samples_max = options.samples_max;
    entry.has_second_moment = options.has_second_moment;
    GRADSIEVE_TRY(check_sizes(entry));
    entry.on_device = options.on_device && entry.elements() > 0;  // what has no elements lies nowhere

    const auto index = static_cast<std::uint32_t>(tensors_.size());
    const auto [group, is_new] = group_index_.try_emplace(options.group, static_cast<std::uint32_t>(groups_.size()));
    if (is_new) groups_.push_back({options.group, index});
    group_of_.push_back(group->second);
    names_.emplace(name);
    tensors_.push_back(std::move(entry));
    return index;
}

void Registry::set_staged(std::uint32_t index, bool is_staged) {
    tensors_[index].staged = is_staged;
    tensors_[index].on_device = !is_staged;
}

std::optional<std::uint32_t> Registry::find_group(std::string_view name) const {
    const auto found = group_index_.find(name);
    if (found == group_index_.end()) return std::nullopt;
    return found->second;
}

std::string Registry::group_list() const {
    std::string list;
    for (const auto& group : groups_) list += (list.empty() ? "'" : ", '") + group.name + "'";
    return list.empty() ? "none" : list;
}

}  // namespace gradsieve::client
