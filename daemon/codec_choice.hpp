// Which codec each tensor of a job gets: what the client or the configuration names, the built-in default otherwise,
// with its rules for tensors of some names or sizes, and small tensors apart. The same inputs give the same choice on
// every node. Plain functions; any thread.
#pragma once

#include "base/status.hpp"
#include "codec/codec_rules.hpp"
#include "daemon/config.hpp"
#include "daemon/config_budget.hpp"
#include "shm/message.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gradsieve::daemon {

/// For jobs between nodes when neither client nor configuration names a codec. Chosen by measurement
/// (docs/decisions/0005-default-codec.md).
inline constexpr std::string_view kDefaultCodec = "topk(0.01) | pow2(bits=4) | auto";
/// On a single node nothing is sent, so nothing is compressed unless somebody asks for it by name.
inline constexpr std::string_view kPlainCodec = "all | f32";

struct CodecChoice {
    std::string text;                        ///< canonical, rules and all
    std::string origin;                      ///< "client", "configuration", "default", "default: single node"
    codec::Pipeline main;                    ///< of tensors that are neither small nor ruled
    std::vector<codec::Pipeline> pipelines;  ///< per tensor, in the order given; lowrank is settled for its shape
    /// Likewise: what owners send averages on by; nothing where all nodes get all payloads.
    std::vector<std::optional<codec::Pipeline>> downs = {};
    Budget budget = {};  ///< that the text itself names; it goes before the configuration's
};

/// `tensors` sorted by name. Rules go before the codec of small tensors. Errors: kInvalidArgument from parse_codec
/// and split_budget, and for a budget in the text that nothing could meet, saying whose text it was.
[[nodiscard]] Result<CodecChoice> choose_codecs(const Config& config, const std::string& client_codec,
                                                std::span<const shm::TensorEntry> tensors);

/// Rough bits per element that a pipeline sends of a tensor; only to weigh small tensors against the rest.
[[nodiscard]] double estimated_bits_per_element(const codec::Pipeline& pipeline, ElementCount elements) noexcept;

}  // namespace gradsieve::daemon
