// What the list of stages knows of each one: the row that users read, how its text is read and written, what may stand
// beside it. One constant of these types lies in each stage's file pair, beside what else the stage is; the list
// (stage_list.hpp, quantizer_list.hpp) names them all, and whoever reads codecs' texts asks the list. Must know no
// stage by name. Any thread; constants.
#pragma once

#include "codec/pipeline.hpp"
#include "codec/pipeline_text.hpp"

namespace gradsieve::codec {

/// A stage in front of the selector. Such stages stand in the order of their list.
struct FrontStage {
    StageRow row;
    /// What the stage says; what others said stays. It asks for all of its arguments and finishes them. Errors:
    /// kInvalidArgument.
    Status (*read)(ArgumentReader& arguments, Pipeline& inout_pipeline);
    /// The stage with every parameter written out; empty where the pipeline has none, or one that changes nothing.
    std::string (*text)(const Pipeline& pipeline, Knobs knobs);
    /// Refuses what would not mean what it says, of any whole pipeline. Errors: kInvalidArgument.
    Status (*check)(const Pipeline& pipeline);
};

/// Probabilities of the first tile's elements and of the last one's.
struct Probabilities {
    double first = 1;
    double last = 1;
};

struct SelectorStage {
    StageRow row;
    SelectorKind kind;
    Selection selection;
    /// As FrontStage::read; null: there are no parameters.
    Status (*read)(ArgumentReader& arguments, Selector& ret_selector) = nullptr;
    /// What stands in the parentheses, every parameter written out; null: none.
    std::string (*arguments)(const Selector& selector, Knobs knobs) = nullptr;
    /// Refuses what may not stand behind it. Null: nothing. Errors: kInvalidArgument.
    Status (*check)(const Pipeline& pipeline) = nullptr;
    /// The quantizer of a text that has none; null: f32.
    Quantizer (*default_quantizer)(const Selector& selector) = nullptr;
    /// The share of elements that is sent, as far as that is known before there are gradients; null: its ratio.
    double (*expected_share)(const Selector& selector) = nullptr;
    /// kKeyed: of the elements; null: it sends a fixed number of them.
    Probabilities (*probabilities)(const Selector& selector) = nullptr;
    bool has_ratio = false;       ///< Selector::ratio is the share of elements that it keeps
    bool has_tau = false;         ///< what is sent has magnitudes above Selector::tau
    bool tests_variance = false;  ///< kTested: r^2 > alpha v
    bool takes_normal = false;    ///< kEstimated: of a normal distribution; else of exponential ones, `stages` of them
};

/// A name of a quantizer. Several may have one form on the wire (QuantizerKind), and one may have several.
struct QuantizerStage {
    StageRow row;
    QuantizerKind kind;  ///< which `read` may change
    /// As FrontStage::read; null: there are no parameters. The selector was read before.
    Status (*read)(ArgumentReader& arguments, const Selector& selector, Quantizer& ret_quantizer) = nullptr;
    /// As SelectorStage::arguments.
    std::string (*arguments)(const Pipeline& pipeline, Knobs knobs) = nullptr;
    /// As SelectorStage::check.
    Status (*check)(const Pipeline& pipeline) = nullptr;
    /// Whether it is this one that the quantizer's text names; null: where its kind is this one's.
    bool (*is_name_of)(const Quantizer& quantizer) = nullptr;
};

/// A codec that stands in place of selector, quantizer and index coder.
struct WholeStage {
    StageRow row;
    WholeKind kind;
    Status (*read)(ArgumentReader& arguments, Whole& ret_whole);
    std::string (*arguments)(const Whole& whole);
};

struct IndexCoderStage {
    StageRow row;
    IndexCoderKind kind;
};

}  // namespace gradsieve::codec
