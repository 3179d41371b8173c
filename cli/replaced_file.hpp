// A file that a command writes as a whole or not at all: beside it first, then in its place. One thread.
#pragma once

#include "base/status.hpp"
#include "base/unique_fd.hpp"

#include <string>
#include <string_view>

namespace gradsieve::cli {

class ReplacedFile {
public:
    /// What stands at `path` stays as it is. Errors: kUnavailable (the folder cannot be written to; why).
    [[nodiscard]] static Result<ReplacedFile> make(const std::string& path);
    ReplacedFile(ReplacedFile&& other) noexcept;
    ReplacedFile& operator=(ReplacedFile&&) = delete;
    /// What was written beside is removed unless `put` has put it in place.
    ~ReplacedFile();
    /// Readers see the old text or the new one; anybody may read it. Once. Errors: kUnavailable (disk full; why).
    [[nodiscard]] Status put(std::string_view text);

private:
    ReplacedFile(std::string path, std::string fresh, UniqueFd fd);
    [[nodiscard]] Status failed(const char* what) const;

    std::string path_;
    std::string fresh_;  ///< empty: nothing is left beside
    UniqueFd fd_;
};

}  // namespace gradsieve::cli
