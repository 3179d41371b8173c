#include "shm/message_check.hpp"

#include "shm/layout.hpp"
#include "shm/message.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace gradsieve::shm {
namespace {

AttachRequest good_request() {
    AttachRequest request;
    request.job_name = "demo";
    request.tensors = {{.name = "a", .group = "", .shape = {4}}, {.name = "b", .group = "", .shape = {4}}};
    return request;
}

TEST(MessageCheck, Boundaries_are_allowed) {
    auto request = good_request();
    request.job_name.assign(kNameLimitBytes, 'j');
    request.run_id.clear();
    request.codec.assign(kCodecLimitBytes, 'c');
    request.world_size = kWorldSizeLimit;
    request.rank = kWorldSizeLimit - 1;
    request.tensors[0].samples_max = kSamplesLimit;
    request.tensors[0].shape.assign(kDimensionLimit, 1);
    request.tensors[1].shape = {0, UINT64_MAX, UINT64_MAX};
    EXPECT_TRUE(check_attach_request(request).is_ok()) << check_attach_request(request).to_string();
    EXPECT_TRUE(parse_attach_request(build_attach_request(request)).is_ok());
}

struct Refusal {
    const char* text;
    std::function<void(AttachRequest&)> spoil;
};

TEST(MessageCheck, Value_one_beyond_is_refused_naming_it_and_what_is_allowed) {
    const std::vector<Refusal> refusals{
        {"job name of 0 bytes; allowed is 1 to 512 bytes", [](auto& r) { r.job_name.clear(); }},
        {"job name of 513 bytes", [](auto& r) { r.job_name.assign(513, 'x'); }},
        {"run id with unprintable bytes", [](auto& r) { r.run_id = "a\nb"; }},
        {"codec of 4097 bytes", [](auto& r) { r.codec.assign(4097, 'x'); }},
        {"world size 0; allowed is 1 to 65535", [](auto& r) { r.world_size = 0; }},
        {"world size 65536", [](auto& r) { r.world_size = 65'536; }},
        {"rank 1; allowed is below world size 1", [](auto& r) { r.rank = 1; }},
        {"non-finite policy 3", [](auto& r) { r.non_finite = NonFinitePolicy{3}; }},
        {"a job of 0 tensors", [](auto& r) { r.tensors.clear(); }},
        {"tensor name of 0 bytes", [](auto& r) { r.tensors[1].name.clear(); }},
        {"tensor name 'a' twice", [](auto& r) { r.tensors[1].name = "a"; }},
        {"tensor 'a': group with unprintable", [](auto& r) { r.tensors[0].group = "\x7F"; }},
        {"tensor 'a': samples_max 0; allowed is 1 to 256", [](auto& r) { r.tensors[0].samples_max = 0; }},
        {"tensor 'a': samples_max 257", [](auto& r) { r.tensors[0].samples_max = 257; }},
        {"tensor 'a': shape of 33 dimensions", [](auto& r) { r.tensors[0].shape.assign(33, 1); }},
        {"tensor 'b': on a device with 0 elements; allowed is 1 element or more there",
         [](auto& r) {
             r.tensors[1].shape = {4, 0};
             r.tensors[1].on_device = true;
         }},
        {"tensor 'b': staged with 0 elements; allowed is 1 element or more then",
         [](auto& r) {
             r.tensors[1].shape = {4, 0};
             r.tensors[1].staged = true;
         }},
        {"tensor 'b': staged and on a device; allowed is one of the two",
         [](auto& r) { r.tensors[1].staged = r.tensors[1].on_device = true; }},
        {"tensor 'b': shared memory would exceed",
         [](auto& r) {
             r.tensors[1].shape = {1ULL << 33U, 1ULL << 33U};
         }},
        {"tensor 'b': shared memory would exceed", [](auto& r) { r.tensors[1].shape = {kSegmentLimitBytes / 4 + 1}; }},
    };
    for (const auto& refusal : refusals) {
        auto request = good_request();
        refusal.spoil(request);
        const auto status = check_attach_request(request);
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << refusal.text;
        EXPECT_NE(status.text().find(refusal.text), std::string::npos) << status.text();
        const auto parsed = parse_attach_request(build_attach_request(request)).status();
        EXPECT_TRUE(parsed.code() == StatusCode::kInvalidArgument || parsed.code() == StatusCode::kCorrupt)
            << refusal.text << ": " << parsed.to_string();
    }
}

TEST(MessageCheck, Elements_are_the_product_or_all_ones_on_overflow) {
    EXPECT_EQ((TensorEntry{.name = "t", .shape = {3, 5, 7}}.elements()), 105U);
    EXPECT_EQ((TensorEntry{.name = "t", .shape = {}}.elements()), 1U);
    EXPECT_EQ((TensorEntry{.name = "t", .shape = {UINT64_MAX, 0}}.elements()), 0U);
    EXPECT_EQ((TensorEntry{.name = "t", .shape = {1ULL << 32U, 1ULL << 32U}}.elements()), UINT64_MAX);
}

TEST(MessageCheck, Printable_utf8_is_told_from_everything_else) {
    for (const auto* good :
         {"", "layer.1/weight", "Gewicht \xC3\xA4", "\xE5\xB1\xA4", "\xF0\x9F\x98\x80", "\xC2\xA0"}) {
        EXPECT_TRUE(is_printable_utf8(good)) << good;
    }
    for (const auto* bad : {"\n", "a\x1B[31m", "\x7F", "\xC2\x80" /* C1 */, "\x80" /* stray */, "\xC3" /* cut */,
                            "\xC0\xAF" /* overlong */, "\xE0\x80\xAF", "\xF0\x80\x80\xAF",
                            "\xED\xA0\x80" /* surrogate */, "\xF4\x90\x80\x80" /* beyond */, "\xFF"}) {
        EXPECT_FALSE(is_printable_utf8(bad)) << bad;
    }
    EXPECT_FALSE(is_printable_utf8(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace gradsieve::shm
