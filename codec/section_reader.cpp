#include "codec/section_reader.hpp"

#include "codec/payload_kernels.hpp"

#include <algorithm>

namespace gradsieve::codec {

void read_codes(ByteView section, std::uint32_t count, unsigned width, std::uint8_t* ret_codes) noexcept {
    const std::size_t readable = section.size() > sizeof(std::uint64_t) ? section.size() - sizeof(std::uint64_t) : 0;
    const auto groups = static_cast<std::uint32_t>(std::min<std::size_t>(count / 8, readable / width));
    payload_kernels().unpack_bytes(section.data(), groups, width, ret_codes);
    unpack_fields(section.subspan(std::size_t{groups} * width), count - 8 * groups, width, ret_codes + 8 * groups);
}

void read_signs(ByteView section, std::uint32_t first, std::uint32_t end, const std::array<float, 2>& scales,
                float* ret_values) noexcept {
    const std::array<float, 2> values = {scales[0], -scales[1]};
    for (std::uint32_t element = first; element < end; ++element) {
        const auto bit = (static_cast<std::uint32_t>(section[element / 8]) >> (element % 8)) & 1U;
        ret_values[element] = values[bit];
    }
}

}  // namespace gradsieve::codec
