#include "transport/curve_key.hpp"

#include <gtest/gtest.h>

namespace gradsieve::transport {
namespace {

// The pair of a client in ZeroMQ's RFC 26, known to everybody.
constexpr std::string_view kKnownPublic = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
constexpr std::string_view kKnownSecret = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";

TEST(CurveKey, Pairs_have_the_shape_of_keys_and_differ) {
    const auto first = make_key_pair();
    const auto second = make_key_pair();
    ASSERT_TRUE(first.is_ok() && second.is_ok()) << first.status().to_string();
    for (const auto& text : {std::string_view(first->public_key), first->secret_key.text()})
        EXPECT_TRUE(is_key_text(text));
    EXPECT_NE(first->public_key, first->secret_key.text());
    EXPECT_NE(first->public_key, second->public_key);
    EXPECT_NE(first->secret_key.text(), second->secret_key.text());
}
TEST(CurveKey, The_public_half_follows_from_the_secret) {
    EXPECT_EQ(public_key_of(SecretKey(kKnownSecret)).value(), kKnownPublic);
    const auto pair = make_key_pair().value();
    EXPECT_EQ(public_key_of(pair.secret_key).value(), pair.public_key);
}
TEST(CurveKey, What_is_no_key_is_told_apart) {
    EXPECT_TRUE(is_key_text(kKnownPublic));
    EXPECT_FALSE(is_key_text(""));
    EXPECT_FALSE(is_key_text(kKnownPublic.substr(1)));
    EXPECT_FALSE(is_key_text(std::string(kKnownPublic) + "0"));
    for (const char wrong : {' ', '"', '\\', ',', ';', '_', '~', '\0', '\x80'}) {
        std::string text(kKnownPublic);
        text[20] = wrong;
        EXPECT_FALSE(is_key_text(text)) << static_cast<int>(wrong);
    }
    // Five digits hold at most 2^32 - 1, "%nSc0".
    const std::string zeros(35, '0');
    EXPECT_TRUE(is_key_text(zeros + "%nSc0"));
    EXPECT_FALSE(is_key_text(zeros + "%nSc1"));
    EXPECT_FALSE(is_key_text("#####" + zeros));
}
TEST(CurveKey, Bytes_become_text_only_if_they_are_a_key) {
    EXPECT_EQ(key_text_of(Bytes(32)), std::string(40, '0'));
    EXPECT_EQ(key_text_of(Bytes(32, std::byte{0xFF})), "%nSc0%nSc0%nSc0%nSc0%nSc0%nSc0%nSc0%nSc0");
    EXPECT_EQ(key_text_of(Bytes(31)), "");
    EXPECT_EQ(key_text_of(Bytes(36)), "");
    EXPECT_EQ(key_text_of({}), "");
}
TEST(CurveKey, A_copy_of_a_secret_outlives_the_original) {
    auto first = std::make_unique<SecretKey>(kKnownSecret);
    const SecretKey copy = *first;
    first.reset();
    EXPECT_EQ(copy.text(), kKnownSecret);
}

}  // namespace
}  // namespace gradsieve::transport
