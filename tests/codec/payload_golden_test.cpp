// Pins the bytes of every format version that is written: each quantizer x coder x size, from inputs made of integers
// alone.
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gradsieve::test {
namespace {

constexpr std::array<unsigned, 4> kVersions = {2, 3, 4, 5};
static_assert(codec::kOldestPayloadVersion == kVersions.front() && codec::kNewestPayloadVersion == kVersions.back());

std::string golden_file(unsigned version) {
    return GRADSIEVE_GOLDEN_DIRECTORY "/payload_v" + std::to_string(version) + ".txt";
}

/// Of the payloads that say that version.
std::map<std::string, std::string> make_digests(unsigned version) {
    std::map<std::string, std::string> digests;
    for (const auto& pipeline_case : all_pipeline_cases())
        for (const Shape shape : {Shape::kGaussian, Shape::kHeavyTailed})
            for (const std::size_t elements : {1, 7, 8, 31, 32, 33, 1023, 4101}) {
                const CaseData data = make_case_data(pipeline_case, shape, elements, 1000 + elements);
                const auto payload =
                    code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values).payload;
                if (payload.empty() || static_cast<unsigned>(payload[0]) != version) continue;
                if (pipeline_case.pipeline.has_entropy && version < 5) continue;  // the plain payload's bytes
                char line[64];
                std::snprintf(line, sizeof(line), "%zu bytes %016llx", payload.size(),
                              static_cast<unsigned long long>(XXH3_64bits(payload.data(), payload.size())));
                digests[canonical_text(pipeline_case.pipeline, codec::Knobs::kKeep) + "; " + shape_name(shape) +
                        "; n=" + std::to_string(elements)] = line;
            }
    return digests;
}

void write_golden(unsigned version, const std::map<std::string, std::string>& digests) {
    std::ofstream out(golden_file(version));
    out << "# Length and XXH3-64 of payloads, format version " << version
        << ". See docs/payload-format.md, \"Versions\".\n";
    for (const auto& [name, digest] : digests) out << name << ": " << digest << "\n";
    ASSERT_TRUE(out.flush().good()) << golden_file(version);
}

std::map<std::string, std::string> read_golden(unsigned version) {
    std::map<std::string, std::string> pinned;
    std::ifstream in(golden_file(version));
    for (std::string line; std::getline(in, line);) {
        const auto colon = line.find(": ");
        if (line[0] != '#' && colon != std::string::npos) pinned[line.substr(0, colon)] = line.substr(colon + 2);
    }
    return pinned;
}

TEST(PayloadGolden, Bytes_of_a_version_never_change) {
    for (const unsigned version : kVersions) {
        const auto now = make_digests(version);
        EXPECT_FALSE(now.empty()) << version;
        if (std::getenv("GRADSIEVE_UPDATE_GOLDEN") != nullptr) {
            write_golden(version, now);
            continue;
        }
        auto pinned = read_golden(version);
        EXPECT_EQ(pinned.size(), now.size()) << golden_file(version);
        for (const auto& [name, digest] : now)
            EXPECT_EQ(pinned[name], digest)
                << name
                << "\nPayload bytes changed. If that is meant: docs/payload-format.md, the version "
                   "number, a new golden file and the changelog change in the same commit; "
                   "GRADSIEVE_UPDATE_GOLDEN=1 codec_test --gtest_filter='PayloadGolden.*' writes "
                   "the files.";
    }
    if (std::getenv("GRADSIEVE_UPDATE_GOLDEN") != nullptr)
        GTEST_SKIP() << "wrote the files: review them, then run again without GRADSIEVE_UPDATE_GOLDEN";
}

}  // namespace
}  // namespace gradsieve::test
