// Bits of skipped steps never change: which steps are skipped, results and what is kept, of two nodes whose gradients
// change slowly. tests/codec/golden/reuse.txt pins them, in every form that readers have.
#include "golden_digests.hpp"
#include "reuse_loop.hpp"

namespace gradsieve::codec {
namespace {

constexpr auto kFile = GRADSIEVE_GOLDEN_DIRECTORY "/reuse.txt";

/// Numbers that are the same whatever the standard library: multiples of 2^-18 around one that stays.
std::vector<float> numbers(std::size_t elements, std::uint64_t node, std::uint64_t step) {
    const auto word = [](std::uint64_t seed) { return static_cast<std::int64_t>(mix64(seed) >> 50U) - (1 << 13); };
    std::vector<float> values(elements);
    for (std::size_t at = 0; at < elements; ++at) {
        const std::int64_t steady = word(node * 1'000'003 + at);
        const std::int64_t change = word((100 * step + node + 1) * 1'000'033 + at);
        values[at] = static_cast<float>(64 * steady + 8 * change) * 0x1p-18F;
    }
    return values;
}

std::map<std::string, std::string> make_digests() {
    std::map<std::string, std::string> digests;
    for (const char* codec : {"all | dither(levels=7)", "all | natural", "all | sign", "all | bf16",
                              "all | pow2(bits=4)", "rotate | all | minmax(bits=4)"})
        for (const std::size_t elements : {1U, 33U, 5'000U}) {
            ReuseLoop loop("similarity(skip=0.5, most=3) | " + std::string(codec), elements, 2);
            std::uint64_t result = 0;
            std::string skipped;
            for (std::uint64_t step = 1; step <= 8; ++step) {
                const auto outcome = loop.step({numbers(elements, 0, step), numbers(elements, 1, step)});
                result = mix64(result + outcome.decoded[1].digest);
                skipped += outcome.is_reuse[0] ? 's' : '.';
            }
            digests[std::string(codec) + "; n=" + std::to_string(elements)] =
                skipped + " " + hex_digest(result) + " " + hex_digest(loop.residual(1));
        }
    return digests;
}

TEST(PayloadGoldenReuse, Bits_never_change) {
    expect_pinned(kFile,
                  "Of two nodes and eight steps: those that node 0 skipped, digests of the results mixed, XXH3-64 of "
                  "node 1's residual.",
                  make_digests());
}

}  // namespace
}  // namespace gradsieve::codec
