// The grammar of a codec's text below the meaning of its names: stages between `|`, each a name with arguments in
// parentheses, positional ones first, then `name=value`. Knows no stage. Any thread; views borrow the text.
#pragma once

#include "base/status.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::codec {

struct Argument {
    std::string_view name;  ///< empty: positional
    std::string_view value;
};
struct StageText {
    std::string_view name;
    std::vector<Argument> arguments;
};

/// Without blanks and line ends around it.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;
/// The parts between separators, each trimmed; at least one.
[[nodiscard]] std::vector<std::string_view> split_text(std::string_view text, char separator);

/// Splits into stages; at least one. Errors: kInvalidArgument.
[[nodiscard]] Result<std::vector<StageText>> split_pipeline(std::string_view text);

/// The candidate with the fewest edits (insert, delete, replace); the earlier one on a tie. `candidates` is not empty.
[[nodiscard]] std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

/// kInvalidArgument "<what> '<seen>': allowed is <allowed>; <what to do>".
[[nodiscard]] Status bad_text(std::string_view what, std::string_view seen, std::string_view allowed,
                              std::string_view what_to_do);

struct NumberRange {
    double low = 0;
    double high = 0;
    bool is_low_open = false;  ///< `low` itself is not allowed
    std::string_view text;     ///< as users read it, e.g. "(0, 1]"
};

/// Hands a stage its arguments: each is asked for once, in positional order; the first error is kept and later
/// questions answer with their defaults. `finish` also refuses what nobody asked for.
class ArgumentReader {
public:
    explicit ArgumentReader(const StageText& stage) : stage_(stage), is_taken_(stage.arguments.size(), false) {}

    /// Without a default the argument is required.
    [[nodiscard]] double number(std::string_view name, std::optional<double> default_value, const NumberRange& range);
    /// One of `words`; returns its position.
    [[nodiscard]] std::size_t word(std::string_view name, std::size_t default_position,
                                   std::span<const std::string_view> words);
    /// The text itself, or nothing.
    [[nodiscard]] std::optional<std::string_view> take(std::string_view name);
    [[nodiscard]] double parse_number(std::string_view name, std::string_view value, const NumberRange& range);
    [[nodiscard]] Status finish();

private:
    void fail(Status error);

    const StageText& stage_;
    std::vector<bool> is_taken_;
    std::vector<std::string_view> known_names_;
    std::size_t next_position_ = 0;
    Status error_;
};

/// The shortest decimal form that reads back as the same double.
[[nodiscard]] std::string number_text(double value);

}  // namespace gradsieve::codec
