// Numbers and names as a person reads them. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::cli {

/// Three significant digits in powers of 1,000: "0 B", "999 B", "1.23 kB", "12.3 MB". For traffic.
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
/// Three significant digits in powers of 1,024: "1.00 GiB". For memory.
[[nodiscard]] std::string memory_text(std::uint64_t bytes);
/// "1,234" up to six digits, then three significant ones: "12.3M".
[[nodiscard]] std::string count_text(std::uint64_t count);
/// "0.4 s", "59 s", "2 min 5 s", "3 h 10 min", "2 d 4 h".
[[nodiscard]] std::string time_text(double seconds);
/// "0.12", "5.1", "143", "12,345": milliseconds and ratios.
[[nodiscard]] std::string figure_text(double value);

/// Columns that UTF-8 text takes: one per code point, two for wide East Asian ones, none for combining marks.
[[nodiscard]] std::size_t display_width(std::string_view text);
/// Names from outside as one harmless line: control characters and broken UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text);
/// At most `width` columns, `ellipsis` in the middle if cut: both ends of a name tell something.
[[nodiscard]] std::string cut_middle(std::string_view text, std::size_t width, std::string_view ellipsis);
/// The same at the end: for sentences.
[[nodiscard]] std::string cut_end(std::string_view text, std::size_t width, std::string_view ellipsis);
/// Its words in lines of at most `width` columns; longer words are cut. At least one line.
[[nodiscard]] std::vector<std::string> wrap_words(std::string_view text, std::size_t width, std::string_view ellipsis);

}  // namespace gradsieve::cli
