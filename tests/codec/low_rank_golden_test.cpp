// Bits of lowrank never change: payloads of both phases, results and what is kept, of nodes that start with the same
// seed. tests/codec/golden/low_rank.txt pins them.
#include "golden_digests.hpp"
#include "phase_loop.hpp"

namespace gradsieve::codec {
namespace {

constexpr auto kFile = GRADSIEVE_GOLDEN_DIRECTORY "/low_rank.txt";

std::map<std::string, std::string> make_digests() {
    std::map<std::string, std::string> digests;
    for (const char* codec : {"lowrank(1, 64)", "lowrank(3, 100)", "lowrank(4, columns=square)",
                              "compensate(0.5, 0.25, 0.75) | lowrank(2, 33)"})
        for (const std::size_t elements : {1U, 64U, 1000U, 70'001U}) {
            PhaseLoop loop(codec, elements, 2);
            std::uint64_t result = 0;
            for (std::uint64_t step = 0; step < 3; ++step)
                result = mix64(result +
                               loop.step({golden_numbers(elements, 2 * step), golden_numbers(elements, 2 * step + 1)})
                                   .decoded[1]
                                   .digest);
            digests[std::string(codec) + "; n=" + std::to_string(elements)] =
                hex_digest(result) + " " + hex_digest(loop.residual(1)) + " " + hex_digest(loop.factor(1));
        }
    return digests;
}

TEST(LowRankGolden, Bits_never_change) {
    expect_pinned(
        kFile, "Of two nodes and three steps: digests of the results mixed, XXH3-64 of node 1's residual and factor.",
        make_digests());
}

}  // namespace
}  // namespace gradsieve::codec
