#include "golden_digests.hpp"

#include "base/id.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gradsieve::codec {

std::vector<float> golden_numbers(std::size_t elements, std::uint64_t seed) {
    std::vector<float> values(elements);
    for (std::size_t at = 0; at < elements; ++at) {
        const auto word = static_cast<std::int64_t>(mix64(seed * 1'000'003 + at) >> 50U) - (1 << 13);
        values[at] = static_cast<float>(word) * 0x1p-12F;
    }
    return values;
}

std::string hex_digest(std::uint64_t digest) {
    char text[20];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(digest));
    return text;
}

std::string hex_digest(const std::vector<float>& values) {
    return hex_digest(XXH3_64bits(values.data(), values.size() * sizeof(float)));
}

void expect_pinned(const std::string& file, std::string_view heading,
                   const std::map<std::string, std::string>& digests) {
    if (std::getenv("GRADSIEVE_UPDATE_GOLDEN") != nullptr) {
        std::ofstream out(file);
        out << "# " << heading << "\n";
        for (const auto& [name, digest] : digests) out << name << ": " << digest << "\n";
        ASSERT_TRUE(out.flush().good());
        GTEST_SKIP() << "wrote the file: review it, then run again without GRADSIEVE_UPDATE_GOLDEN";
    }
    std::map<std::string, std::string> pinned;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        const auto colon = line.find(": ");
        if (line[0] != '#' && colon != std::string::npos) pinned[line.substr(0, colon)] = line.substr(colon + 2);
    }
    EXPECT_EQ(pinned.size(), digests.size());
    for (const auto& [name, digest] : digests)
        EXPECT_EQ(pinned[name], digest) << name << "\nNodes of different releases would disagree. If that is meant: "
                                        << "docs/payload-format.md, the version and the changelog change with it.";
}

}  // namespace gradsieve::codec
