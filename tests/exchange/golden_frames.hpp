// The golden frames' bytes: hexadecimal digits, blanks between them, '#' starts a comment.
#pragma once

#include "base/bytes.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace gradsieve::exchange {

/// Empty if the file is not there.
[[nodiscard]] inline Bytes read_golden_frame(const std::filesystem::path& path) {
    std::ifstream file(path);
    Bytes bytes;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        for (std::string word; words >> word;) bytes.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
    }
    return bytes;
}

}  // namespace gradsieve::exchange
