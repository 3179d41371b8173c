#include "cli/codec_list.hpp"

#include <gtest/gtest.h>

namespace gradsieve::cli {
namespace {

TEST(CodecList, Stages_are_grouped_by_role_and_empty_facts_left_out) {
    const std::vector<StageView> stages = {
        {"all", "selector", "", "-", "", "sends every element", "-", "gather", "CPU, CUDA"},
        {"f32", "quantizer", "", "", "", "sends the value", "", "gather", "CPU; with CUDA, by the host"},
        {"topk", "selector", "ratio", "tensor", "r: 4 B", "sends the largest", "Somebody 2020", "gather", "CPU, CUDA"}};
    EXPECT_EQ(render_stages(stages, {60, 0, false, true}),
              "A codec is SELECTOR | QUANTIZER | INDEX CODER, e.g.\n"
              "topk(0.01) | pow2(bits=4) | auto; a FRONT may stand before\n"
              "it, an ENTROPY CODER behind it, a WHOLE CODEC in place of\n"
              "all three\n"
              "\nselectors\n"
              "  all\n      sends every element\n"
              "  topk(ratio)\n      sends the largest\n      scope: tensor; state: r: 4 B; source: Somebody 2020\n"
              "\nquantizers\n"
              "  f32\n      sends the value\n      backends: CPU; with CUDA, by the host\n");
}

}  // namespace
}  // namespace gradsieve::cli
