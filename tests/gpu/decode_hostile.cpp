// Hostile payloads: the GPU refuses exactly what the CPU decoder refuses, in the same words, and decodes the rest to
// the same bits; nothing outside the results is written.
#include "codec/bit_stream.hpp"
#include "codec/payload.hpp"
#include "decode_harness.hpp"
#include "tests/codec/payload_cases.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::gpu_check {
namespace {

using test::random_word;

/// One to three changes: a bit, a byte, the end, the middle. Half of them hit the header.
Bytes mutate(Bytes payload, std::uint64_t& state) {
    for (std::uint64_t changes = 1 + random_word(state) % 3; changes > 0 && !payload.empty(); --changes) {
        const std::size_t reach =
            random_word(state) % 2 == 0 ? std::min<std::size_t>(payload.size(), 8) : payload.size();
        const auto position = random_word(state) % reach;
        const auto at = payload.begin() + static_cast<std::ptrdiff_t>(position);
        switch (random_word(state) % 6) {
            case 0:
            case 1: *at ^= static_cast<std::byte>(1U << (random_word(state) % 8)); break;
            case 2: *at = static_cast<std::byte>(random_word(state)); break;
            case 3: payload.resize(position); break;
            case 4: payload.insert(at, static_cast<std::byte>(random_word(state))); break;
            default: payload.erase(at); break;
        }
    }
    payload.shrink_to_fit();
    return payload;
}

/// Collects cases and decodes them in batches; every payload is one of two or three nodes.
class HostileBatches {
public:
    HostileBatches(codec::cuda::GpuDecoder& decoder, Report& report) : decoder_(decoder), report_(report) {}
    ~HostileBatches() { flush(); }

    void add(const std::string& name, ElementCount elements, Bytes payload, const Bytes& good) {
        DecodeCase one{fmt::format("{} #{}", name, ++tried_), elements, {}};
        std::vector<NodeStep> nodes(2 + tried_ % 2);
        for (std::size_t node = 0; node < nodes.size(); ++node) {
            nodes[node].factor = 0.25F;
            if (!good.empty()) nodes[node].chunks.push_back({0, good});
        }
        nodes[tried_ % nodes.size()].chunks = {{0, std::move(payload)}};
        one.steps.push_back(nodes);
        cases_.push_back(std::move(one));
        elements_ += elements;
        if (elements_ > kBatchElements || cases_.size() == kBatchCases) flush();
    }
    void flush() {
        if (cases_.empty()) return;
        DecodeComparison comparison(decoder_, std::move(cases_), tried_);
        comparison.run_step(0, report_);
        refused_ += comparison.refused();
        cases_.clear();
        elements_ = 0;
    }
    /// "15600 payloads, 9000 refused".
    [[nodiscard]] std::string summary() {
        flush();
        return fmt::format("{} payloads, {} refused", tried_, refused_);
    }
    [[nodiscard]] std::size_t tried() const noexcept { return tried_; }
    [[nodiscard]] std::size_t accepted() const noexcept { return tried_ - refused_; }

private:
    static constexpr std::size_t kBatchCases = 1000;
    static constexpr ElementCount kBatchElements = ElementCount{1} << 25U;

    codec::cuda::GpuDecoder& decoder_;
    Report& report_;
    std::vector<DecodeCase> cases_;
    ElementCount elements_ = 0;
    std::size_t tried_ = 0;
    std::size_t refused_ = 0;
};

Bytes coded(const test::PipelineCase& pipeline_case, test::Shape shape, std::size_t elements, std::uint64_t seed) {
    const auto data = test::make_case_data(pipeline_case, shape, elements, seed);
    return test::code(pipeline_case.pipeline, elements, pipeline_case.is_dense, data.indices, data.values).payload;
}

void add_mutations(unsigned rounds, std::uint64_t seed, HostileBatches& batches) {
    std::uint64_t state = seed;
    for (const auto& pipeline_case : test::all_pipeline_cases())
        for (const std::size_t elements : {1, 9, 300, 4100, 9000}) {
            const Bytes good = coded(pipeline_case, test::Shape::kGaussian, elements, seed + elements);
            for (unsigned round = 0; round < rounds; ++round)
                batches.add(fmt::format("mutated {}, n = {}", pipeline_case.text, elements), elements,
                            mutate(good, state), good);
        }
}

void add_truncations(std::size_t elements, HostileBatches& batches) {
    for (const auto& pipeline_case : test::all_pipeline_cases()) {
        const Bytes good = coded(pipeline_case, test::Shape::kHeavyTailed, elements, 4);
        for (std::size_t size = 0; size <= good.size(); ++size) {
            Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
            if (size == good.size()) cut.push_back(std::byte{0});
            batches.add(fmt::format("{} cut to {} bytes", pipeline_case.text, size), elements, cut, good);
        }
    }
}

void add_random_bytes(unsigned rounds, std::uint64_t seed, HostileBatches& batches) {
    std::uint64_t state = seed;
    for (unsigned round = 0; round < rounds; ++round) {
        Bytes payload(random_word(state) % 40);
        for (std::byte& byte : payload) byte = static_cast<std::byte>(random_word(state));
        if (!payload.empty()) payload[0] = static_cast<std::byte>(2 + round % 4);
        batches.add("random bytes", 1 + random_word(state) % 200, payload, {});
    }
}

/// Payloads that say votes beside others that say values.
void add_votes(HostileBatches& batches) {
    for (const std::uint32_t elements : {1U, 8U, 5000U}) {
        Bytes votes = {std::byte{5}, std::byte{6}, std::byte{0}};
        votes.resize(votes.size() + elements / 8);
        if (elements % 8 != 0) votes.push_back(std::byte{1});
        for (const char* text : {"all | sign", "all | sign(scale=two_mean)", "topk(0.01) | f32 | rice"}) {
            const bool is_dense = text[0] == 'a';
            const Bytes values =
                coded({text, *codec::parse_pipeline(text), is_dense}, test::Shape::kGaussian, elements, 3);
            batches.add(fmt::format("votes beside {}", text), elements, votes, values);
            batches.add(fmt::format("{} beside votes", text), elements, values, votes);
        }
        batches.add("votes", elements, votes, votes);
        Bytes list = votes;
        list[1] = std::byte{0x46};
        batches.add("a list of votes", elements, list, votes);
    }
}

Bytes header_bytes(const codec::PayloadHeader& header) {
    Bytes bytes(codec::kMostHeaderBytes);
    bytes.resize(static_cast<std::size_t>(codec::build_header(header, bytes.data()) - bytes.data()));
    return bytes;
}

/// One element in every tile of a whole chunk, with any exponents: sections longer than a sender makes.
Bytes wide_exponents(unsigned parameter, std::uint64_t& state) {
    codec::PayloadHeader header;
    header.quantizer = codec::QuantizerKind::kPow2;
    header.index_form = codec::IndexForm::kRaw32;
    header.code_bits = 2;
    header.count = codec::kMaximumTiles;
    header.exponent_parameter = parameter;
    header.base_exponent = 254;
    Bytes payload = header_bytes(header);
    for (std::uint32_t tile = 0; tile < codec::kMaximumTiles; ++tile)
        ByteWriter(payload).write(
            static_cast<std::uint32_t>(tile * kTileElements + random_word(state) % kTileElements));
    const std::size_t begin = payload.size();
    payload.resize(begin + 16384);
    codec::BitPacker packer(payload.data() + begin);
    if (parameter != codec::kNoTileExponents)
        for (std::size_t tile = 0; tile < codec::kMaximumTiles; ++tile) {
            const std::uint64_t octaves = random_word(state) % 253;
            packer.put_unary(octaves >> parameter);
            packer.put(octaves & ((1U << parameter) - 1), parameter);
        }
    payload.resize(static_cast<std::size_t>(packer.end() - payload.data()));
    for (std::size_t byte = 0; byte < codec::kMaximumTiles / 4; ++byte)
        payload.push_back(static_cast<std::byte>(random_word(state)));
    return payload;
}

/// A Rice list by hand: `count` remainders and quotients as given, fp32 values of 1.
Bytes rice_list(std::uint32_t count, unsigned parameter, std::uint32_t remainder, std::uint64_t first_quotient) {
    codec::PayloadHeader header;
    header.index_form = codec::IndexForm::kRice;
    header.count = count;
    header.index_parameter = parameter;
    Bytes payload = header_bytes(header);
    const std::size_t begin = payload.size();
    payload.resize(begin + (std::size_t{count} * (parameter + 1) + first_quotient) / 8 + 32);
    codec::BitPacker remainders(payload.data() + begin);
    for (std::uint32_t element = 0; element < count; ++element) remainders.put(remainder, parameter);
    codec::BitPacker quotients(remainders.end());
    quotients.put_unary(first_quotient);
    for (std::uint32_t element = 1; element < count; ++element) quotients.put_unary(0);
    payload.resize(static_cast<std::size_t>(quotients.end() - payload.data()));
    for (std::uint32_t element = 0; element < count; ++element) ByteWriter(payload).write(1.0F);
    return payload;
}

/// Whole chunks whose numbers overflow whatever is not 64 bits wide, or take longest to read.
void add_extremes(std::uint64_t seed, HostileBatches& batches) {
    constexpr auto kAll = static_cast<std::uint32_t>(kChunkElements);
    const auto add = [&](const std::string& name, Bytes payload) {
        batches.add(name, kChunkElements, std::move(payload), {});
    };
    add("largest remainders", rice_list(kAll, 20, (1U << 20U) - 1, 0));
    add("remainders that wrap to 0 mod 2^32", rice_list(8192, 20, 1U << 19U, 0));
    add("every element by rice", rice_list(kAll, 0, 0, 0));
    add("last element by zeros alone", rice_list(1, 0, 0, kAll - 1));
    add("one beyond by zeros alone", rice_list(1, 0, 0, kAll));
    add("quotient times 2^20", rice_list(1, 20, 0, 1));
    add("quotient times 2^20, 2^12 times", rice_list(1, 20, 5, 4096));
    std::uint64_t state = seed;
    for (unsigned round = 0; round < 12; ++round)
        for (unsigned parameter = 0; parameter <= codec::kNoTileExponents; ++parameter) {
            const Bytes good = wide_exponents(parameter, state);
            add(fmt::format("wide exponents, p = {}", parameter), good);
            Bytes bad = good;
            constexpr std::size_t kBehindIndices = 7 + 4 * codec::kMaximumTiles;
            bad[kBehindIndices + random_word(state) % (bad.size() - kBehindIndices)] ^=
                static_cast<std::byte>(1U << (random_word(state) % 8));
            add(fmt::format("wide exponents with a flipped bit, p = {}", parameter), bad);
        }
}

void add_large_mutations(unsigned rounds, std::uint64_t seed, HostileBatches& batches) {
    std::uint64_t state = seed;
    for (const auto& pipeline_case : test::all_pipeline_cases()) {
        const Bytes good = coded(pipeline_case, test::Shape::kHeavyTailed, kChunkElements - 5, seed);
        for (unsigned round = 0; round < rounds; ++round)
            batches.add("mutated " + pipeline_case.text, kChunkElements - 5, mutate(good, state), good);
        batches.flush();
    }
}

/// Chunks in the wrong place, one tensor corrupt in several ways of which the first in chunk and node order is told,
/// and a good tensor beside it.
void check_chunk_order(codec::cuda::GpuDecoder& decoder, Report& report) {
    const ElementCount elements = kChunkElements + 40;
    const auto& first = test::all_pipeline_cases();
    const auto bitmap = std::find_if(first.begin(), first.end(),
                                     [](const auto& one) { return one.text == "topk(0.01) | pow2(bits=4) | bitmap"; });
    const Bytes whole = coded(*bitmap, test::Shape::kGaussian, kChunkElements, 5);
    const Bytes rest = coded(*bitmap, test::Shape::kGaussian, 40, 5);
    Bytes bad_bits = whole;
    bad_bits[1000] ^= std::byte{1};
    Bytes bad_header = rest;
    bad_header[0] = std::byte{9};
    using Chunks = std::vector<CodedChunk>;
    const std::vector<std::pair<std::string, std::vector<Chunks>>> tensors = {
        {"good", {{{0, whole}, {1, rest}}, {{1, rest}}}},
        {"chunk beyond the end", {{{0, whole}}, {{2, rest}}}},
        {"chunk twice", {{{0, whole}, {0, whole}}}},
        {"chunks descending", {{{1, rest}, {0, whole}}}},
        {"bits before header", {{{1, bad_header}}, {{0, bad_bits}}}},
        {"header of node 0, bits of node 1", {{{0, whole}, {1, bad_header}}, {{0, bad_bits}}}},
        {"version", {{{0, whole}, {1, rest}}, {{1, bad_header}}}},
        {"good again", {{{0, whole}}, {{0, whole}}}}};
    std::vector<DecodeCase> cases;
    for (const auto& [name, nodes] : tensors) {
        DecodeCase one{name, elements, {{}, {}}};
        for (const Chunks& chunks : nodes) {
            one.steps[0].push_back({0.5F, chunks});
            one.steps[1].push_back({0.5F, {{1, rest}}});  // and a good step after it
        }
        cases.push_back(std::move(one));
    }
    DecodeComparison comparison(decoder, std::move(cases), 1);
    comparison.run_step(0, report);
    report.expect(comparison.refused() == 6, fmt::format("refused {} of 6", comparison.refused()));
    comparison.run_step(1, report);
    report.expect(comparison.refused() == 6, "the step after a refused one is good");
}

}  // namespace

void check_decode_hostile(const Options& options, Report& report) {
    auto decoder = codec::cuda::GpuDecoder::make(options.device);
    if (!report.expect_ok(decoder.status(), "making a decoder")) return;
    HostileBatches mutations(**decoder, report);
    add_mutations(options.is_small ? 3 : 80, options.seed, mutations);
    const std::string mutated = mutations.summary();
    report.figure("mutations: " + mutated);
    report.expect(mutations.accepted() > mutations.tried() / 100 && mutations.accepted() < mutations.tried() * 9 / 10,
                  "mutations that all survive, or none, show little: " + mutated);

    HostileBatches batches(**decoder, report);
    add_random_bytes(options.is_small ? 200 : 5000, options.seed, batches);
    add_truncations(options.is_small ? 33 : 300, batches);
    add_votes(batches);
    if (!options.is_small) {
        add_extremes(options.seed, batches);
        add_large_mutations(4, options.seed, batches);
    }
    report.figure("cut, random and extreme: " + batches.summary());
    check_chunk_order(**decoder, report);
}

}  // namespace gradsieve::gpu_check
