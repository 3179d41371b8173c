// What every fuzz target gives: valid inputs to begin with, and one run over bytes from outside. Linked with libFuzzer
// by the preset `fuzz` (./dev fuzz), and with a plain main that replays and mutates in every other build (./dev test).
// One thread.
#pragma once

#include "base/bytes.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::fuzz {

/// Inputs that the code under test takes, built by the code that makes them.
[[nodiscard]] std::vector<Bytes> seeds();
/// Must neither crash nor hang nor allocate by what the bytes claim; ends the process if a promise is broken.
void run_one(ByteView input);

/// A promise of the code under test.
inline void require(bool holds, const char* promise) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s\n", promise);
    std::abort();
}

/// A seed that begins with the byte which tells a target's parsers apart.
[[nodiscard]] inline Bytes tagged(std::uint8_t tag, ByteView bytes) {
    Bytes seed{std::byte{tag}};
    seed.insert(seed.end(), bytes.begin(), bytes.end());
    return seed;
}
[[nodiscard]] inline Bytes bytes_of(std::string_view text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
}
[[nodiscard]] inline Bytes read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    return bytes_of(text);
}
[[nodiscard]] inline std::string_view text_of(ByteView bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace gradsieve::fuzz
