#include "codec/narrow_scope.hpp"

#include "codec/scope_member.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

namespace gradsieve::codec {
namespace {

constexpr std::uint32_t kSeed = 4;

/// A member's magnitudes: those of each of its parts.
using Parts = std::vector<std::vector<std::uint32_t>>;

/// What a device says of its part on a level.
void count(const std::vector<std::uint32_t>& magnitudes, const ScopeTerms& terms, ScopePart& ret_part) {
    const auto level = narrow_level(terms.level);
    ret_part.counts.fill(0);
    for (const auto magnitude : magnitudes) {
        const auto place = magnitude >> level.shift;
        if (magnitude == 0 || (terms.level > 0 && place >> level.width != terms.prefix)) continue;
        ++ret_part.counts[place & ((1U << level.width) - 1U)];
    }
}

class NarrowScope : public ::testing::Test {
protected:
    /// Runs the levels over the members and returns how many there were.
    unsigned narrow(std::size_t k) {
        std::vector<ScopeMember*> pointers;
        members_.clear();
        members_.resize(magnitudes.size());
        for (auto& member : members_) pointers.push_back(&member);
        unsigned levels = 0;
        NextPhase next{ScopePhase::kObserve, {.k = k}};
        do {
            for (std::size_t number = 0; number < members_.size(); ++number) {
                auto& parts = members_[number].impl().parts;
                parts.resize(magnitudes[number].size());
                for (std::size_t part = 0; part < parts.size(); ++part)
                    count(magnitudes[number][part], next.terms, parts[part]);
            }
            next = narrow_scope(next.terms, pointers);
            ++levels;
        } while (next.phase == ScopePhase::kCount);
        EXPECT_EQ(next.phase, ScopePhase::kSettle);
        return levels;
    }
    /// By a sort: the k largest that are not zero, equal ones by member, part and element.
    void expect_sorted(std::size_t k) {
        narrow(k);
        std::vector<std::uint32_t> all;
        for (const auto& parts : magnitudes)
            for (const auto& part : parts)
                std::ranges::copy_if(part, std::back_inserter(all), [](auto magnitude) { return magnitude > 0; });
        std::ranges::sort(all, std::greater<>());
        const std::uint32_t cut = all.size() < k ? 0 : all[k - 1];
        std::size_t left =
            cut == 0 ? 0
                     : k - static_cast<std::size_t>(std::ranges::lower_bound(all, cut, std::greater<>()) - all.begin());
        for (std::size_t number = 0; number < magnitudes.size(); ++number) {
            const auto& member = members_[number].impl();
            std::size_t ties = 0;
            for (std::size_t part = 0; part < magnitudes[number].size(); ++part) {
                const auto equal = static_cast<std::size_t>(std::ranges::count(magnitudes[number][part], cut));
                EXPECT_EQ(member.parts[part].ties, cut == 0 ? 0U : equal);
                ties += equal;
            }
            const std::size_t kept = std::min(left, ties);
            EXPECT_EQ(member.cutoff.magnitude, cut);
            EXPECT_EQ(member.cutoff.ties_kept, kept);
            left -= kept;
        }
        EXPECT_EQ(left, 0U);
    }

    std::vector<Parts> magnitudes;

private:
    std::vector<ScopeMember> members_;
};

TEST_F(NarrowScope, Levels_cover_all_bits_of_a_magnitude_once) {
    unsigned bits = 31;
    for (unsigned level = 0; level < kNarrowLevels; ++level) {
        EXPECT_EQ(narrow_level(level).shift + narrow_level(level).width, bits);
        bits = narrow_level(level).shift;
        EXPECT_LE(std::size_t{1} << narrow_level(level).width, kNarrowBins);
    }
    EXPECT_EQ(bits, 0U);
}
TEST_F(NarrowScope, Kth_magnitude_and_ties_are_those_of_a_sort) {
    std::mt19937 random(kSeed);
    for (int trial = 0; trial < 300; ++trial) {
        magnitudes.assign(1 + random() % 4, {});
        std::size_t all = 0;
        // Few different ones, which differ on one level or on all.
        const unsigned shift = std::array{0U, 10U, 20U}[random() % 3];
        for (auto& parts : magnitudes) {
            parts.resize(1 + random() % 3);
            for (auto& part : parts) {
                part.resize(random() % 40);
                all += part.size();
                for (auto& magnitude : part)
                    magnitude = trial % 4 == 0 ? random() & 0x7FFFFFFFU : (random() % 6) << shift;
            }
        }
        expect_sorted(1 + random() % (all + 2));
        ASSERT_FALSE(HasFailure()) << "trial " << trial << " seed " << kSeed;
    }
}
TEST_F(NarrowScope, Fewer_than_k_end_after_the_first_level_and_are_all_kept) {
    magnitudes = {{{0, 7, 0}}, {{0}, {0x7F000000}}};
    EXPECT_EQ(narrow(3), 1U);
    expect_sorted(3);
    magnitudes = {{{0, 0}}, {{}}};
    EXPECT_EQ(narrow(1), 1U);
    expect_sorted(1);
}
TEST_F(NarrowScope, Counts_of_more_elements_than_32_bits_number_are_added_up) {
    std::vector<ScopeMember> members(3);
    std::vector<ScopeMember*> pointers;
    for (auto& member : members) {
        member.impl().parts.resize(1);
        member.impl().parts[0].counts[5] = ~std::uint32_t{0};
        pointers.push_back(&member);
    }
    const ScopeTerms terms{.k = 1, .level = 2, .prefix = 9, .wanted = 2 * std::uint64_t{0xFFFFFFFF} + 1};
    EXPECT_EQ(narrow_scope(terms, pointers).phase, ScopePhase::kSettle);
    EXPECT_EQ(members[0].impl().cutoff.magnitude, (9U << 10U) | 5U);
    EXPECT_EQ(members[1].impl().cutoff.ties_kept, 0xFFFFFFFFU);
    EXPECT_EQ(members[2].impl().cutoff.ties_kept, 1U);
}

}  // namespace
}  // namespace gradsieve::codec
