#include "codec/stages/sign_values.hpp"

#include "codec/bit_stream.hpp"
#include "codec/dense_coder.hpp"

#include <algorithm>

namespace gradsieve::codec {

std::byte* write_signs(std::span<const float> decoded, std::byte* out) {
    BitPacker packer(out);
    for (const float value : decoded) packer.put(std::bit_cast<std::uint32_t>(value) >> 31U, 1);
    return packer.end();
}

void code_sign_tile(const TileJob& job, const std::array<float, 2>& scales) {
    std::byte* bits = job.payload.tile_codes(job.tile);
    if (scales[0] > 0.0F || scales[1] > 0.0F) {
        job.kernels.pack_signs(job.values.data(), static_cast<std::uint32_t>(job.values.size()), scales[0], scales[1],
                               bits, job.ret_decoded);
        return;
    }
    std::fill_n(bits, job.payload.tile_bytes(job.values.size()), std::byte{0});
    std::fill_n(job.ret_decoded, job.values.size(), 0.0F);
}

Status read_scaled_signs(const PayloadHeader& header, const TileTable& tiles, SectionReader sections,
                         DecodedList& ret_list) {
    const std::uint32_t sides = scales_per_tile(header.quantizer);
    GRADSIEVE_ASSIGN(const ByteView scales, sections.take_scales(header, tiles.count));
    GRADSIEVE_TRY(sections.take_values(header));
    for (std::uint32_t tile = 0, first = 0; tile < tiles.count; first = tiles.ends[tile++]) {
        std::array<float, 2> both{};
        for (std::uint32_t side = 0; side < 2; ++side) {
            both[side] = list_scale_at(scales, std::size_t{tile} * sides + side % sides);
            if (!is_tile_scale(header, both[side])) return corrupt_tile_scale(header, both[side]);
        }
        read_signs(sections.rest(), first, tiles.ends[tile], both, ret_list.values.data());
    }
    return {};
}

}  // namespace gradsieve::codec
