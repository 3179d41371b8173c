// The examples of docs/payload-format.md are what the coder writes and what the educational decoder reads.
#include "tests/codec/educational_decoder.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

namespace gradsieve::test {
namespace {

struct Example {
    std::string pipeline, bytes;
    std::size_t elements = 0;
    bool is_dense = false;
    CaseData data;
};

std::vector<Example> read_examples() {
    std::ifstream page(GRADSIEVE_PAYLOAD_PAGE);
    std::vector<Example> examples;
    bool is_inside = false;
    for (std::string line; std::getline(page, line);) {
        if (line == "```payload") examples.emplace_back();
        is_inside = line == "```payload" || (is_inside && line != "```");
        const auto colon = line.find(": ");
        if (!is_inside || colon == std::string::npos) continue;
        Example& example = examples.back();
        const std::string key = line.substr(0, colon);
        std::istringstream words(line.substr(colon + 2));
        if (key == "pipeline") std::getline(words, example.pipeline);
        if (key == "bytes") std::getline(words, example.bytes);
        if (key == "elements") words >> example.elements;
        if (key == "values") {
            example.is_dense = true;
            for (float value = 0; words >> value;) example.data.values.push_back(value);
            example.elements = example.data.values.size();
        }
        if (key == "selected")
            for (std::string pair; words >> pair;) {
                example.data.indices.push_back(static_cast<std::uint32_t>(std::stoul(pair)));
                example.data.values.push_back(std::stof(pair.substr(pair.find('=') + 1)));
            }
    }
    return examples;
}

std::string hex(const std::vector<std::uint8_t>& bytes) {
    std::ostringstream text;
    for (const std::uint8_t byte : bytes) {
        char digits[4];
        std::snprintf(digits, sizeof(digits), "%02x", byte);
        text << (text.tellp() > 0 ? " " : "") << digits;
    }
    return text.str();
}

TEST(PayloadPage, Examples_are_the_bytes_that_the_coder_writes) {
    const auto examples = read_examples();
    ASSERT_GE(examples.size(), 5U) << GRADSIEVE_PAYLOAD_PAGE;
    for (const Example& example : examples) {
        const auto pipeline = codec::parse_pipeline(example.pipeline);
        ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().to_string();
        const auto coded =
            code(*pipeline, example.elements, example.is_dense, example.data.indices, example.data.values);
        const auto bytes = octets(coded.payload);
        EXPECT_EQ(hex(bytes), example.bytes) << example.pipeline;
        const auto decoded = educational_decode(bytes, static_cast<std::uint32_t>(example.elements));
        ASSERT_TRUE(decoded.has_value());
        for (const auto& [index, value] : *decoded) {
            const auto& indices = example.data.indices;
            const auto position =
                example.is_dense ? index : std::find(indices.begin(), indices.end(), index) - indices.begin();
            EXPECT_EQ(value, coded.decoded[static_cast<std::size_t>(position)])
                << example.pipeline << ", element " << index;
        }
    }
}

}  // namespace
}  // namespace gradsieve::test
