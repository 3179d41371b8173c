#include "cli/console.hpp"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <clocale>
#include <cstdlib>

namespace gradsieve::cli {

namespace {

constexpr std::size_t kLeastWidth = 60;
constexpr std::size_t kMostWidth = 160;  // wider lines are hard to follow
constexpr std::size_t kDefaultWidth = 100;

std::string_view variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
}

std::size_t columns_of_environment() {
    const auto text = variable("COLUMNS");
    std::size_t columns = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
    return error == std::errc() && end == text.data() + text.size() && columns > 0 ? columns : kDefaultWidth;
}

}  // namespace

std::string Look::paint(Ink ink, std::string_view text) const {
    if (!has_colour || ink == Ink::kPlain || text.empty()) return std::string(text);
    constexpr std::array<std::string_view, 7> kCodes = {"0", "1", "2", "32", "33", "1;31", "1;36"};
    return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(ink)], text);
}

bool is_stdout_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

Look look_of_stdout() {
    static_cast<void>(std::setlocale(LC_CTYPE, ""));
    Look look;
    look.has_unicode = std::string_view(::nl_langinfo(CODESET)) == "UTF-8";
    look.width = columns_of_environment();
    winsize size{};
    if (is_stdout_terminal() && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        look.width = size.ws_col;
        look.height = size.ws_row;
    }
    look.width = std::clamp(look.width, kLeastWidth, kMostWidth);
    look.has_colour = is_stdout_terminal() && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
    return look;
}

}  // namespace gradsieve::cli
