// Pins the bytes of format version 2: every quantizer x coder x size, from inputs made of integers alone.
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gradsieve::test {
namespace {

constexpr const char* kGoldenFile = GRADSIEVE_GOLDEN_DIRECTORY "/payload_v2.txt";

std::map<std::string, std::string> make_digests() {
    std::map<std::string, std::string> digests;
    for (const auto& pipeline_case : all_pipeline_cases())
        for (const Shape shape : {Shape::kGaussian, Shape::kHeavyTailed})
            for (const std::size_t elements : {1, 7, 8, 31, 32, 33, 1023, 4101}) {
                const CaseData data = make_case_data(pipeline_case.is_dense, shape, elements, 1000 + elements);
                const auto payload =
                    code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values).payload;
                char line[64];
                std::snprintf(line, sizeof(line), "%zu bytes %016llx", payload.size(),
                              static_cast<unsigned long long>(XXH3_64bits(payload.data(), payload.size())));
                digests[canonical_text(pipeline_case.pipeline, codec::Knobs::kKeep) + "; " + shape_name(shape) +
                        "; n=" + std::to_string(elements)] = line;
            }
    return digests;
}

TEST(PayloadGolden, Bytes_of_version_2_never_change) {
    const auto now = make_digests();
    if (std::getenv("GRADSIEVE_UPDATE_GOLDEN") != nullptr) {
        std::ofstream out(kGoldenFile);
        out << "# Length and XXH3-64 of payloads, format version 2. See docs/payload-format.md, \"Versions\".\n";
        for (const auto& [name, digest] : now) out << name << ": " << digest << "\n";
        ASSERT_TRUE(out.flush().good()) << kGoldenFile;
        GTEST_SKIP() << "wrote " << kGoldenFile << ": review it, then run again without GRADSIEVE_UPDATE_GOLDEN";
    }
    std::map<std::string, std::string> pinned;
    std::ifstream in(kGoldenFile);
    for (std::string line; std::getline(in, line);) {
        const auto colon = line.find(": ");
        if (line[0] != '#' && colon != std::string::npos) pinned[line.substr(0, colon)] = line.substr(colon + 2);
    }
    EXPECT_EQ(pinned.size(), now.size()) << kGoldenFile;
    for (const auto& [name, digest] : now)
        EXPECT_EQ(pinned[name], digest)
            << name
            << "\nPayload bytes changed. If that is meant: docs/payload-format.md, the version "
               "number, a new golden file and the changelog change in the same commit; "
               "GRADSIEVE_UPDATE_GOLDEN=1 codec_test --gtest_filter='PayloadGolden.*' writes "
               "the file.";
}

}  // namespace
}  // namespace gradsieve::test
