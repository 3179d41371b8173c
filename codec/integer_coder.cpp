#include "codec/integer_coder.hpp"

#include "codec/bit_stream.hpp"
#include "codec/payload.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec {
namespace {

/// Codes in hand at a time, a multiple of 8.
constexpr std::uint32_t kPartCodes = 4096;
/// What the kernels pack and unpack, and how far they read and write beyond.
constexpr unsigned kMostPackedBits = 16;
constexpr std::size_t kKernelSlack = 16;

}  // namespace

IntegerStep integer_step(const Quantizer& quantizer, const RandomStream& random, std::uint64_t first_element) noexcept {
    const auto scale = static_cast<float>(quantizer.scale);
    return {scale, integer_step_size(scale), quantizer.is_biased, random_rounds(random), first_element};
}

std::uint32_t integer_magnitudes(std::span<const std::uint32_t> codes) noexcept {
    std::uint32_t magnitudes = 0;
    for (const std::uint32_t code : codes) magnitudes |= code;
    return magnitudes & ~kIntegerSign;
}

std::byte* build_integers(std::span<const std::uint32_t> codes, unsigned bits, const PayloadKernels& kernels,
                          std::byte* out) noexcept {
    std::array<std::uint32_t, kPartCodes> fields;
    while (!codes.empty()) {
        const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kPartCodes, codes.size()));
        kernels.narrow_integers(codes.data(), count, bits, fields.data());
        const std::uint32_t groups = bits <= kMostPackedBits ? count / 8 : 0;
        if (groups > 0) kernels.pack_words(fields.data(), groups, bits, out);
        BitPacker packer(out + std::size_t{groups} * bits);
        for (std::uint32_t field = 8 * groups; field < count; ++field) packer.put(fields[field], bits);
        out = packer.end();
        codes = codes.subspan(count);
    }
    return out;
}

PayloadBytes build_dense_integers(const Quantizer& quantizer, std::span<const std::uint32_t> codes,
                                  std::uint32_t magnitudes, const PayloadPool& pool, const PayloadKernels& kernels) {
    if (magnitudes == 0) return {};
    PayloadHeader header = header_of(quantizer, IndexForm::kEvery, codes.size());
    header.code_bits = integer_bits(magnitudes);
    PayloadContent content;
    content.chunk_elements = codes.size();
    PayloadBytes payload = pool.take(encoded_bytes(header, content));
    const std::byte* end = build_integers(codes, header.code_bits, kernels, build_header(header, payload.data()));
    GRADSIEVE_CHECK(end == payload.data() + payload.size());
    return payload;
}

void read_integers(ByteView section, std::uint32_t first, std::uint32_t count, unsigned bits, float size,
                   float* ret_values) noexcept {
    const PayloadKernels& kernels = payload_kernels();
    std::array<std::uint32_t, kPartCodes> fields;
    for (std::uint32_t part = 0; part < count; part += kPartCodes) {
        const std::uint32_t part_count = std::min(kPartCodes, count - part);
        const ByteView packed = section.subspan(std::size_t{first + part} / 8 * bits);
        const std::size_t readable = packed.size() > kKernelSlack ? packed.size() - kKernelSlack : 0;
        const auto groups = bits <= kMostPackedBits
                                ? static_cast<std::uint32_t>(std::min<std::size_t>(part_count / 8, readable / bits))
                                : 0U;
        if (groups > 0) kernels.unpack_words(packed.data(), groups, bits, fields.data());
        unpack_fields(packed.subspan(std::size_t{groups} * bits), part_count - 8 * groups, bits,
                      fields.data() + std::size_t{8} * groups);
        kernels.decode_integers(fields.data(), part_count, bits, size, ret_values + part);
    }
}

}  // namespace gradsieve::codec
