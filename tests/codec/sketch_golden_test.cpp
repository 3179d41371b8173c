// Bits of sketch never change: payloads of both phases, results and what is kept, of nodes that start with the same
// seed. tests/codec/golden/sketch.txt pins them.
#include "golden_digests.hpp"
#include "phase_loop.hpp"

namespace gradsieve::codec {
namespace {

constexpr auto kFile = GRADSIEVE_GOLDEN_DIRECTORY "/sketch.txt";

std::map<std::string, std::string> make_digests() {
    std::map<std::string, std::string> digests;
    for (const char* codec : {"sketch(0.02)", "sketch(0.05, 1)", "sketch(0.01, 3, 1000)", "sketch(0.01, 7, 100)",
                              "compensate(0.5, 0.25, 0.75) | sketch(0.02)", "momentum(0.9) | sketch(0.02)"})
        for (const std::size_t elements : {1U, 64U, 1000U, 70'001U}) {
            PhaseLoop loop(codec, elements, 2);
            std::uint64_t result = 0;
            for (std::uint64_t step = 0; step < 3; ++step)
                result = mix64(result +
                               loop.step({golden_numbers(elements, 2 * step), golden_numbers(elements, 2 * step + 1)})
                                   .decoded[1]
                                   .digest);
            digests[std::string(codec) + "; n=" + std::to_string(elements)] =
                hex_digest(result) + " " + hex_digest(loop.residual(1));
        }
    return digests;
}

TEST(SketchGolden, Bits_never_change) {
    expect_pinned(kFile, "Of two nodes and three steps: digests of the results mixed, XXH3-64 of node 1's residual.",
                  make_digests());
}

}  // namespace
}  // namespace gradsieve::codec
