// Decoders of chunk payloads: four bytes tell the chunk's elements, the rest is the payload.
#include "codec/decoder.hpp"
#include "codec/phases.hpp"
#include "codec/pipeline_trial.hpp"
#include "codec/reuse.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace gradsieve::fuzz {
namespace {

constexpr std::uint32_t kMostElements = 3 * 4096 + 17;

Bytes with_elements(std::uint32_t elements, ByteView payload) {
    Bytes seed;
    seed.reserve(sizeof(elements) + payload.size());
    ByteWriter writer(seed);
    writer.write(elements - 1);
    writer.write_bytes(payload);
    return seed;
}

/// The payload as the left factor of a matrix of four columns, and then as the right one of a matrix of four rows.
void run_phases(std::uint32_t elements, ByteView payload, bool is_valid) {
    const auto other = codec::build_exact_chunk(std::vector<float>{1.0F, -2.0F, 0.0F, 0.5F});
    const codec::ChunkView fuzzed[] = {{0, payload}};
    const codec::ChunkView fixed[] = {{0, other}};
    for (const bool is_left : {true, false}) {
        codec::Pipeline pipeline;
        pipeline.whole = {codec::WholeKind::kLowRank, 1, is_left ? 4 : std::int64_t{elements}};
        const ElementCount whole = ElementCount{4} * elements;
        codec::PhaseMemory memory(pipeline, whole);
        std::vector<float> values(whole);
        codec::ResultTensor result(7, values.data(), whole);
        const codec::Contribution first[] = {{1.0F, is_left ? fuzzed : fixed}};
        const codec::Contribution second[] = {{1.0F, is_left ? fixed : fuzzed}};
        const auto status = codec::decode_first_phase({.step = 1}, first, memory);
        require(status.is_ok() == (is_valid || !is_left), "a first phase takes what is valid, and nothing else");
        if (!status.is_ok()) continue;
        const auto decoded = codec::decode_last_phase(1, second, memory, result);
        require(is_valid || !decoded.is_ok(), "a second phase takes nothing that is not");
        for (const float value : values) require(std::isfinite(value), "a product of factors is finite");
    }
}

/// The payload as the cells of a sketch, and then as the values that follow one.
void run_sketch(std::uint32_t elements, ByteView payload, bool is_valid) {
    const codec::ChunkView fuzzed[] = {{0, payload}};
    const codec::Contribution contributions[] = {{1.0F, fuzzed}};
    for (const bool is_first : {true, false}) {
        codec::Pipeline pipeline;
        pipeline.whole.kind = codec::WholeKind::kSketch;
        pipeline.whole.rows = 1;
        pipeline.whole.columns = is_first ? std::int64_t{std::max(elements, 64U)} : 64;
        pipeline.whole.ratio = 0.25;
        const ElementCount whole = is_first ? std::max(elements, 300U) : ElementCount{4} * elements;
        codec::PhaseMemory memory(pipeline, whole);
        std::vector<float> values(whole);
        codec::ResultTensor result(7, values.data(), whole);
        const auto status = is_first ? codec::decode_first_phase({.step = 1}, contributions, memory)
                                     : codec::decode_first_phase({.step = 1}, {}, memory);
        require(!is_first || elements < 64 || status.is_ok() == is_valid, "cells that are valid are taken, no others");
        if (!status.is_ok()) continue;
        const auto decoded = is_first ? codec::decode_last_phase(1, {}, memory, result)
                                      : codec::decode_last_phase(1, contributions, memory, result);
        require(decoded.is_ok() == (is_first || is_valid), "values that are valid are taken, and no others");
        for (const float value : values) require(std::isfinite(value), "what comes back is finite");
    }
}

/// As what a node sends of a tensor whose payload of step 1 is held.
void run_reuse(std::uint32_t elements, ByteView payload) {
    static const auto kPipeline = *codec::parse_pipeline("similarity(skip=0.5) | all | pow2(8) | raw32");
    codec::HeldPayloads held(kPipeline, elements, 1);
    const auto sent = codec::build_exact_chunk(std::vector<float>(elements, 1.0F));
    const codec::ChunkView first[] = {{0, sent}};
    const codec::Contribution sends[] = {{1.0F, first}};
    require(held.take(1, sends).is_ok(), "a payload is taken");
    held.commit(1);
    const codec::ChunkView second[] = {{0, payload}};
    const codec::Contribution fuzzed[] = {{1.0F, second}};
    const auto step = codec::parse_reuse(payload);
    const auto taken = held.take(2, fuzzed);
    if (!codec::is_reuse(payload)) return require(taken.is_ok(), "what is no record is left to the decoder");
    require(taken.is_ok() == (step.is_ok() && *step == 1), "a record stands for what is held, and for nothing else");
    if (taken.is_ok()) require(std::ranges::equal((*taken)[0].chunks[0].bytes, sent), "and is what was sent");
}

}  // namespace

std::vector<Bytes> seeds() {
    // Every quantizer densely and in a list, every index coder, and both scopes.
    const char* const codecs[] = {"all | f32",
                                  "all | bf16",
                                  "all | f16",
                                  "rotate | all | bf16",
                                  "rotate | all | sign",
                                  "rotate | all | sign(scale=drive)",
                                  "rotate | all | minmax(3, 64)",
                                  "rotate | all | dither | entropy",
                                  "all | natural",
                                  "all | integer(30)",
                                  "all | integer(30) | entropy",
                                  "all | integer(1e5)",
                                  "topk(0.05) | integer(10) | rice",
                                  "all | natural | entropy",
                                  "all | ternary | entropy",
                                  "topk(0.5) | pow2(bits=5) | rice | entropy",
                                  "randk(0.6) | dither | entropy",
                                  "topk(0.05) | natural | rice",
                                  "topk(0.05) | f16 | rice",
                                  "all | sign",
                                  "all | sign(scale=two_mean)",
                                  "topk(0.05) | sign(scale=two_mean) | rice",
                                  "all | sign(scale=none)",
                                  "all | dither",
                                  "all | exponential_dither(15, 1.5)",
                                  "topk(0.05) | exponential_dither | rice",
                                  "all | rounding(3)",
                                  "all | minmax(3, 64)",
                                  "all | minmax(8)",
                                  "all | ternary",
                                  "topk(0.05) | ternary | bitmap",
                                  "all | pow2",
                                  "topk(0.05) | f32 | rice",
                                  "topk(0.05) | bf16 | bitmap",
                                  "topk(0.05) | pow2(bits=4) | auto",
                                  "topk(0.05) | pow2(bits=3, scope=tensor) | rice",
                                  "topk(0.05) | pow2(bits=4) | raw32",
                                  "topk(0.05) | sign | rice",
                                  "topk(0.05) | pow2 | elias_fano",
                                  "topk(0.5) | f32 | elias_fano",
                                  "topk(0.05) | dither(levels=31) | rice",
                                  "randk(0.05)",
                                  "randk(0.6) | sign",
                                  "bernoulli(0.1, none) | dither(feedback=none)",
                                  "biased_random(0.9, 0.01) | f16",
                                  "variance | pow2(bits=8) | bitmap",
                                  "lowrank(2)",
                                  "sketch(0.05)"};
    std::string all;
    std::vector<Bytes> made;
    for (const char* text : codecs) {
        all += std::string(text) + " ";
        for (const std::uint32_t elements : {1U, 33U, 4101U, kMostElements}) {
            auto trial = codec::PipelineTrial::of_noise(*codec::parse_pipeline(text), elements, elements);
            for (int step = 0; step < 3; ++step) require(trial.is_ok() && trial->step().is_ok(), "noise is encoded");
            const auto pipeline = *codec::parse_pipeline(text);
            const auto count = codec::has_phases(pipeline) ? codec::phase_elements(pipeline, elements, 1) : elements;
            for (const auto& chunk : trial->payloads())
                made.push_back(with_elements(static_cast<std::uint32_t>(count), chunk.bytes));
        }
    }
    for (const auto& row : codec::stage_table())
        if (row.role != "selector" && row.role != "front")
            require(all.find(row.name) != std::string::npos, "every stage on the wire has a seed");
    for (const Step step : {Step{0}, Step{1}, ~Step{0}}) {
        Bytes record(codec::kReuseBytes);
        codec::build_reuse(step, record.data());
        made.push_back(with_elements(33, record));
    }
    made.push_back(with_elements(3, codec::build_exact_chunk(std::vector<float>{1.0F, -0.0F, NAN})));
    return made;
}

void run_one(ByteView input) {
    ByteReader reader(input);
    const auto elements = reader.read<std::uint32_t>() % kMostElements + 1;
    const auto payload = reader.read_bytes(reader.remaining_bytes());
    std::vector<float> values(elements, 0.0F);
    codec::ResultTensor result(7, values.data(), elements);
    const codec::ChunkView chunks[] = {{0, payload}};
    const codec::Contribution contributions[] = {{0.5F, chunks}, {0.5F, chunks}};
    const bool is_valid = codec::validate_chunk(payload, elements).is_ok();
    const auto decoded = result.decode_average(1, contributions);
    require(decoded.is_ok() == is_valid, "what validate_chunk takes is decoded, and nothing else");
    if (is_valid) {
        for (const float value : values) require(std::isfinite(value), "an average of a valid payload is finite");
        const auto again = result.decode_average(1, contributions);
        require(again.is_ok() && again->digest == decoded->digest, "decoding twice gives the same digest");
    }
    static_cast<void>(codec::read_exact_chunk(payload, values));
    run_phases(elements, payload, is_valid);
    run_sketch(elements, payload, is_valid);
    run_reuse(elements, payload);
}

}  // namespace gradsieve::fuzz
