// Every form of the encoder against the slow reference: same state bits, same selection, same payload bytes.
#include "encoder_harness.hpp"

namespace gradsieve::codec {
namespace {

constexpr std::uint64_t kSeed = 20260;
#ifdef __SANITIZE_ADDRESS__
constexpr std::array<std::size_t, 2> kSampleCounts = {1, 3};  // instrumented, all of them take minutes
#else
constexpr std::array<std::size_t, 5> kSampleCounts = {1, 2, 3, 4, 8};
#endif

/// Runs all forms for some steps with the state carried along; the reference's state feeds every form.
void compare_forms(const NamedPipeline& named, ElementCount elements, std::size_t samples, DataKind kind, int steps) {
    EncodeWorkspace workspace;
    reference::State state = zero_state(make_input(named.pipeline, elements, samples, kind, 0));
    for (int step = 0; step < steps; ++step) {
        auto input = make_input(named.pipeline, elements, samples, kind, kSeed + static_cast<std::uint64_t>(step));
        input.step = static_cast<Step>(step) + 1;
        input.batch_samples = step % 2 == 0 ? 0 : 64;
        input.rescale = step == 2 && !has_delta(named.pipeline) ? 0.5F : 1.0F;
        const reference::Output expected = reference::encode(input, state);
        for (const CpuForm form : supported_forms()) {
            SCOPED_TRACE(named.name + ", " + std::to_string(elements) + " elements, " + std::to_string(samples) +
                         " samples, " + data_kind_name(kind) + ", step " + std::to_string(step) + ", " +
                         std::string(cpu_form_name(form)));
            const std::size_t offset = step == 1 ? 3 : 0;
            const FormOutput output = run_form(input, state, form, workspace, {offset, true});
            ASSERT_TRUE(equals_reference(output, expected));
        }
        if (expected.non_finite) return;
        state = expected.state;
    }
}

class EncoderForms : public ::testing::TestWithParam<std::size_t> {};

TEST_P(EncoderForms, Every_size_and_data_kind_equals_the_reference) {
    const NamedPipeline named = every_pipeline()[GetParam()];
    for (const ElementCount elements : {0U, 1U, 31U, 32U, 33U, 1023U}) {
        for (const DataKind kind : every_data_kind()) {
            for (const std::size_t samples : kSampleCounts) compare_forms(named, elements, samples, kind, 4);
        }
    }
}
TEST_P(EncoderForms, A_tile_and_its_neighbours_equal_the_reference) {
    const NamedPipeline named = every_pipeline()[GetParam()];
    for (const ElementCount elements : {4096U, 4101U}) {
        for (const DataKind kind :
             {DataKind::kGaussian, DataKind::kHeavyTailed, DataKind::kConstant, DataKind::kInfinite}) {
            for (const std::size_t samples : {1U, 4U}) compare_forms(named, elements, samples, kind, 3);
        }
    }
}
INSTANTIATE_TEST_SUITE_P(Pipelines, EncoderForms, ::testing::Range<std::size_t>(0, every_pipeline().size()),
                         [](const auto& pipeline) {
                             std::string name = every_pipeline()[pipeline.param].name;
                             for (char& character : name) {
                                 if (std::isalnum(static_cast<unsigned char>(character)) == 0) character = '_';
                             }
                             return name;
                         });

/// One pipeline of each route through the encoder: the slow reference takes its time with a million elements.
TEST(EncoderFormsChunks, A_tensor_of_two_chunks_equals_the_reference) {
    for (const NamedPipeline& named : every_pipeline()) {
        for (const char* route : {"all|f32", "all|f16", "all|natural", "all|integer(20)", "all|sign", "variance|bf16",
                                  "variance|pow2(tensor)", "topk(gate)|f32", "delta|topk|f32"}) {
            if (named.name == route) compare_forms(named, kChunkElements + 5, 1, DataKind::kGaussian, 2);
        }
    }
}
TEST(EncoderFormsSecondMoments, Two_ranks_and_a_weightless_third_equal_the_reference) {
    for (const NamedPipeline& named : every_pipeline()) {
        if (!has_variance(named.pipeline)) continue;
        EncodeWorkspace workspace;
        std::mt19937_64 random(kSeed);
        auto input = make_input(named.pipeline, 1000, 3, DataKind::kGaussian, kSeed);
        input.weights = {0.75F, 0.25F, 0.0F};
        input.batch_samples = 48;
        const reference::State before = zero_state(input);
        for (const std::size_t moments : {0U, 2U}) {
            input.second_moments.clear();
            for (std::size_t rank = 0; rank < moments; ++rank) {
                input.second_moments.push_back(make_gradient(DataKind::kHeavyTailed, 1000, random));
            }
            const reference::Output expected = reference::encode(input, before);
            EXPECT_EQ(expected.variance_source,
                      moments == 0 ? VarianceSource::kGroupsPooled : VarianceSource::kSecondMoment);
            for (const CpuForm form : supported_forms()) {
                EXPECT_TRUE(equals_reference(run_form(input, before, form, workspace), expected))
                    << named.name << " " << cpu_form_name(form);
            }
        }
    }
}

}  // namespace
}  // namespace gradsieve::codec
