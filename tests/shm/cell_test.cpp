#include "shm/cell.hpp"

#include "tests/shm/golden_bytes.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <string_view>

namespace gradsieve::shm {
namespace {

const Submission kSubmission{.kind = SubmissionKind::kAverage,
                             .tensor_index = 1,
                             .step = 0x0102030405060708,
                             .sample_count = 2,
                             .batch_samples = 48,
                             .scale = 1.5,
                             .root = 3,
                             .digest = 0x1112131415161718};

/// Two tensors with room for two samples each.
std::vector<SlabPlace> slabs() { return std::vector<SlabPlace>(2, SlabPlace{.samples_max = 2}); }

Completion sample_completion() {
    Completion completion{.kind = CompletionKind::kStepDone,
                          .code = StatusCode::kPeerFailed,
                          .index = 1,
                          .step = 0x0102030405060708,
                          .value = 0x2122232425262728};
    completion.set_text("why");
    return completion;
}

TEST(Cell, Submission_has_its_golden_bytes) {
    EXPECT_EQ(hex_of(build_submission_cell(kSubmission)),
              "01000000"
              "01000000"
              "0807060504030201"
              "02000000"
              "03000000"
              "3000000000000000"
              "000000000000f83f"
              "1817161514131211"
              "00000000000000000000000000000000");
}

TEST(Cell, Completion_has_its_golden_bytes) {
    const auto cell = build_completion_cell(sample_completion());
    EXPECT_EQ(hex_of(ByteView(cell).first(32)),
              "0300"
              "1100"
              "01000000"
              "0807060504030201"
              "2827262524232221"
              "7768790000000000");
    for (const auto byte : ByteView(cell).subspan(32)) ASSERT_EQ(byte, std::byte{0});
}

TEST(Cell, Submission_survives_the_way_there_and_back) {
    const auto seen = parse_submission_cell(build_submission_cell(kSubmission), slabs()).value();
    EXPECT_EQ(seen.kind, kSubmission.kind);
    EXPECT_EQ(seen.tensor_index, kSubmission.tensor_index);
    EXPECT_EQ(seen.step, kSubmission.step);
    EXPECT_EQ(seen.sample_count, kSubmission.sample_count);
    EXPECT_EQ(seen.batch_samples, kSubmission.batch_samples);
    EXPECT_EQ(seen.scale, kSubmission.scale);
    EXPECT_EQ(seen.root, kSubmission.root);
    EXPECT_EQ(seen.digest, kSubmission.digest);
}

struct Refusal {
    const char* field;
    std::function<void(Submission&)> spoil;
};

TEST(Cell, Submission_field_out_of_range_is_corrupt_and_named) {
    const std::vector<Refusal> refusals{
        {"submission kind 0", [](Submission& s) { s.kind = SubmissionKind{0}; }},
        {"submission kind 5", [](Submission& s) { s.kind = SubmissionKind{5}; }},
        {"tensor index 2", [](Submission& s) { s.tensor_index = 2; }},
        {"tensor index 4294967295", [](Submission& s) { s.tensor_index = UINT32_MAX; }},
        {"tensor index 2", [](Submission& s) { s.kind = SubmissionKind::kBroadcast, s.tensor_index = 2; }},
        {"step 0", [](Submission& s) { s.step = 0; }},
        {"sample count 0", [](Submission& s) { s.sample_count = 0; }},
        {"sample count 3", [](Submission& s) { s.sample_count = 3; }},
        {"scale", [](Submission& s) { s.scale = 0; }},
        {"scale", [](Submission& s) { s.scale = -1; }},
        {"scale", [](Submission& s) { s.scale = std::numeric_limits<double>::quiet_NaN(); }},
        {"scale", [](Submission& s) { s.scale = std::numeric_limits<double>::infinity(); }},
    };
    for (const auto& refusal : refusals) {
        auto submission = kSubmission;
        refusal.spoil(submission);
        const auto status = parse_submission_cell(build_submission_cell(submission), slabs()).status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << refusal.field;
        EXPECT_TRUE(status.text().starts_with(refusal.field)) << status.text();
        EXPECT_NE(status.text().find("allowed is"), std::string::npos) << status.text();
    }
}

TEST(Cell, Fields_that_a_kind_does_not_use_may_hold_anything) {
    for (const auto kind : {SubmissionKind::kCheckEqual, SubmissionKind::kDetach}) {
        auto submission = kSubmission;
        submission.kind = kind;
        submission.tensor_index = UINT32_MAX;
        submission.sample_count = 0;
        submission.scale = -1;
        EXPECT_TRUE(parse_submission_cell(build_submission_cell(submission), slabs()).is_ok());
    }
}

TEST(Cell, Completion_survives_the_way_there_and_back) {
    const auto sent = sample_completion();
    const auto seen = parse_completion_cell(build_completion_cell(sent), 2).value();
    EXPECT_EQ(seen.kind, sent.kind);
    EXPECT_EQ(seen.code, sent.code);
    EXPECT_EQ(seen.index, sent.index);
    EXPECT_EQ(seen.step, sent.step);
    EXPECT_EQ(seen.value, sent.value);
    EXPECT_EQ(seen.text, sent.text);
}

TEST(Cell, Completion_field_out_of_range_is_corrupt) {
    const std::vector<std::function<void(Completion&)>> spoils{
        [](Completion& c) { c.kind = CompletionKind{0}; },
        [](Completion& c) { c.kind = CompletionKind{7}; },
        [](Completion& c) { c.code = StatusCode{19}; },
        [](Completion& c) { c.index = 2; },
    };
    for (const auto& spoil : spoils) {
        auto completion = sample_completion();
        spoil(completion);
        EXPECT_EQ(parse_completion_cell(build_completion_cell(completion), 2).status().code(), StatusCode::kCorrupt);
    }
}

TEST(Cell, Completion_text_always_ends_even_if_the_writer_did_not_end_it) {
    auto completion = sample_completion();
    completion.text.fill('x');
    const auto seen = parse_completion_cell(build_completion_cell(completion), 2).value();
    EXPECT_EQ(std::string_view(seen.text.data()).size(), Completion::kTextBytes - 1);
}

TEST(Cell, Random_bytes_never_give_a_submission_out_of_range) {
    const auto seed = static_cast<unsigned>(::getpid());
    std::srand(seed);
    for (int round = 0; round < 20'000; ++round) {
        SubmissionCell cell;
        for (auto& byte : cell) byte = std::byte(std::rand());
        if (round % 2 == 0) cell[1] = cell[2] = cell[3] = std::byte{0};
        if (round % 2 == 0) cell[0] &= std::byte{7};
        const auto seen = parse_submission_cell(cell, slabs());
        if (!seen.is_ok() || seen->kind != SubmissionKind::kAverage) continue;
        ASSERT_LT(seen->tensor_index, 2U) << "seed " << seed;
        ASSERT_LE(seen->sample_count, 2U) << "seed " << seed;
        ASSERT_TRUE(std::isfinite(seen->scale) && seen->scale > 0) << "seed " << seed;
    }
}

}  // namespace
}  // namespace gradsieve::shm
