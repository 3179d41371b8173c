#include "codec/pipeline_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace gradsieve::codec {
namespace {

constexpr std::size_t kMaximumTextBytes = 512;

bool is_name(std::string_view text) noexcept {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
}

Status split_arguments(std::string_view text, StageText& ret_stage) {
    for (const std::string_view part : split_text(text, ',')) {
        Argument argument{{}, part};
        if (const auto equals = part.find('='); equals != std::string_view::npos) {
            argument.name = trimmed(part.substr(0, equals));
            argument.value = trimmed(part.substr(equals + 1));
            if (!is_name(argument.name))
                return bad_text("codec parameter name", argument.name, "a word before '='", "name the parameter");
        } else if (!ret_stage.arguments.empty() && !ret_stage.arguments.back().name.empty()) {
            return bad_text("codec parameter", part, "name=value after the first named parameter", "name it");
        }
        if (argument.value.empty())
            return bad_text("codec parameter", part, "a value or name=value",
                            "write the value, or leave the comma out");
        ret_stage.arguments.push_back(argument);
    }
    return {};
}

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
    constexpr std::string_view kBlank = " \t\r\n";
    const auto first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const auto end = text.find(separator);
        parts.push_back(trimmed(text.substr(0, end)));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

Status bad_text(std::string_view what, std::string_view seen, std::string_view allowed, std::string_view what_to_do) {
    std::string text(what);
    text.append(" '").append(seen).append("': allowed is ").append(allowed).append("; ").append(what_to_do);
    return {StatusCode::kInvalidArgument, std::move(text)};
}

Result<std::vector<StageText>> split_pipeline(std::string_view text) {
    if (text.size() > kMaximumTextBytes)
        return bad_text("codec text of bytes", std::to_string(text.size()),
                        "at most " + std::to_string(kMaximumTextBytes), "shorten it");
    std::vector<StageText> stages;
    for (const std::string_view part : split_text(text, '|')) {
        StageText stage;
        const auto open = part.find('(');
        stage.name = trimmed(part.substr(0, open));
        if (!is_name(stage.name))
            return bad_text("codec stage", part, "a name, e.g. topk(0.01)",
                            "write selector | quantizer | index coder, e.g. topk(0.01) | pow2 | auto");
        if (open != std::string_view::npos) {
            if (part.back() != ')' || part.find_first_of("()", open + 1) != part.size() - 1)
                return bad_text("codec stage", part, "one pair of parentheses, at its end", "close it: name(...)");
            const auto inside = trimmed(part.substr(open + 1, part.size() - open - 2));
            if (!inside.empty()) GRADSIEVE_TRY(split_arguments(inside, stage));
        }
        stages.push_back(std::move(stage));
    }
    return stages;
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
    const auto distance = [&](std::string_view candidate) {
        std::vector<std::size_t> row(candidate.size() + 1);
        for (std::size_t column = 0; column < row.size(); ++column) row[column] = column;
        for (std::size_t line = 0; line < name.size(); ++line) {
            std::size_t diagonal = row[0];
            row[0] = line + 1;
            for (std::size_t column = 1; column < row.size(); ++column) {
                const std::size_t replaced = diagonal + (name[line] == candidate[column - 1] ? 0 : 1);
                diagonal = row[column];
                row[column] = std::min({replaced, row[column] + 1, row[column - 1] + 1});
            }
        }
        return row.back();
    };
    return *std::min_element(candidates.begin(), candidates.end(),
                             [&](std::string_view a, std::string_view b) { return distance(a) < distance(b); });
}

void ArgumentReader::fail(Status error) {
    if (error_.is_ok()) error_ = error.with_context("codec stage " + std::string(stage_.name));
}

std::optional<std::string_view> ArgumentReader::take(std::string_view name) {
    known_names_.push_back(name);
    const std::size_t position = next_position_++;
    std::optional<std::string_view> value;
    for (std::size_t i = 0; i < stage_.arguments.size(); ++i) {
        const Argument& argument = stage_.arguments[i];
        if (argument.name.empty() ? i != position : argument.name != name) continue;
        if (value) fail(bad_text("parameter", name, "given once", "remove one of the two"));
        value = argument.value;
        is_taken_[i] = true;
    }
    return value;
}

double ArgumentReader::parse_number(std::string_view name, std::string_view value, const NumberRange& range) {
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool is_number = error == std::errc() && end == value.data() + value.size() && std::isfinite(number);
    const bool is_above = range.is_low_open ? number > range.low : number >= range.low;
    if (!is_number || !is_above || number > range.high)
        fail(bad_text(name, value, range.text, "write a number in that range"));
    return number == 0 ? 0.0 : number;  // -0 has the same meaning and gets the same spelling
}

double ArgumentReader::number(std::string_view name, std::optional<double> default_value, const NumberRange& range) {
    const auto value = take(name);
    if (value) return parse_number(name, *value, range);
    if (!default_value) fail(bad_text(name, "missing", range.text, "write " + std::string(stage_.name) + "(number)"));
    return default_value.value_or(range.high);
}

std::size_t ArgumentReader::word(std::string_view name, std::size_t default_position,
                                 std::span<const std::string_view> words) {
    const auto value = take(name);
    if (!value) return default_position;
    const auto found = std::find(words.begin(), words.end(), *value);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
    std::string allowed;
    for (const std::string_view word : words) allowed.append(allowed.empty() ? "" : " or ").append(word);
    fail(bad_text(name, *value, allowed, "did you mean " + std::string(nearest_name(*value, words)) + "?"));
    return default_position;
}

Status ArgumentReader::finish() {
    for (std::size_t i = 0; i < stage_.arguments.size() && error_.is_ok(); ++i) {
        const Argument& argument = stage_.arguments[i];
        if (is_taken_[i]) continue;
        std::string allowed;
        for (const std::string_view name : known_names_) allowed.append(allowed.empty() ? "" : ", ").append(name);
        if (known_names_.empty())
            fail(bad_text("parameter", argument.name.empty() ? argument.value : argument.name, "none", "remove it"));
        else if (argument.name.empty())
            fail(bad_text("extra parameter", argument.value, allowed, "remove it"));
        else
            fail(bad_text("parameter", argument.name, allowed,
                          "did you mean " + std::string(nearest_name(argument.name, known_names_)) + "?"));
    }
    return error_;
}

std::string number_text(double value) {
    std::array<char, 40> buffer;
    const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    GRADSIEVE_CHECK(error == std::errc());
    return {buffer.data(), end};
}

}  // namespace gradsieve::codec
