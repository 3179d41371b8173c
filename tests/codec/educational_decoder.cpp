#include "tests/codec/educational_decoder.hpp"

#include "tests/codec/educational_positions.hpp"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

namespace gradsieve::test {
namespace {

struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};
void require(bool condition, const char* what) {
    if (!condition) throw Refused(what);
}

class Cursor {
public:
    explicit Cursor(const std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}
    std::uint8_t byte() {
        require(bit_ % 8 == 0 && bit_ / 8 < bytes_.size(), "cut short");
        bit_ += 8;
        return bytes_[bit_ / 8 - 1];
    }
    std::uint32_t bits(unsigned width) {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < width; ++i) {
            require(bit_ / 8 < bytes_.size(), "cut short");
            value += std::uint64_t{(bytes_[bit_ / 8] >> (bit_ % 8)) & 1U} * (std::uint64_t{1} << i);
            ++bit_;
        }
        return static_cast<std::uint32_t>(value);
    }
    std::uint64_t zeros_before_one() {
        std::uint64_t zeros = 0;
        while (bits(1) == 0) ++zeros;
        return zeros;
    }
    void end_section() {
        while (bit_ % 8 != 0) require(bits(1) == 0, "set padding");
    }
    void end_payload() const { require(bit_ == 8 * bytes_.size(), "bytes behind the last section"); }

private:
    const std::vector<std::uint8_t>& bytes_;
    std::size_t bit_ = 0;
};

float fp32(std::uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, 4);
    require(std::isfinite(value), "not finite");
    return value;
}
float scale(std::uint32_t bits) {
    require((bits >> 31U) == 0, "negative scale");
    return fp32(bits);
}

constexpr unsigned kF32 = 0, kF16 = 1, kBf16 = 2, kPow2 = 3, kSign = 4, kTwoMean = 5, kVote = 6, kNatural = 7;
constexpr unsigned kDither = 8, kExponential = 9, kInteger = 10, kMinMax = 11;

struct Payload {
    unsigned quantizer = 0, index_form = 0, width = 0, scale_code = 0;
    std::uint32_t k = 0;
    unsigned r = 0, p = 0, base = 0;
    std::uint32_t rotation_low = 0, rotation_high = 0;
    std::uint32_t bucket = 0;
    float chunk_scale = 0;
    float level_base = 0;
    float step = 0;
    bool is_rotated = false;
    std::vector<std::uint32_t> indices;
    std::vector<std::uint32_t> word_codes;  // the paper's words
    bool may_have(float number) const { return !is_rotated || std::fabs(number) <= std::ldexp(1.0F, 112); }
    bool has_paper_words() const { return index_form == 3 && quantizer == kPow2 && width == 4; }
};

void read_count(Cursor& in, std::uint32_t n, Payload& payload) {
    std::uint32_t k = 0;
    for (unsigned position = 0;; ++position) {
        require(position < 3, "count too long");
        const std::uint32_t byte = in.byte();
        k += (byte % 128) << (7 * position);
        if (byte >= 128) continue;
        require(position == 0 || byte != 0, "count not shortest");
        break;
    }
    require(k >= 1 && k <= n, "count out of range");
    payload.k = k;
}

void read_header(Cursor& in, std::uint32_t n, Payload& payload) {
    const unsigned version = in.byte();
    payload.quantizer = in.bits(5);
    payload.index_form = in.bits(3);
    payload.is_rotated = payload.index_form == 7;
    if (payload.is_rotated) payload.index_form = 0;
    require(payload.quantizer == kF32 || payload.quantizer == kF16 || payload.quantizer == kBf16 ||
                payload.quantizer == kPow2 || payload.quantizer == kSign || payload.quantizer == kTwoMean ||
                payload.quantizer == kVote || payload.quantizer == kNatural || payload.quantizer == kDither ||
                payload.quantizer == kExponential || payload.quantizer == kInteger || payload.quantizer == kMinMax,
            "quantizer");
    const bool is_of_3 = payload.quantizer == kF16 || payload.quantizer == kNatural;
    const bool is_side_bit = payload.quantizer == kTwoMean || payload.quantizer == kVote;
    const bool is_keyed = payload.index_form == 5 || payload.index_form == 6;
    const bool is_of_5 = is_side_bit || payload.quantizer == kInteger || payload.quantizer == kMinMax ||
                         payload.index_form == 4 || is_keyed || payload.is_rotated;
    require(version == (is_of_5 ? 5U : payload.quantizer == kExponential ? 4U : is_of_3 ? 3U : 2U), "version");
    const bool may_be_rotated =
        payload.quantizer != kPow2 && payload.quantizer != kVote && payload.quantizer != kInteger;
    require(!payload.is_rotated || may_be_rotated, "rotation");
    require(payload.quantizer != kVote || payload.index_form == 0, "list of votes");
    require(payload.quantizer != kMinMax || payload.index_form == 0, "list of minmax");
    require(!is_keyed || (payload.quantizer != kPow2 && payload.quantizer != kTwoMean), "no code for zero after a key");
    if (payload.quantizer == kInteger) {
        payload.width = in.bits(5) + 1;
        require(payload.width >= 2 && payload.width <= 24 && in.bits(3) == 0, "integer");
    } else if (payload.quantizer >= kPow2) {
        payload.width = in.bits(3) + 1;
        payload.scale_code = in.bits(2);
        require(in.bits(3) == 0, "reserved");
    }
    if (payload.quantizer == kMinMax) {
        const unsigned bucket = in.bits(8);
        require(bucket <= 6, "bucket");
        payload.bucket = 64U << bucket;
    }
    if (payload.quantizer == kPow2) require(payload.width >= 2 && payload.scale_code == 0, "pow2");
    if (payload.quantizer == kExponential) require(payload.width >= 2 && payload.scale_code == 0, "exponential_dither");
    if (payload.quantizer == kDither) require(payload.width >= 2 && payload.scale_code == 0, "dither");
    if (payload.quantizer == kMinMax) require(payload.width >= 2 && payload.scale_code == 0, "minmax");
    if (payload.quantizer == kNatural) require(payload.width == 8 && payload.scale_code == 0, "natural");
    if (payload.quantizer == kSign) require(payload.width == 1 && payload.scale_code <= 1, "sign");
    if (is_side_bit) require(payload.width == 1 && payload.scale_code == 0, "two means, votes");
    payload.k = n;
    if (payload.index_form != 0) read_count(in, n, payload);
    if (payload.index_form != 0 || payload.quantizer == kPow2) {
        payload.r = in.bits(5);
        payload.p = in.bits(3);
        const bool has_parameter = payload.index_form == 1 || payload.index_form == 4;
        require(payload.r <= (has_parameter ? 20U : 0U), "index parameter");
        require(payload.quantizer == kPow2 || payload.p == 0, "exponent parameter");
    }
    if (payload.quantizer == kPow2) {
        payload.base = in.byte();
        require(payload.base >= 1 && payload.base <= 254, "base exponent");
    }
    if (payload.quantizer == kExponential) {
        payload.level_base = fp32(in.bits(32));
        require(payload.level_base >= 1.1F && payload.level_base <= 16, "base");
    }
    if (payload.quantizer == kInteger) {
        payload.step = fp32(in.bits(32));
        require(payload.step >= std::ldexp(1.0F, -100) && payload.step <= std::ldexp(1.0F, 100), "step");
    }
    if (payload.scale_code == 1) payload.chunk_scale = scale(in.bits(32));
    if (payload.is_rotated) payload.rotation_low = in.bits(32);
    if (payload.is_rotated) payload.rotation_high = in.bits(32);
}

void read_indices(Cursor& in, std::uint32_t n, Payload& payload) {
    std::vector<std::uint64_t> found;
    if (payload.index_form == 0)
        for (std::uint32_t i = 0; i < n; ++i) found.push_back(i);
    if (payload.index_form == 1) {
        std::vector<std::uint64_t> remainders;
        for (std::uint32_t j = 0; j < payload.k; ++j) remainders.push_back(in.bits(payload.r));
        in.end_section();
        std::uint64_t next = 0;
        for (std::uint32_t j = 0; j < payload.k; ++j) {
            const std::uint64_t gap = in.zeros_before_one() * (std::uint64_t{1} << payload.r) + remainders[j];
            found.push_back(next + gap);
            next += gap + 1;
        }
    }
    if (payload.index_form == 2)
        for (std::uint32_t i = 0; i < n; ++i)
            if (in.bits(1) == 1) found.push_back(i);
    if (payload.index_form == 3)
        for (std::uint32_t j = 0; j < payload.k; ++j) {
            const std::uint32_t index = in.bits(payload.has_paper_words() ? 28 : 32);
            found.push_back(index);
            if (payload.has_paper_words()) payload.word_codes.push_back(in.bits(4));
        }
    if (payload.index_form == 4) {
        std::vector<std::uint64_t> lower;
        for (std::uint32_t j = 0; j < payload.k; ++j) lower.push_back(in.bits(payload.r));
        in.end_section();
        std::uint64_t zeros = 0;
        for (std::uint32_t bit = 0; bit < payload.k + ((n - 1) >> payload.r); ++bit) {
            if (in.bits(1) == 0) {
                ++zeros;
                continue;
            }
            require(found.size() < payload.k, "number of indices");
            found.push_back(zeros * (std::uint64_t{1} << payload.r) + lower[found.size()]);
        }
    }
    if (payload.index_form == 5 || payload.index_form == 6) {
        const std::uint32_t low = in.bits(32);
        const KeyedPositions positions(low, in.bits(32));
        if (payload.index_form == 5) {
            found = positions.subset(n, payload.k);
        } else {
            const std::uint32_t first = in.bits(32);
            found = positions.independent(n, first, in.bits(32));
        }
    }
    in.end_section();
    require(found.size() == payload.k, "number of indices");
    for (std::size_t j = 0; j < found.size(); ++j) {
        require(found[j] < n && (j == 0 || found[j] > found[j - 1]), "index");
        payload.indices.push_back(static_cast<std::uint32_t>(found[j]));
    }
}

// What the scale section says, by tile: an exponent or a scale.
void read_scales(Cursor& in, const Payload& payload, std::map<std::uint32_t, int>& exponents,
                 std::map<std::uint32_t, float>& scales, std::map<std::uint32_t, float>& negative_scales) {
    if (payload.quantizer == kMinMax) {
        for (std::uint32_t first = 0; first < payload.k; first += payload.bucket) {
            const float low = scales[first / payload.bucket] = fp32(in.bits(32));
            const float high = negative_scales[first / payload.bucket] = fp32(in.bits(32));
            require(low <= high && low >= -std::ldexp(1.0F, 126) && high <= std::ldexp(1.0F, 126), "range");
            require(payload.may_have(low) && payload.may_have(high), "large range");
        }
        return;
    }
    std::set<std::uint32_t> tiles;
    for (const std::uint32_t index : payload.indices) tiles.insert(index / 4096);
    for (const std::uint32_t tile : tiles) {
        exponents[tile] = static_cast<int>(payload.base);
        scales[tile] = payload.chunk_scale;
        if (payload.quantizer == kPow2 && payload.p < 7) {
            const std::uint64_t zeros = in.zeros_before_one();
            const std::uint64_t below = zeros * (std::uint64_t{1} << payload.p) + in.bits(payload.p);
            require(below < payload.base, "tile exponent");
            exponents[tile] -= static_cast<int>(below);
        }
        if (payload.quantizer == kDither || payload.quantizer == kExponential ||
            (payload.quantizer == kSign && payload.scale_code == 0))
            scales[tile] = scale(payload.index_form == 0 ? in.bits(32) : in.bits(16) << 16U);
        negative_scales[tile] = scales[tile];
        if (payload.quantizer == kTwoMean) {
            scales[tile] = scale(payload.index_form == 0 ? in.bits(32) : in.bits(16) << 16U);
            negative_scales[tile] = scale(payload.index_form == 0 ? in.bits(32) : in.bits(16) << 16U);
        }
        if (payload.quantizer == kVote) scales[tile] = negative_scales[tile] = 1;
    }
    in.end_section();
    for (const auto& [tile, of_tile] : scales) require(payload.may_have(of_tile), "large scale");
    for (const auto& [tile, of_tile] : negative_scales) require(payload.may_have(of_tile), "large scale");
    // The largest scale of dither is the largest finite number, halved once for each bit of a level.
    for (const auto& [tile, of_tile] : scales)
        require(payload.quantizer != kDither || of_tile <= std::ldexp(FLT_MAX, 1 - static_cast<int>(payload.width)),
                "dither scale");
}

// base^-d as the page says it is rounded.
float level_size(float base, std::uint32_t d) {
    std::vector<double> powers = {1.0 / base};  // of 1, 2, 4, ...
    while (powers.size() < 8) powers.push_back(powers.back() * powers.back());
    double product = 1;
    for (std::size_t bit = 0; bit < powers.size(); ++bit)
        if ((d >> bit) % 2 == 1) product *= powers[bit];
    return static_cast<float>(product);
}

EducationalElements read_values(Cursor& in, const Payload& payload, std::map<std::uint32_t, int>& exponents,
                                std::map<std::uint32_t, float>& scales,
                                std::map<std::uint32_t, float>& negative_scales) {
    EducationalElements elements;
    for (std::size_t j = 0; j < payload.indices.size(); ++j) {
        const std::uint32_t index = payload.indices[j];
        float value = 0;
        if (payload.quantizer == kF32) value = fp32(in.bits(32));
        if (payload.quantizer == kF16) {
            const std::uint32_t code = in.bits(16);
            const int exponent = static_cast<int>(code / 1024 % 32);
            const auto mantissa = static_cast<float>(code % 1024);
            require(exponent < 31, "not finite");
            value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
            if (code >= 32768) value = -value;
        }
        if (payload.quantizer == kBf16) value = fp32(in.bits(16) << 16U);
        require(payload.may_have(value), "large value");
        if (payload.quantizer == kPow2) {
            const unsigned exponent_bits = payload.width - 1;
            const std::uint32_t code = payload.has_paper_words() ? payload.word_codes[j] : in.bits(exponent_bits + 1);
            const int d = static_cast<int>(code % (1U << exponent_bits));
            const int exponent = exponents[index / 4096] - d;
            require(exponent >= 1, "below the normal range");
            value = std::ldexp(1.0F, exponent - 127) * ((code >> exponent_bits) != 0 ? -1.0F : 1.0F);
        }
        if (payload.quantizer == kNatural) {
            const std::uint32_t code = in.bits(8);
            const int size = static_cast<int>(code % 128);
            value = (size == 0 ? 0.0F : std::ldexp(1.0F, size - 109)) * (code >= 128 ? -1.0F : 1.0F);
        }
        if (payload.quantizer == kDither) {
            const std::uint32_t code = in.bits(payload.width);
            const std::uint32_t most = 1U << (payload.width - 1);
            value = static_cast<float>(code % most) * scales[index / 4096] * (code >= most ? -1.0F : 1.0F);
        }
        if (payload.quantizer == kInteger) {
            const std::uint32_t code = in.bits(payload.width);
            const std::uint32_t most = 1U << (payload.width - 1);
            value = static_cast<float>(code % most) * payload.step * (code >= most ? -1.0F : 1.0F);
        }
        if (payload.quantizer == kMinMax) {
            const std::uint32_t bucket = index / payload.bucket;
            const auto steps = static_cast<float>((1U << payload.width) - 1);
            const float step = (negative_scales[bucket] - scales[bucket]) / steps;
            const float rise = static_cast<float>(in.bits(payload.width)) * step;
            value = scales[bucket] + rise;
        }
        if (payload.quantizer == kExponential) {
            const std::uint32_t code = in.bits(payload.width);
            const std::uint32_t sign = 1U << (payload.width - 1);
            const std::uint32_t level = code % sign;
            const float size = level_size(payload.level_base, sign - 1 - level) * scales[index / 4096];
            value = (level == 0 ? 0.0F : size) * (code >= sign ? -1.0F : 1.0F);
        }
        if (payload.quantizer == kSign || payload.quantizer == kTwoMean || payload.quantizer == kVote)
            value = in.bits(1) == 1 ? -negative_scales[index / 4096] : scales[index / 4096];
        elements.emplace_back(index, value);
    }
    in.end_section();
    in.end_payload();
    return elements;
}

}  // namespace

std::optional<EducationalElements> educational_decode(const std::vector<std::uint8_t>& bytes, std::uint32_t n) {
    try {
        const auto plain = educational_plain(bytes, n);
        require(plain.has_value(), "coded values");
        Cursor in(*plain);
        Payload payload;
        read_header(in, n, payload);
        read_indices(in, n, payload);
        std::map<std::uint32_t, int> exponents;
        std::map<std::uint32_t, float> scales;
        std::map<std::uint32_t, float> negative_scales;
        read_scales(in, payload, exponents, scales, negative_scales);
        auto elements = read_values(in, payload, exponents, scales, negative_scales);
        if (payload.is_rotated) educational_rotate_back(payload.rotation_low, payload.rotation_high, elements);
        return elements;
    } catch (const Refused&) {
        return std::nullopt;
    }
}

}  // namespace gradsieve::test
