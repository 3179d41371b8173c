#include "cli/human.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

namespace gradsieve::cli {

namespace {

/// One code point and the bytes it was written in. Broken UTF-8 is one byte with code point U+FFFD.
struct Glyph {
    std::uint32_t code = 0xFFFD;
    std::string_view bytes;
};

std::size_t sequence_length(unsigned char lead) {
    if (lead < 0x80U) return 1;
    if (lead >= 0xC2U && lead < 0xE0U) return 2;
    if (lead >= 0xE0U && lead < 0xF0U) return 3;
    return lead >= 0xF0U && lead < 0xF5U ? 4 : 0;
}

Glyph next_glyph(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text.front());
    const auto length = sequence_length(lead);
    if (length == 1) return {lead, text.substr(0, 1)};
    if (length == 0 || length > text.size()) return {0xFFFD, text.substr(0, 1)};
    std::uint32_t code = lead & (0xFFU >> (length + 1));
    for (std::size_t index = 1; index < length; ++index) {
        const auto byte = static_cast<unsigned char>(text[index]);
        if ((byte & 0xC0U) != 0x80U) return {0xFFFD, text.substr(0, 1)};
        code = (code << 6U) | (byte & 0x3FU);
    }
    constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_valid = code >= kLeast[length] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    return is_valid ? Glyph{code, text.substr(0, length)} : Glyph{0xFFFD, text.substr(0, 1)};
}

std::vector<Glyph> glyphs_of(std::string_view text) {
    std::vector<Glyph> glyphs;
    while (!text.empty()) {
        glyphs.push_back(next_glyph(text));
        text.remove_prefix(glyphs.back().bytes.size());
    }
    return glyphs;
}

std::size_t columns_of(std::uint32_t code) {
    if (code >= 0x0300 && code <= 0x036F) return 0;  // combining diacritical marks
    const bool is_wide = (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
                         (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
                         (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
                         (code >= 0x1F300 && code <= 0x1FAFF) || (code >= 0x20000 && code <= 0x3FFFD);
    return is_wide ? 2 : 1;
}

/// The longest run of glyphs from the front of at most `width` columns.
std::string_view front_of(std::string_view text, std::size_t width) {
    std::size_t used = 0;
    std::size_t bytes = 0;
    for (const auto& glyph : glyphs_of(text)) {
        used += columns_of(glyph.code);
        if (used > width) break;
        bytes += glyph.bytes.size();
    }
    return text.substr(0, bytes);
}
std::string_view back_of(std::string_view text, std::size_t width) {
    const auto glyphs = glyphs_of(text);
    std::size_t used = 0;
    std::size_t bytes = 0;
    for (auto glyph = glyphs.rbegin(); glyph != glyphs.rend(); ++glyph) {
        used += columns_of(glyph->code);
        if (used > width) break;
        bytes += glyph->bytes.size();
    }
    return text.substr(text.size() - bytes);
}

/// Three significant digits.
std::string three_digits(double value) {
    const int decimals = value < 9.995 ? 2 : (value < 99.95 ? 1 : 0);
    return fmt::format("{:.{}f}", value, decimals);
}

std::string scaled(std::uint64_t bytes, double step, std::span<const std::string_view> units) {
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= step - 0.5 && unit + 1 < units.size()) {  // what would round to the next unit's one is of that unit
        value /= step;
        ++unit;
    }
    return unit == 0 ? fmt::format("{} {}", bytes, units[0]) : fmt::format("{} {}", three_digits(value), units[unit]);
}

std::string grouped(std::uint64_t number) {
    const auto digits = fmt::format("{}", number);
    std::string text;
    for (std::size_t index = 0; index < digits.size(); ++index) {
        if (index > 0 && (digits.size() - index) % 3 == 0) text += ',';
        text += digits[index];
    }
    return text;
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
    constexpr std::array<std::string_view, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    return scaled(bytes, 1000, kUnits);
}

std::string memory_text(std::uint64_t bytes) {
    constexpr std::array<std::string_view, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return scaled(bytes, 1024, kUnits);
}

std::string count_text(std::uint64_t count) {
    if (count < 1'000'000) return grouped(count);
    constexpr std::array<std::string_view, 5> kUnits = {"M", "G", "T", "P", "E"};
    auto value = static_cast<double>(count) / 1e6;
    std::size_t unit = 0;
    while (value >= 999.5 && unit + 1 < kUnits.size()) {
        value /= 1000;
        ++unit;
    }
    return three_digits(value) + std::string(kUnits[unit]);
}

std::string time_text(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) return "?";
    if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
    if (seconds < 59.5) return fmt::format("{:.0f} s", seconds);
    if (seconds > 1e15) return "ages";
    const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
    if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
    if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
    return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string figure_text(double value) {
    if (!std::isfinite(value)) return "?";
    const auto magnitude = std::abs(value);
    if (magnitude < 0.9995 && magnitude > 0) return fmt::format("{:.2g}", value);
    if (magnitude < 999.95) return fmt::format("{:.1f}", value);
    if (value < 0 || value > 1e15) return fmt::format("{:.3g}", value);
    return grouped(static_cast<std::uint64_t>(std::llround(value)));
}

std::size_t display_width(std::string_view text) {
    std::size_t columns = 0;
    for (const auto& glyph : glyphs_of(text)) columns += columns_of(glyph.code);
    return columns;
}

std::string printable(std::string_view text) {
    std::string clean;
    for (const auto& glyph : glyphs_of(text)) {
        // C0 and C1 controls move cursors; the bidirectional ones reorder what was read.
        const bool is_control = glyph.code < 0x20 || (glyph.code >= 0x7F && glyph.code < 0xA0) ||
                                glyph.code == 0xFFFD || (glyph.code >= 0x200E && glyph.code <= 0x200F) ||
                                (glyph.code >= 0x2028 && glyph.code <= 0x202E) ||
                                (glyph.code >= 0x2066 && glyph.code <= 0x2069);
        clean += is_control ? std::string_view("?") : glyph.bytes;
    }
    return clean;
}

std::string cut_middle(std::string_view text, std::size_t width, std::string_view ellipsis) {
    if (display_width(text) <= width) return std::string(text);
    const auto mark = display_width(ellipsis);
    if (width <= mark) return std::string(front_of(ellipsis, width));
    const auto room = width - mark;
    const auto front = room / 2;
    return std::string(front_of(text, front)) + std::string(ellipsis) + std::string(back_of(text, room - front));
}

std::string cut_end(std::string_view text, std::size_t width, std::string_view ellipsis) {
    if (display_width(text) <= width) return std::string(text);
    const auto mark = display_width(ellipsis);
    if (width <= mark) return std::string(front_of(ellipsis, width));
    return std::string(front_of(text, width - mark)) + std::string(ellipsis);
}

std::vector<std::string> wrap_words(std::string_view text, std::size_t width, std::string_view ellipsis) {
    std::vector<std::string> lines(1);
    for (std::size_t start = 0; start < text.size();) {
        const auto end = std::min(text.find(' ', start), text.size());
        const auto word = cut_end(text.substr(start, end - start), width, ellipsis);
        start = end + 1;
        if (word.empty()) continue;
        auto& line = lines.back();
        if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
            lines.push_back(word);
        } else {
            line += (line.empty() ? "" : " ") + word;
        }
    }
    return lines;
}

}  // namespace gradsieve::cli
