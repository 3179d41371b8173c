// Bytes as hexadecimal digits, for golden tests. Tests only.
#pragma once

#include "base/bytes.hpp"

#include <string>

namespace gradsieve::shm {

inline std::string hex_of(ByteView bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (const auto byte : bytes) {
        text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
        text += kDigits[std::to_integer<unsigned>(byte) & 15U];
    }
    return text;
}

}  // namespace gradsieve::shm
