// Digests of whole runs, pinned in files of tests/codec/golden, one line for each: "name: digest". Tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::codec {

/// Numbers that are the same whatever the standard library: multiples of 2^-12 around zero.
[[nodiscard]] std::vector<float> golden_numbers(std::size_t elements, std::uint64_t seed);
/// 16 hexadecimal digits.
[[nodiscard]] std::string hex_digest(std::uint64_t digest);
/// XXH3-64 of the values.
[[nodiscard]] std::string hex_digest(const std::vector<float>& values);
/// The test fails where they are not what the file has. With GRADSIEVE_UPDATE_GOLDEN set the file is written, `heading`
/// first, and the test skipped.
void expect_pinned(const std::string& file, std::string_view heading,
                   const std::map<std::string, std::string>& digests);

}  // namespace gradsieve::codec
