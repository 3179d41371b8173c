#include "codec/tile_table.hpp"

#include "codec/bit_stream.hpp"
#include "codec/quantize.hpp"

namespace gradsieve::codec {

void find_tiles(std::span<const std::uint32_t> indices, TileTable& ret_tiles) noexcept {
    ret_tiles.count = 0;
    for (std::uint32_t first = 0; first < indices.size();) {
        first = tile_run_end(indices, first);
        ret_tiles.ends[ret_tiles.count++] = first;
    }
}

ExponentPlan plan_exponents(const TileTable& tiles, std::uint8_t base) noexcept {
    ExponentPlan plan;
    plan.base = base;
    std::uint32_t differing = 0;
    for (std::uint32_t tile = 0; tile < tiles.count; ++tile) differing |= base - tiles.exponents[tile];
    if (differing == 0) return plan;
    for (unsigned parameter = 0; parameter < kNoTileExponents; ++parameter) {
        std::uint64_t bits = std::uint64_t{tiles.count} * (1 + parameter);
        for (std::uint32_t tile = 0; tile < tiles.count; ++tile)
            bits += static_cast<unsigned>(base - tiles.exponents[tile]) >> parameter;
        if (plan.parameter != kNoTileExponents && bits >= plan.bits) continue;
        plan.parameter = parameter;
        plan.bits = bits;
    }
    return plan;
}

std::byte* build_exponents(const TileTable& tiles, const ExponentPlan& plan, std::byte* out) {
    if (plan.parameter == kNoTileExponents) return out;
    BitPacker packer(out);
    for (std::uint32_t tile = 0; tile < tiles.count; ++tile) {
        const auto octaves = static_cast<std::uint32_t>(plan.base - tiles.exponents[tile]);
        packer.put_unary(octaves >> plan.parameter);
        packer.put(octaves & ((1U << plan.parameter) - 1), plan.parameter);
    }
    return packer.end();
}

Status parse_exponents(const PayloadHeader& header, ByteView body, TileTable& inout_tiles,
                       std::size_t& ret_used_bytes) {
    ret_used_bytes = 0;
    if (header.exponent_parameter == kNoTileExponents) {
        for (std::uint32_t tile = 0; tile < inout_tiles.count; ++tile)
            inout_tiles.exponents[tile] = header.base_exponent;
        return {};
    }
    BitReader reader(body);
    for (std::uint32_t tile = 0; tile < inout_tiles.count; ++tile) {
        std::uint32_t quotient = 0;
        while (reader.is_ok() && quotient < header.base_exponent && reader.read_bit() == 0) ++quotient;
        const std::uint32_t octaves = (quotient << header.exponent_parameter) + reader.read(header.exponent_parameter);
        if (!reader.is_ok()) return corrupt_payload("tile exponents", "cut off", "one for each tile with elements");
        if (octaves >= header.base_exponent)
            return corrupt_payload("tile exponent's distance", octaves,
                                   "less than the base exponent, " + std::to_string(header.base_exponent));
        inout_tiles.exponents[tile] = static_cast<std::uint8_t>(header.base_exponent - octaves);
    }
    if (!has_zero_padding(body, reader.position_bits()))
        return corrupt_payload("tile exponents", "with set padding", "zero bits");
    ret_used_bytes = bytes_of_bits(reader.position_bits());
    return {};
}

}  // namespace gradsieve::codec
