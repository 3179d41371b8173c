// Bits of sketch never change: payloads of both phases, results and what is kept, of nodes that start with the same
// seed. tests/codec/golden/sketch.txt pins them.
#include "phase_loop.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gradsieve::codec {
namespace {

constexpr auto kFile = GRADSIEVE_GOLDEN_DIRECTORY "/sketch.txt";

/// Numbers that are the same whatever the standard library: multiples of 2^-12 around zero.
std::vector<float> numbers(std::size_t elements, std::uint64_t seed) {
    std::vector<float> values(elements);
    for (std::size_t at = 0; at < elements; ++at) {
        const auto word = static_cast<std::int64_t>(mix64(seed * 1'000'003 + at) >> 50U) - (1 << 13);
        values[at] = static_cast<float>(word) * 0x1p-12F;
    }
    return values;
}

std::map<std::string, std::string> make_digests() {
    std::map<std::string, std::string> digests;
    for (const char* codec : {"sketch(0.02)", "sketch(0.05, 1)", "sketch(0.01, 3, 1000)", "sketch(0.01, 7, 100)",
                              "compensate(0.5, 0.25, 0.75) | sketch(0.02)", "momentum(0.9) | sketch(0.02)"})
        for (const std::size_t elements : {1U, 64U, 1000U, 70'001U}) {
            PhaseLoop loop(codec, elements, 2);
            std::uint64_t result = 0;
            for (std::uint64_t step = 0; step < 3; ++step)
                result =
                    mix64(result +
                          loop.step({numbers(elements, 2 * step), numbers(elements, 2 * step + 1)}).decoded[1].digest);
            char line[80];
            const auto hash_of = [](const std::vector<float>& values) {
                return static_cast<unsigned long long>(XXH3_64bits(values.data(), values.size() * sizeof(float)));
            };
            std::snprintf(line, sizeof(line), "%016llx %016llx", static_cast<unsigned long long>(result),
                          hash_of(loop.residual(1)));
            digests[std::string(codec) + "; n=" + std::to_string(elements)] = line;
        }
    return digests;
}

TEST(SketchGolden, Bits_never_change) {
    const auto now = make_digests();
    if (std::getenv("GRADSIEVE_UPDATE_GOLDEN") != nullptr) {
        std::ofstream out(kFile);
        out << "# Of two nodes and three steps: digests of the results mixed, XXH3-64 of node 1's residual.\n";
        for (const auto& [name, digest] : now) out << name << ": " << digest << "\n";
        ASSERT_TRUE(out.flush().good());
        GTEST_SKIP() << "wrote the file: review it, then run again without GRADSIEVE_UPDATE_GOLDEN";
    }
    std::map<std::string, std::string> pinned;
    std::ifstream in(kFile);
    for (std::string line; std::getline(in, line);) {
        const auto colon = line.find(": ");
        if (line[0] != '#' && colon != std::string::npos) pinned[line.substr(0, colon)] = line.substr(colon + 2);
    }
    EXPECT_EQ(pinned.size(), now.size());
    for (const auto& [name, digest] : now)
        EXPECT_EQ(pinned[name], digest) << name << "\nNodes of different releases would disagree. If that is meant: "
                                        << "docs/payload-format.md, the version and the changelog change with it.";
}

}  // namespace
}  // namespace gradsieve::codec
