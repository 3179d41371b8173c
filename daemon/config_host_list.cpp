#include "daemon/config_host_list.hpp"

#include "daemon/config_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace gradsieve::daemon {

namespace {

constexpr std::size_t kTextLimitBytes = std::size_t{64} << 10U;
constexpr std::size_t kDigitsLimit = 9;

Status bad_list(std::string_view part, std::string_view why) {
    return {StatusCode::kInvalidArgument,
            fmt::format("host list, at '{}': {}: allowed are names and ranges such as node[01-04,7],login; correct it",
                        part.substr(0, 120), why)};
}

/// The parts between commas that stand in no bracket.
Result<std::vector<std::string_view>> split_hosts(std::string_view text) {
    std::vector<std::string_view> parts;
    std::size_t begin = 0;
    bool is_inside = false;
    for (std::size_t at = 0; at <= text.size(); ++at) {
        const char character = at < text.size() ? text[at] : ',';
        if (character == '[' && is_inside) return bad_list(text.substr(begin), "a bracket in a bracket");
        if (character == ']' && !is_inside) return bad_list(text.substr(begin), "a bracket that nothing opens");
        is_inside = character == '[' || (is_inside && character != ']');
        if (at == text.size() && is_inside) return bad_list(text.substr(begin), "a bracket that is not closed");
        if (character != ',' || is_inside) continue;
        parts.push_back(text.substr(begin, at - begin));
        begin = at + 1;
    }
    return parts;
}

std::optional<std::uint32_t> number_of(std::string_view digits) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (digits.empty() || digits.size() > kDigitsLimit || error != std::errc() || end != digits.data() + digits.size())
        return std::nullopt;
    return number;
}

/// "01-03,7" as its numbers, in words of their width.
Result<std::vector<std::string>> numbers_of(std::string_view ranges) {
    std::vector<std::string> numbers;
    for (std::size_t begin = 0; begin <= ranges.size();) {
        const auto comma = std::min(ranges.find(',', begin), ranges.size());
        const auto range = ranges.substr(begin, comma - begin);
        const auto dash = range.find('-');
        const auto low = range.substr(0, dash);
        const auto first = number_of(low);
        const auto last = dash == std::string_view::npos ? first : number_of(range.substr(dash + 1));
        if (!first || !last || *last < *first) return bad_list(range, "no range of numbers");
        if (*last - *first >= kHostListLimit || numbers.size() + (*last - *first) >= kHostListLimit)
            return bad_list(range, fmt::format("more than {} hosts", kHostListLimit));
        for (auto number = *first; number <= *last; ++number)
            numbers.push_back(fmt::format("{:0{}}", number, low.size()));
        begin = comma + 1;
    }
    return numbers;
}

/// One part with all of its brackets.
Result<std::vector<std::string>> expand_part(std::string_view part) {
    std::vector<std::string> hosts{""};
    for (auto rest = part; !rest.empty();) {
        const auto open = std::min(rest.find('['), rest.size());
        for (auto& host : hosts) host.append(rest.substr(0, open));
        if (open == rest.size()) break;
        const auto close = rest.find(']');
        GRADSIEVE_ASSIGN(const auto numbers, numbers_of(rest.substr(open + 1, close - open - 1)));
        if (hosts.size() * numbers.size() > kHostListLimit)
            return bad_list(part, fmt::format("more than {} hosts", kHostListLimit));
        std::vector<std::string> longer;
        for (const auto& host : hosts)
            for (const auto& number : numbers) longer.push_back(host + number);
        hosts = std::move(longer);
        rest.remove_prefix(close + 1);
    }
    return hosts;
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view text) {
    if (text.size() > kTextLimitBytes) return bad_list(text, fmt::format("more than {} bytes", kTextLimitBytes));
    std::vector<std::string> hosts;
    GRADSIEVE_ASSIGN(const auto parts, split_hosts(text));
    for (const auto part : parts) {
        GRADSIEVE_ASSIGN(auto expanded, expand_part(part));
        for (auto& host : expanded) {
            if (!is_node_name(host)) return bad_list(part, fmt::format("'{}' is no host's name", host));
            if (std::ranges::find(hosts, host) != hosts.end())
                return bad_list(part, fmt::format("'{}' is named twice", host));
            hosts.push_back(std::move(host));
        }
        if (hosts.size() > kHostListLimit) return bad_list(part, fmt::format("more than {} hosts", kHostListLimit));
    }
    return hosts;
}

}  // namespace gradsieve::daemon
