#include "codec/cuda/gpu_reuse.hpp"

#include "codec/cuda/reuse_kernel.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"
#include "codec/encoder_check.hpp"
#include "codec/tile_sum_tree.hpp"

#include <algorithm>
#include <array>

namespace gradsieve::codec::cuda {
namespace {

constexpr auto kRepeated = "payloads that are sent again";
/// Decoded at a time: 64 MiB, and one chunk at least.
constexpr ElementCount kMostElements = 16 * kChunkElements;
constexpr float kOne[] = {1.0F};

ElementCount tiles_in(ElementCount elements) { return (elements + kTileElements - 1) / kTileElements; }

/// Which of the devices has the tensor.
std::size_t place_of(const GpuReuseRequest& request) {
    const auto parts = request.encode.parts;
    const auto whole = std::ranges::find_if(parts, [](const auto& part) { return part.range.elements > 0; });
    return whole == parts.end() ? 0 : static_cast<std::size_t>(whole - parts.begin());
}

/// With that device's state, and what of it is the host's.
EncodeRequest whole_request(const GpuReuseRequest& request) {
    EncodeRequest whole = request.encode.request;
    if (request.encode.parts.empty()) return whole;
    const GpuEncodePart& part = request.encode.parts[place_of(request)];
    whole.in = part.in;
    whole.out = part.out;
    whole.in.sent = request.encode.request.in.sent;
    whole.out.sent = request.encode.request.out.sent;
    return whole;
}

template <typename Memory, typename Make>
Status fit(Memory& memory, ByteCount bytes, const Make& make) {
    if (bytes <= memory.size()) return {};
    memory = {};
    GRADSIEVE_ASSIGN(memory, make(rounded_up(bytes, kWorkspaceUnitBytes)));
    return {};
}

/// What is signed of residuals; requests point into it.
struct ResidualArrays {
    std::array<const float*, 1> arrays{};
    std::array<int, 1> devices{};
    std::vector<GpuEncodePart> parts;
};

}  // namespace

/// A chunk on its way from what its payload decodes to into p.
struct GpuReuse::Piece {
    std::size_t number = 0;
    float* residual = nullptr;
    ElementCount elements = 0;
    ElementCount first_tile = 0;         ///< of the sums
    const ChunkView* payload = nullptr;  ///< null: zeros
};

/// A batch.
struct GpuReuse::Turn {
    GpuEncoder& encoder;
    GpuDecoder& decoder;
    std::span<const GpuReuseRequest> requests;
    std::span<GpuReuseResult> results;
    std::vector<EncodeRequest> whole{};
    std::vector<Pipeline> passes{}, plains{};
    std::vector<std::optional<ReuseLook>> looks{};
    std::vector<bool> is_skipped{};

    /// Numbers of those that the condition holds of.
    template <typename Condition>
    [[nodiscard]] std::vector<std::size_t> numbers(const Condition& condition) const {
        std::vector<std::size_t> found;
        for (std::size_t number = 0; number < requests.size(); ++number)
            if (whole[number].elements > 0 && condition(number)) found.push_back(number);
        return found;
    }
    /// Of the arrays `residual` of those numbers' states.
    [[nodiscard]] Result<std::vector<Signature>> sign(std::span<const std::size_t> numbers,
                                                      StateView EncodeRequest::*state);
    [[nodiscard]] Status look();
};

Result<std::vector<Signature>> GpuReuse::Turn::sign(std::span<const std::size_t> numbers,
                                                    StateView EncodeRequest::*state) {
    std::vector<ResidualArrays> arrays(numbers.size());
    std::vector<GpuEncodeRequest> asked(numbers.size());
    for (std::size_t at = 0; at < numbers.size(); ++at) {
        const EncodeRequest& request = whole[numbers[at]];
        const GpuReuseRequest& own = requests[numbers[at]];
        arrays[at].arrays = {(request.*state).residual};
        asked[at].request.tensor = request.tensor;
        asked[at].request.elements = request.elements;
        asked[at].request.samples = arrays[at].arrays;
        asked[at].request.weights = kOne;
        if (own.encode.parts.empty()) continue;
        arrays[at].devices = {encoder.stream(place_of(own)).device()};
        for (const GpuEncodePart& part : own.encode.parts) arrays[at].parts.push_back({part.range, {}, {}});
        asked[at].sample_devices = arrays[at].devices;
        asked[at].parts = arrays[at].parts;
    }
    return encoder.sign(asked);
}

/// Signatures say which steps are worth more.
Status GpuReuse::Turn::look() {
    const auto all = numbers([](std::size_t) { return true; });
    std::vector<GpuEncodeRequest> asked;
    for (const std::size_t number : all) asked.push_back(requests[number].encode);
    GRADSIEVE_ASSIGN(auto gradients, encoder.sign(asked));
    std::vector<std::optional<SentState>> last(requests.size());
    for (const std::size_t number : all)
        last[number] = read_sent(*whole[number].pipeline, whole[number].elements, whole[number].in.sent);
    const auto fresh = numbers([&](std::size_t number) { return !last[number]; });
    GRADSIEVE_ASSIGN(const auto residuals, sign(fresh, &EncodeRequest::in));
    auto next = residuals.begin();
    for (std::size_t at = 0; at < all.size(); ++at) {
        const std::size_t number = all[at];
        const Signature before = last[number] ? last[number]->residual : *next++;
        looks[number] = look_at_reuse(whole[number], std::move(last[number]), before, gradients[at]);
        results[number].reuse.share = looks[number]->share;
        results[number].gradient = std::move(gradients[at]);
    }
    return {};
}

Status GpuReuse::encode_some(Turn& turn, std::span<const std::size_t> numbers, bool is_pass) {
    if (numbers.empty()) return {};
    std::vector<GpuEncodeRequest> asked;
    for (const std::size_t number : numbers) {
        asked.push_back(turn.requests[number].encode);
        asked.back().wants_signature = false;
        asked.back().request.pipeline = is_pass ? &turn.passes[number] : &turn.plains[number];
        if (is_pass) asked.back().request.selection_hint = nullptr;
    }
    std::vector<EncodeResult> results(asked.size());
    GRADSIEVE_TRY(turn.encoder.encode(asked, results));
    for (std::size_t at = 0; at < numbers.size(); ++at) {
        if (results[at].non_finite) turn.results[numbers[at]].gradient.reset();
        turn.results[numbers[at]].reuse.encoded = std::move(results[at]);
    }
    return {};
}

/// Decodes these and takes them from what they are of. Does not wait for that.
Status GpuReuse::subtract(Turn& turn, std::size_t place, std::span<const Piece> pieces) {
    Lane& lane = lanes_[place];
    const Stream& stream = turn.decoder.stream(place);
    std::vector<ByteCount> at(pieces.size());
    ByteCount bytes = 0;
    for (std::size_t number = 0; number < pieces.size(); ++number) {
        at[number] = bytes;
        bytes += aligned_to_line(pieces[number].elements * sizeof(float));
    }
    if (bytes > lane.values.size()) GRADSIEVE_TRY(stream.synchronize());
    GRADSIEVE_TRY(
        fit(lane.values, bytes, [&](ByteCount size) { return DeviceMemory::make(stream.device(), size, kRepeated); }));
    std::vector<ChunkView> chunks(pieces.size());
    std::vector<Contribution> contributions(pieces.size());
    std::vector<GpuResult> outputs(pieces.size());
    std::vector<std::vector<DeviceRange>> ranges(pieces.size());
    std::vector<GpuDecodeRequest> asked;
    for (std::size_t number = 0; number < pieces.size(); ++number) {
        const Piece& piece = pieces[number];
        const EncodeRequest& request = turn.whole[piece.number];
        const bool is_there = piece.payload != nullptr;
        chunks[number] = {0, is_there ? piece.payload->bytes : ByteView()};
        contributions[number] = {1.0F, std::span(chunks).subspan(number, is_there ? 1 : 0)};
        outputs[number] = {lane.values.as<float>(at[number]), ElementType::kF32, false, stream.device(), {}};
        for (std::size_t device = 0; device < lanes_.size() && lanes_.size() > 1; ++device)
            ranges[number].push_back({device > place ? piece.elements : 0, device == place ? piece.elements : 0});
        asked.push_back({request.tensor, request.step, piece.elements, std::span(contributions).subspan(number, 1),
                         std::span(outputs).subspan(number, 1), nullptr, ranges[number]});
    }
    std::vector<Result<DecodeResult>> answers(asked.size(), DecodeResult{});
    GRADSIEVE_TRY(turn.decoder.begin(asked));
    GRADSIEVE_TRY(turn.decoder.finish(answers));
    GRADSIEVE_TRY(stream.make_current());
    const ElementCount tiles = lane.host_sums.size() / (2 * sizeof(double));
    for (std::size_t number = 0; number < pieces.size(); ++number) {
        const Piece& piece = pieces[number];
        GRADSIEVE_TRY(answers[number].status());
        auto* const sums = lane.sums.as<double>() + piece.first_tile;
        GRADSIEVE_CUDA_TRY(launch_subtract_tiles(
                               {piece.residual, lane.values.as<float>(at[number]), piece.elements, sums, sums + tiles},
                               handle_of(stream)),
                           "subtracting what was sent");
    }
    return {};
}

/// Whether the payloads take enough away of those p that lie on that device, which become what is left.
Status GpuReuse::settle(Turn& turn, std::size_t place, std::span<const std::size_t> numbers) {
    if (numbers.empty()) return {};
    Lane& lane = lanes_[place];
    const Stream& stream = turn.decoder.stream(place);
    ElementCount tiles = 0;
    for (const std::size_t number : numbers) tiles += tiles_in(turn.whole[number].elements);
    const ByteCount bytes = tiles * 2 * sizeof(double);
    GRADSIEVE_TRY(
        fit(lane.sums, bytes, [&](ByteCount size) { return DeviceMemory::make(stream.device(), size, kRepeated); }));
    GRADSIEVE_TRY(fit(lane.host_sums, bytes, [](ByteCount size) { return PinnedMemory::make(size, kRepeated); }));
    std::vector<Piece> pieces;
    ElementCount first_tile = 0;
    ElementCount elements = 0;
    for (const std::size_t number : numbers) {
        const EncodeRequest& request = turn.whole[number];
        const auto& chunks = turn.looks[number]->last->chunks;
        auto next = chunks.begin();
        for (ElementCount first = 0; first < request.elements; first += kChunkElements) {
            Piece piece{number, request.out.residual + first,
                        std::min<ElementCount>(kChunkElements, request.elements - first), first_tile, nullptr};
            if (next != chunks.end() && next->chunk_index == first / kChunkElements) piece.payload = &*next++;
            if (elements + piece.elements > kMostElements) {
                GRADSIEVE_TRY(subtract(turn, place, pieces));
                pieces.clear();
                elements = 0;
            }
            elements += piece.elements;
            first_tile += tiles_in(piece.elements);
            pieces.push_back(piece);
        }
    }
    GRADSIEVE_TRY(subtract(turn, place, pieces));
    const ByteCount half = lane.host_sums.size() / 2;
    for (const ByteCount offset : {ByteCount{0}, half})
        GRADSIEVE_CUDA_TRY(cudaMemcpyAsync(lane.host_sums.data() + offset, lane.sums.data() + offset, bytes / 2,
                                           cudaMemcpyDeviceToHost, handle_of(stream)),
                           "copying sums from a GPU");
    GRADSIEVE_TRY(stream.synchronize());
    const double* sums = lane.host_sums.as<double>();
    for (const std::size_t number : numbers) {
        TileSumTree before, after;
        for (ElementCount tile = 0; tile < tiles_in(turn.whole[number].elements); ++tile, ++sums) {
            before.add(*sums);
            after.add(sums[half / sizeof(double)]);
        }
        turn.is_skipped[number] = takes_away(*turn.whole[number].pipeline, before.total(), after.total());
    }
    return {};
}

Status GpuReuse::encode(GpuEncoder& encoder, GpuDecoder& decoder, std::span<const GpuReuseRequest> requests,
                        std::span<GpuReuseResult> ret_results) {
    Turn turn{encoder, decoder, requests, ret_results};
    std::size_t devices = 1;
    for (std::size_t number = 0; number < requests.size(); ++number) {
        turn.whole.push_back(whole_request(requests[number]));
        GRADSIEVE_TRY(check_encode_request(turn.whole.back()));
        const Pipeline& pipeline = *turn.whole.back().pipeline;
        GRADSIEVE_CHECK(has_reuse(pipeline));
        turn.passes.push_back(reuse_pass(pipeline));
        turn.plains.push_back(pipeline);
        turn.plains.back().reuse = {};
        turn.plains.back().measures_similarity = false;
        devices = std::max(devices, requests[number].encode.parts.size());
        ret_results[number] = {};
        if (turn.whole.back().elements == 0) ret_results[number].gradient.emplace();
    }
    turn.looks.resize(requests.size());
    turn.is_skipped.assign(requests.size(), false);
    lanes_.resize(std::max(lanes_.size(), devices));
    GRADSIEVE_TRY(turn.look());
    const auto is_finite = [&](std::size_t number) { return !ret_results[number].reuse.encoded.non_finite; };
    GRADSIEVE_TRY(
        encode_some(turn, turn.numbers([&](std::size_t number) { return turn.looks[number]->is_worth_it; }), true));
    for (std::size_t place = 0; place < lanes_.size(); ++place)
        GRADSIEVE_TRY(settle(turn, place, turn.numbers([&](std::size_t number) {
            return turn.looks[number]->is_worth_it && is_finite(number) && place_of(requests[number]) == place;
        })));
    for (const std::size_t number : turn.numbers([&](std::size_t at) { return turn.is_skipped[at]; }))
        send_again(turn.whole[number], requests[number].held, *turn.looks[number], ret_results[number].reuse);
    const auto is_sent = [&](std::size_t number) { return !turn.is_skipped[number] && is_finite(number); };
    GRADSIEVE_TRY(encode_some(turn, turn.numbers(is_sent), false));
    const auto kept = turn.numbers(is_sent);
    GRADSIEVE_ASSIGN(auto after, turn.sign(kept, &EncodeRequest::out));
    for (std::size_t at = 0; at < kept.size(); ++at)
        keep_sent(turn.whole[kept[at]], *turn.looks[kept[at]], std::move(after[at]), ret_results[kept[at]].reuse);
    return {};
}

}  // namespace gradsieve::codec::cuda
