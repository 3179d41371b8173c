#include "daemon/config_check.hpp"

#include "codec/codec_rules.hpp"
#include "daemon/config_budget.hpp"
#include "daemon/config_host.hpp"

#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace gradsieve::daemon {

namespace {

constexpr unsigned kCpuLimit = 8192;  // the kernel's largest CONFIG_NR_CPUS

bool is_of(std::string_view text, std::size_t limit, std::string_view punctuation) {
    const auto is_allowed = [&](char character) {
        return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
               (character >= '0' && character <= '9') || punctuation.find(character) != std::string_view::npos;
    };
    return !text.empty() && text.size() <= limit && std::all_of(text.begin(), text.end(), is_allowed);
}

/// A whole decimal number below `limit`, nothing around it.
std::optional<unsigned> number_below(std::string_view text, unsigned limit) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value >= limit) return std::nullopt;
    return value;
}

bool is_cpu_range(std::string_view text) {
    const auto dash = text.find('-');
    const auto first = number_below(text.substr(0, dash), kCpuLimit);
    if (dash == std::string_view::npos) return first.has_value();
    const auto last = number_below(text.substr(dash + 1), kCpuLimit);
    return first && last && *first <= *last;
}

}  // namespace

bool is_cpu_list(std::string_view text) {
    if (text.empty()) return true;
    for (std::size_t start = 0; start <= text.size();) {
        const auto comma = std::min(text.find(',', start), text.size());
        if (!is_cpu_range(text.substr(start, comma - start))) return false;
        start = comma + 1;
    }
    return true;
}

bool is_interface_rule(const std::string& text) {
    if (text.empty()) return true;
    const std::string rule = text.front() == '!' ? text.substr(1) : text;
    const auto slash = rule.find('/');
    if (slash != std::string::npos) {
        const auto address = numeric_address(rule.substr(0, slash));
        const unsigned bits = address.find(':') == std::string::npos ? 32 : 128;
        return !address.empty() && number_below(rule.substr(slash + 1), bits + 1).has_value();
    }
    return !numeric_address(rule).empty() || is_of(rule, IFNAMSIZ - 1, "._-@");
}

bool is_node_name(std::string_view text) { return is_of(text, 64, "._-"); }

bool is_host_address(std::string_view text) {
    return !numeric_address(std::string(text)).empty() || is_of(text, 253, "._-");
}

bool is_group_name(std::string_view text) { return is_of(text, 32, "._-$"); }

bool is_absolute_path(std::string_view text, std::size_t limit_bytes) {
    return !text.empty() && text.front() == '/' && text.size() <= limit_bytes &&
           text.find('\0') == std::string_view::npos;
}

std::optional<std::string> codec_refusal(const std::string& text, bool may_have_rules) {
    const auto split = may_have_rules ? split_budget(text) : BudgetedCodec{text, {}};
    if (!split.is_ok()) return std::string(split.error().text());
    const auto status =
        may_have_rules ? codec::parse_codec(split->codec).status() : codec::parse_pipeline(text).status();
    if (status.is_ok()) return std::nullopt;
    return std::string(status.text());
}

}  // namespace gradsieve::daemon
