// Hostile bytes: mutated payloads are refused exactly where the educational decoder, written from the page, refuses
// them, and otherwise decode to the same elements. Under the address sanitizer this also shows that nothing outside is
// read.
#include "codec/payload_reader.hpp"

#include "codec/decoder.hpp"
#include "tests/codec/educational_decoder.hpp"
#include "tests/codec/payload_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace gradsieve::test {
namespace {

using codec::DecodedList;
using codec::PayloadView;

/// All elements by the fast reader; nothing if it refuses.
std::optional<EducationalElements> read_fast(const Bytes& payload, std::size_t elements, DecodedList& list) {
    Bytes expanded;
    const auto view = codec::open_payload(payload, elements, expanded);
    if (!view.is_ok()) return std::nullopt;
    EducationalElements result;
    if (view->is_list()) {
        if (!codec::decode_list(*view, list).is_ok()) return std::nullopt;
        for (std::uint32_t i = 0; i < list.count; ++i) result.emplace_back(list.indices[i], list.values[i]);
        return result;
    }
    std::vector<float> memory(elements);
    codec::ResultTensor tensor(1, memory.data(), elements);
    const codec::ChunkView chunk{0, payload};
    const codec::Contribution contribution{1.0F, std::span(&chunk, 1)};
    if (!tensor.decode_average(1, std::span(&contribution, 1)).is_ok()) return std::nullopt;
    for (std::size_t i = 0; i < elements; ++i) result.emplace_back(static_cast<std::uint32_t>(i), memory[i]);
    return result;
}

void expect_same(const Bytes& payload, std::size_t elements, DecodedList& list) {
    const auto expected = educational_decode(octets(payload), static_cast<std::uint32_t>(elements));
    const bool is_valid = codec::validate_chunk(payload, elements).is_ok();
    const auto fast = read_fast(payload, elements, list);
    ASSERT_EQ(is_valid, expected.has_value()) << codec::validate_chunk(payload, elements).to_string();
    ASSERT_EQ(fast.has_value(), expected.has_value());
    if (!expected) return;
    ASSERT_EQ(fast->size(), expected->size());
    for (std::size_t i = 0; i < expected->size(); ++i) {
        ASSERT_LT((*fast)[i].first, elements);
        ASSERT_EQ((*fast)[i].first, (*expected)[i].first);
        ASSERT_EQ((*fast)[i].second, (*expected)[i].second);
    }
}

/// One to three changes: a bit, a byte, the end, the middle.
Bytes mutate(Bytes payload, std::uint64_t& state) {
    for (std::uint64_t changes = 1 + random_word(state) % 3; changes > 0 && !payload.empty(); --changes) {
        // Half of all changes hit the header, where they matter most.
        const std::size_t reach =
            random_word(state) % 2 == 0 ? std::min<std::size_t>(payload.size(), 8) : payload.size();
        const auto position = random_word(state) % reach;
        const auto at = payload.begin() + static_cast<std::ptrdiff_t>(position);
        switch (random_word(state) % 6) {
            case 0:
            case 1: *at ^= static_cast<std::byte>(1U << (random_word(state) % 8)); break;
            case 2: *at = static_cast<std::byte>(random_word(state)); break;
            case 3: payload.resize(position); break;
            case 4: payload.insert(at, static_cast<std::byte>(random_word(state))); break;
            case 5: payload.erase(at); break;
        }
    }
    payload.shrink_to_fit();
    return payload;
}

std::uint64_t make_seed() {
    if (const char* given = std::getenv("GRADSIEVE_TEST_SEED")) return std::strtoull(given, nullptr, 10);
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

TEST(PayloadReader, Mutated_payloads_are_refused_or_decode_as_the_page_says) {
    const std::uint64_t seed = make_seed();
    SCOPED_TRACE("GRADSIEVE_TEST_SEED=" + std::to_string(seed));
    std::uint64_t state = seed;
    DecodedList list;
    std::size_t accepted = 0;
    std::size_t tried = 0;
    for (const auto& pipeline_case : all_pipeline_cases())
        for (const std::size_t elements : {1, 9, 300, 4100, 9000}) {
            const CaseData data = make_case_data(pipeline_case, Shape::kGaussian, elements, seed + elements);
            const Bytes payload =
                code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values).payload;
            for (unsigned round = 0; round < 60; ++round, ++tried) {
                const Bytes mutated = mutate(payload, state);
                expect_same(mutated, elements, list);
                if (HasFatalFailure()) FAIL() << pipeline_case.text << ", n = " << elements << ", round " << round;
                accepted += codec::validate_chunk(mutated, elements).is_ok() ? 1 : 0;
            }
        }
    EXPECT_GT(tried, 10000U);
    EXPECT_GT(accepted, tried / 50) << "mutations that never survive show little";
    EXPECT_LT(accepted, tried * 9 / 10);
}
TEST(PayloadReader, Random_bytes_behind_each_version_byte_do_no_harm) {
    const std::uint64_t seed = make_seed();
    SCOPED_TRACE("GRADSIEVE_TEST_SEED=" + std::to_string(seed));
    std::uint64_t state = seed;
    DecodedList list;
    for (unsigned round = 0; round < 5000; ++round) {
        Bytes payload(random_word(state) % 40);
        for (std::byte& byte : payload) byte = static_cast<std::byte>(random_word(state));
        if (!payload.empty()) payload[0] = static_cast<std::byte>(2 + round % 4);
        expect_same(payload, 1 + random_word(state) % 200, list);
        if (HasFatalFailure()) FAIL() << "round " << round;
    }
}
TEST(PayloadReader, Every_truncation_and_any_extension_is_refused) {
    DecodedList list;
    for (const auto& pipeline_case : all_pipeline_cases()) {
        const CaseData data = make_case_data(pipeline_case, Shape::kGaussian, 300, 4);
        Bytes payload = code(pipeline_case.pipeline, 300, pipeline_case.is_dense, data.indices, data.values).payload;
        for (std::size_t size = 0; size < payload.size(); ++size) {
            const Bytes truncated(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(size));
            EXPECT_FALSE(codec::validate_chunk(truncated, 300).is_ok()) << pipeline_case.text << " at " << size;
        }
        payload.push_back(std::byte{0});
        EXPECT_FALSE(codec::validate_chunk(payload, 300).is_ok()) << pipeline_case.text;
    }
}
TEST(PayloadReader, Non_finite_values_and_scales_are_refused_as_corrupt) {
    const auto expect_corrupt = [](Bytes payload, std::size_t at, std::uint32_t bits, std::size_t width,
                                   const char* what) {
        std::memcpy(payload.data() + at, reinterpret_cast<const char*>(&bits) + 4 - width, width);
        const Status status = codec::validate_chunk(payload, 3);
        EXPECT_EQ(status.code(), StatusCode::kCorrupt);
        EXPECT_THAT(status.text(), ::testing::HasSubstr(what));
        DecodedList list;
        EXPECT_FALSE(read_fast(payload, 3, list).has_value());
    };
    const std::vector<float> values = {1, 2, 3};
    const auto coded = [&](const char* text, bool is_dense) {
        return code(*codec::parse_pipeline(text), 3, is_dense,
                    is_dense ? std::vector<std::uint32_t>{} : std::vector{0U, 1U, 2U}, values)
            .payload;
    };
    for (const std::uint32_t bits : {0x7FC00000U, 0x7F800000U, 0xFF800000U}) {
        expect_corrupt(coded("all | f32", true), 2, bits, 4, "value not finite");
        expect_corrupt(coded("all | bf16", true), 6, bits, 2, "value not finite");
        expect_corrupt(coded("topk(1) | f32 | bitmap", false), 5, bits, 4, "value not finite");
        expect_corrupt(coded("topk(1) | bf16 | bitmap", false), 9, bits, 2, "value not finite");
        expect_corrupt(coded("all | sign", true), 3, bits, 4, "tile scale");
        expect_corrupt(coded("topk(1) | sign | bitmap", false), 6, bits, 2, "tile scale");
        expect_corrupt(coded("all | dither", true), 3, bits, 4, "tile scale");
        expect_corrupt(coded("all | sign(scale=two_mean)", true), 3, bits, 4, "tile scale");
        expect_corrupt(coded("all | sign(scale=two_mean)", true), 7, bits, 4, "tile scale");
        expect_corrupt(coded("topk(1) | dither | bitmap", false), 6, bits, 2, "tile scale");
    }
    expect_corrupt(coded("all | dither", true), 3, 0x7E000000U, 4, "so small that every level is finite");
    expect_corrupt(coded("topk(1) | dither | bitmap", false), 6, 0x7E000000U, 2, "so small that every level is finite");
    expect_corrupt(coded("all | sign", true), 3, 0xBF800000U, 4, "tile scale");
    expect_corrupt(coded("topk(1) | sign | bitmap", false), 6, 0xBF800000U, 2, "tile scale");
}

}  // namespace
}  // namespace gradsieve::test
