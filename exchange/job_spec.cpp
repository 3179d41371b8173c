// Builds, parses and compares job specifications. Parse trusts no length that it reads. Any thread; owns nothing.
#include "exchange/job_spec.hpp"

#include <algorithm>

namespace gradsieve::exchange {
namespace {

constexpr std::uint8_t kSpecFormat = 1;
constexpr std::size_t kTextLimitBytes = 64U << 10U;
constexpr std::size_t kDimensionLimit = 64;

std::string shape_text(const std::vector<std::uint64_t>& shape) {
    std::string text = "[";
    for (const auto extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    return text + "]";
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

std::string difference(const std::string& what, const std::string& left, std::string_view left_name,
                       const std::string& right, std::string_view right_name) {
    return what + " " + left + " on " + std::string(left_name) + ", " + right + " on " + std::string(right_name);
}

std::string tensor_difference(const TensorSpec& left, std::string_view left_name, const TensorSpec& right,
                              std::string_view right_name) {
    const auto subject = "tensor '" + left.name + "': ";
    if (left.shape != right.shape)
        return difference(subject + "shape", shape_text(left.shape), left_name, shape_text(right.shape), right_name);
    if (left.group != right.group)
        return difference(subject + "group", quoted(left.group), left_name, quoted(right.group), right_name);
    if (left.rule != right.rule)
        return difference(subject + "codec", quoted(left.rule), left_name, quoted(right.rule), right_name);
    return {};
}

std::string only_on(const TensorSpec& tensor, std::string_view has, std::string_view lacks) {
    return "tensor '" + tensor.name + "': registered on " + std::string(has) + ", missing on " + std::string(lacks);
}

TensorSpec read_tensor(ByteReader& reader) {
    TensorSpec tensor;
    tensor.name = reader.read_text(kTextLimitBytes);
    tensor.group = reader.read_text(kTextLimitBytes);
    const auto dimensions = reader.read_varint();
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(dimensions, kDimensionLimit) && reader.is_ok(); ++i)
        tensor.shape.push_back(reader.read_varint());
    if (dimensions > kDimensionLimit) tensor.shape.resize(kDimensionLimit + 1);  // refused by the caller
    tensor.rule = reader.read_text(kTextLimitBytes);
    return tensor;
}

Status corrupt(const std::string& seen, const std::string& allowed) {
    return {StatusCode::kCorrupt,
            "job specification: " + seen + ": allowed is " + allowed + "; install the same release on all nodes"};
}

Status check_tensor(const TensorSpec& tensor, const TensorSpec* before) {
    if (tensor.shape.size() > kDimensionLimit)
        return corrupt("tensor '" + tensor.name + "' has too many dimensions", "at most 64");
    std::uint64_t elements = 1;
    for (const auto extent : tensor.shape) {
        const auto product = checked_multiply(elements, extent);
        if (!product) return corrupt("shape of tensor '" + tensor.name + "' overflows", "below 2^64 elements");
        elements = *product;
    }
    if (before != nullptr && !(before->name < tensor.name))
        return corrupt("tensor '" + tensor.name + "' stands after '" + before->name + "'", "ascending distinct names");
    return {};
}

}  // namespace

ElementCount TensorSpec::elements() const noexcept {
    ElementCount product = 1;
    for (const auto extent : shape) product = checked_multiply(product, extent).value_or(0);
    return product;
}

Epoch KeptSteps::epoch_of(Step step) const {
    const auto place = static_cast<std::size_t>(std::find(steps.begin(), steps.end(), step) - steps.begin());
    return place < epochs.size() ? epochs[place] : 0;
}

void KeptSteps::add(Step step, Epoch epoch) {
    if (has(step)) return;
    const auto place = std::upper_bound(steps.begin(), steps.end(), step, std::greater<>());
    epochs.resize(steps.size());
    epochs.insert(epochs.begin() + (place - steps.begin()), epoch);
    steps.insert(place, step);
}

void KeptSteps::remove(Step step) {
    const auto place = std::find(steps.begin(), steps.end(), step);
    if (place == steps.end()) return;
    epochs.resize(steps.size());
    epochs.erase(epochs.begin() + (place - steps.begin()));
    steps.erase(place);
}

Bytes build_job_spec(const JobSpec& spec) {
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write(kSpecFormat);
    writer.write_varint(spec.world_size);
    writer.write(spec.non_finite_policy);
    writer.write_text(spec.codec);
    writer.write_varint(spec.tensors.size());
    for (const auto& tensor : spec.tensors) {
        writer.write_text(tensor.name);
        writer.write_text(tensor.group);
        writer.write_varint(tensor.shape.size());
        for (const auto extent : tensor.shape) writer.write_varint(extent);
        writer.write_text(tensor.rule);
    }
    return bytes;
}

Result<JobSpec> parse_job_spec(ByteView bytes) {
    ByteReader reader(bytes);
    const auto format = reader.read<std::uint8_t>();
    if (reader.is_ok() && format != kSpecFormat) return corrupt("format " + std::to_string(format), "1");
    JobSpec spec;
    const auto world_size = reader.read_varint();
    if (world_size == 0 || world_size > kWorldSizeLimit)
        return corrupt("world size " + std::to_string(world_size), "1 to " + std::to_string(kWorldSizeLimit));
    spec.world_size = static_cast<std::uint32_t>(world_size);
    spec.non_finite_policy = reader.read<std::uint8_t>();
    if (spec.non_finite_policy > 2)
        return corrupt("non-finite policy " + std::to_string(spec.non_finite_policy), "0, 1 or 2");
    spec.codec = reader.read_text(kTextLimitBytes);
    const auto tensors = reader.read_varint();
    for (std::uint64_t index = 0; index < tensors && reader.is_ok(); ++index) {
        spec.tensors.push_back(read_tensor(reader));
        const auto count = spec.tensors.size();
        GRADSIEVE_TRY(check_tensor(spec.tensors.back(), count > 1 ? &spec.tensors[count - 2] : nullptr));
    }
    if (!reader.is_done())
        return corrupt(std::to_string(bytes.size()) + " bytes that end early or late", "a whole one");
    return spec;
}

std::string first_difference(const JobSpec& left, std::string_view left_name, const JobSpec& right,
                             std::string_view right_name) {
    const auto numbers = [&](const std::string& what, std::uint64_t a, std::uint64_t b) {
        return difference(what, std::to_string(a), left_name, std::to_string(b), right_name);
    };
    if (left.world_size != right.world_size) return numbers("world size:", left.world_size, right.world_size);
    if (left.non_finite_policy != right.non_finite_policy)
        return numbers("non-finite policy:", left.non_finite_policy, right.non_finite_policy);
    if (left.codec != right.codec)
        return difference("codec:", quoted(left.codec), left_name, quoted(right.codec), right_name);
    auto ours = left.tensors.begin();
    auto theirs = right.tensors.begin();
    while (ours != left.tensors.end() || theirs != right.tensors.end()) {
        if (theirs == right.tensors.end() || (ours != left.tensors.end() && ours->name < theirs->name))
            return only_on(*ours, left_name, right_name);
        if (ours == left.tensors.end() || theirs->name < ours->name) return only_on(*theirs, right_name, left_name);
        if (auto text = tensor_difference(*ours, left_name, *theirs, right_name); !text.empty()) return text;
        ++ours;
        ++theirs;
    }
    return {};
}

}  // namespace gradsieve::exchange
