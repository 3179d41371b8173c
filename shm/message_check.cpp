#include "shm/message_check.hpp"

#include "shm/layout.hpp"
#include "shm/message.hpp"

#include <algorithm>
#include <limits>
#include <unordered_set>

namespace gradsieve::shm {
namespace {

struct CodePoint {
    std::uint32_t value = 0;
    std::size_t length_bytes = 0;  ///< 0 = malformed
};

CodePoint next_code_point(std::string_view text) noexcept {
    const auto byte_at = [text](std::size_t index) { return static_cast<unsigned char>(text[index]); };
    const std::uint32_t lead = byte_at(0);
    if (lead < 0x80) return {lead, 1};
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
    std::uint32_t value = lead & (0xFFU >> (length + 1));
    for (std::size_t index = 1; index < length; ++index) {
        if ((byte_at(index) & 0xC0U) != 0x80U) return {};
        value = (value << 6U) | (byte_at(index) & 0x3FU);
    }
    const bool is_overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
    const bool is_surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (is_overlong || is_surrogate || value > 0x10FFFF) return {};
    return {value, length};
}

Status refuse(const std::string& what, const std::string& seen, const std::string& allowed) {
    return {StatusCode::kInvalidArgument,
            what + " " + seen + "; allowed is " + allowed + "; change it and attach again"};
}

Status check_text(const std::string& what, std::string_view text, std::size_t limit_bytes, bool may_be_empty) {
    const auto allowed =
        std::string(may_be_empty ? "0" : "1") + " to " + std::to_string(limit_bytes) + " bytes of printable UTF-8";
    if (text.size() > limit_bytes || (text.empty() && !may_be_empty)) {
        return refuse(what, "of " + std::to_string(text.size()) + " bytes", allowed);
    }
    if (!is_printable_utf8(text)) return refuse(what, "with unprintable bytes", allowed);
    return {};
}

Status check_tensor(const TensorEntry& tensor) {
    GRADSIEVE_TRY(check_text("tensor name", tensor.name, kNameLimitBytes, false));
    const auto who = "tensor '" + tensor.name + "': ";
    GRADSIEVE_TRY(check_text(who + "group", tensor.group, kNameLimitBytes, true));
    if (tensor.shape.size() > kDimensionLimit) {
        return refuse(who + "shape of", std::to_string(tensor.shape.size()) + " dimensions",
                      "up to " + std::to_string(kDimensionLimit));
    }
    if (tensor.samples_max < 1 || tensor.samples_max > kSamplesLimit) {
        return refuse(who + "samples_max", std::to_string(tensor.samples_max), "1 to " + std::to_string(kSamplesLimit));
    }
    if (tensor.on_device && tensor.elements() == 0) {
        return refuse(who + "on a device", "with 0 elements", "1 element or more there");
    }
    if (tensor.staged && tensor.elements() == 0) {
        return refuse(who + "staged", "with 0 elements", "1 element or more then");
    }
    if (tensor.staged && tensor.on_device) {
        return refuse(who + "staged", "and on a device", "one of the two");
    }
    return {};
}

}  // namespace

bool is_printable_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const auto [value, length_bytes] = next_code_point(text);
        if (length_bytes == 0 || value < 0x20 || (value >= 0x7F && value < 0xA0)) return false;
        text.remove_prefix(length_bytes);
    }
    return true;
}

ElementCount TensorEntry::elements() const noexcept {
    if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
    ElementCount product = 1;
    for (const auto extent : shape) {
        const auto next = checked_multiply(product, extent);
        if (!next) return std::numeric_limits<ElementCount>::max();  // no layout takes it
        product = *next;
    }
    return product;
}

Status check_attach_request(const AttachRequest& request) {
    GRADSIEVE_TRY(check_text("job name", request.job_name, kNameLimitBytes, false));
    GRADSIEVE_TRY(check_text("run id", request.run_id, kNameLimitBytes, true));
    GRADSIEVE_TRY(check_text("codec", request.codec, kCodecLimitBytes, true));
    if (request.world_size < 1 || request.world_size > kWorldSizeLimit) {
        return refuse("world size", std::to_string(request.world_size), "1 to " + std::to_string(kWorldSizeLimit));
    }
    if (request.rank >= request.world_size) {
        return refuse("rank", std::to_string(request.rank), "below world size " + std::to_string(request.world_size));
    }
    if (request.non_finite > NonFinitePolicy::kZero) {
        return refuse("non-finite policy", std::to_string(static_cast<unsigned>(request.non_finite)), "0 to 2");
    }
    if (request.tensors.empty() || request.tensors.size() > kTensorLimit) {
        return refuse("a job of", std::to_string(request.tensors.size()) + " tensors",
                      "1 to " + std::to_string(kTensorLimit));
    }
    std::unordered_set<std::string_view> names;
    for (const auto& tensor : request.tensors) {
        GRADSIEVE_TRY(check_tensor(tensor));
        if (!names.insert(tensor.name).second) {
            return refuse("tensor name", "'" + tensor.name + "' twice", "one tensor per name");
        }
    }
    return gradient_layout(request.tensors).status();
}

}  // namespace gradsieve::shm
