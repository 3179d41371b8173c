// The pipelines and cases that the encoder's equality sections share.
#pragma once

#include "encode_cases.hpp"

namespace gradsieve::gpu_check {

[[nodiscard]] codec::Pipeline parsed(const std::string& text);
/// Besides every_pipeline(): each index coder, narrow and wide codes, thresholds that keep much or little.
[[nodiscard]] std::vector<codec::NamedPipeline> all_pipelines();
/// Fresh state; `elements` in `samples` arrays.
[[nodiscard]] EncodeCase make_case(const codec::NamedPipeline& named, ElementCount elements, std::size_t samples,
                                   codec::DataKind kind);

}  // namespace gradsieve::gpu_check
