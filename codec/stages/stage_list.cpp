#include "codec/stages/stage_list.hpp"

#include "codec/stages/accumulate.hpp"
#include "codec/stages/adaptive_random.hpp"
#include "codec/stages/all.hpp"
#include "codec/stages/bernoulli.hpp"
#include "codec/stages/biased_random.hpp"
#include "codec/stages/block_topk.hpp"
#include "codec/stages/compensate.hpp"
#include "codec/stages/delta.hpp"
#include "codec/stages/entropy.hpp"
#include "codec/stages/gaussian_k.hpp"
#include "codec/stages/index_coders.hpp"
#include "codec/stages/low_rank.hpp"
#include "codec/stages/momentum.hpp"
#include "codec/stages/quantizer_coder.hpp"
#include "codec/stages/quantizer_list.hpp"
#include "codec/stages/randk.hpp"
#include "codec/stages/rotate.hpp"
#include "codec/stages/sidco.hpp"
#include "codec/stages/similarity.hpp"
#include "codec/stages/sketch.hpp"
#include "codec/stages/threshold.hpp"
#include "codec/stages/topk.hpp"
#include "codec/stages/variance.hpp"
#include "codec/stages/variance_hybrid.hpp"
#include "codec/stages/warmup.hpp"

#include <array>
#include <vector>

namespace gradsieve::codec {
namespace {

constexpr std::array kFronts = {
    &stages::Similarity::kStage, &stages::Momentum::kStage, &stages::Compensate::kStage, &stages::Accumulate::kStage,
    &stages::Warmup::kStage,     &stages::Delta::kStage,    &stages::Rotate::kStage,
};
constexpr std::array kSelectors = {
    &stages::All::kStage,       &stages::Variance::kStage,     &stages::VarianceHybrid::kStage,
    &stages::TopK::kStage,      &stages::Threshold::kStage,    &stages::BlockTopK::kStage,
    &stages::GaussianK::kStage, &stages::Sidco::kStage,        &stages::RandK::kStage,
    &stages::Bernoulli::kStage, &stages::BiasedRandom::kStage, &stages::AdaptiveRandom::kStage,
};
constexpr std::array kWholes = {&stages::LowRank::kStage, &stages::Sketch::kStage};
constexpr std::array kIndexCoders = {&stages::Auto::kStage, &stages::Rice::kStage, &stages::Bitmap::kStage,
                                     &stages::Raw32::kStage, &stages::EliasFano::kStage};

template <typename Stage>
concept HasName = requires {
    Stage::kStage;
};

template <typename... Stages>
constexpr std::size_t count_names(QuantizerList<Stages...> /*list*/) noexcept {
    return (std::size_t{HasName<Stages> ? 1U : 0U} + ...);
}
template <typename... Stages>
constexpr auto list_names(QuantizerList<Stages...> /*list*/) noexcept {
    std::array<const QuantizerStage*, count_names(QuantizerList<Stages...>{})> names{};
    std::size_t count = 0;
    const auto add = [&]<typename Stage>(Stage) {
        if constexpr (HasName<Stage>) names[count++] = &Stage::kStage;
    };
    (add(Stages{}), ...);
    return names;
}
constexpr std::array kNames = list_names(Quantizers{});

using FactsTable = std::array<QuantizerFacts, kMostQuantizers>;
constexpr FactsTable list_facts() noexcept {
    FactsTable facts{};
    for_each_form(Quantizers{},
                  [&]<typename Form>(Form) { facts[static_cast<std::size_t>(Form::kFacts.kind)] = Form::kFacts; });
    return facts;
}
constexpr FactsTable kFacts = list_facts();

template <typename Stages>
void add_rows(const Stages& stages, std::vector<StageRow>& inout_rows) {
    for (const auto* stage : stages) inout_rows.push_back(stage->row);
}

std::vector<StageRow> list_rows() {
    std::vector<StageRow> rows;
    add_rows(kFronts, rows);
    add_rows(kSelectors, rows);
    add_rows(kNames, rows);
    add_rows(kWholes, rows);
    add_rows(kIndexCoders, rows);
    rows.push_back(entropy_row());
    return rows;
}

}  // namespace

std::span<const FrontStage* const> front_stages() noexcept { return kFronts; }
std::span<const SelectorStage* const> selector_stages() noexcept { return kSelectors; }
std::span<const QuantizerStage* const> quantizer_stages() noexcept { return kNames; }
std::span<const WholeStage* const> whole_stages() noexcept { return kWholes; }
std::span<const IndexCoderStage* const> index_coder_stages() noexcept { return kIndexCoders; }
const StageRow& entropy_row() noexcept { return stages::Entropy::kRow; }

const SelectorStage& stage_of(const Selector& selector) noexcept {
    return *kSelectors[static_cast<std::size_t>(selector.kind)];
}

const QuantizerStage& stage_of(const Quantizer& quantizer) noexcept {
    for (const QuantizerStage* stage : kNames)
        if (stage->is_name_of != nullptr ? stage->is_name_of(quantizer) : stage->kind == quantizer.kind) return *stage;
    return *kNames.front();
}

const WholeStage& stage_of(const Whole& whole) noexcept {
    for (const WholeStage* stage : kWholes)
        if (stage->kind == whole.kind) return *stage;
    return *kWholes.front();
}

std::string_view name_of(IndexCoderKind index_coder) noexcept {
    return kIndexCoders[static_cast<std::size_t>(index_coder)]->row.name;
}

const QuantizerFacts& facts_of(QuantizerKind quantizer) noexcept { return kFacts[static_cast<std::size_t>(quantizer)]; }

const QuantizerCoder& coder_of(QuantizerKind quantizer) noexcept {
    static const std::array<const QuantizerCoder*, kMostQuantizers> coders = [] {
        std::array<const QuantizerCoder*, kMostQuantizers> list{};
        for_each_form(Quantizers{},
                      [&]<typename Form>(Form) { list[static_cast<std::size_t>(Form::kFacts.kind)] = &Form::kCoder; });
        return list;
    }();
    return *coders[static_cast<std::size_t>(quantizer)];
}

std::span<const StageRow> stage_table() noexcept {
    static const std::vector<StageRow> rows = list_rows();
    return rows;
}

}  // namespace gradsieve::codec
