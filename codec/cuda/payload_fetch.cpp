#include "codec/cuda/payload_fetch.hpp"

#include "codec/cuda/runtime.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

/// A range of payload memory.
struct Piece {
    ByteCount begin = 0;
    ByteCount end = 0;
};

/// Copies what `piece`, lying at `source`, holds of `places` from `first` on; returns the first that is not complete.
std::size_t take_piece(const Piece& piece, const std::byte* source, std::span<const PayloadPlace> places,
                       std::size_t first) {
    for (; first < places.size(); ++first) {
        const PayloadPlace& place = places[first];
        const ByteCount place_end = place.offset + place.bytes;
        const ByteCount begin = std::max(place.offset, piece.begin);
        const ByteCount end = std::min(place_end, piece.end);
        if (begin < end)
            std::memcpy(place.target + (begin - place.offset), source + (begin - piece.begin), end - begin);
        if (place_end > piece.end) break;
    }
    return first;
}

class PieceCopier {
public:
    PieceCopier(const Stream& stream, const EncodeMemory& memory)
        : stream_(stream), memory_(memory), half_bytes_(memory.pieces.size() / 2) {}

    Status copy(std::span<const PayloadPlace> places) {
        std::size_t first = 0;
        const ByteCount end = places.back().offset + places.back().bytes;
        Piece piece;
        Piece next{places.front().offset, places.front().offset};
        for (unsigned turn = 0; first < places.size(); turn ^= 1U) {
            // The next piece is under way while this one is taken.
            const bool has_piece = piece.begin < piece.end;
            next = {next.end, std::min(next.end + half_bytes_, end)};
            if (next.begin < next.end) GRADSIEVE_TRY(start(next, turn));
            if (has_piece) first = take_piece(piece, half(turn ^ 1U), places, first);
            GRADSIEVE_TRY(stream_.synchronize());
            piece = next;
        }
        return {};
    }

private:
    std::byte* half(unsigned turn) const { return memory_.pieces.data() + turn * half_bytes_; }
    Status start(const Piece& piece, unsigned turn) const {
        return status_of(cudaMemcpyAsync(half(turn), memory_.payload.data() + piece.begin, piece.end - piece.begin,
                                         cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream_.handle())),
                         "copying payloads from a GPU");
    }

    const Stream& stream_;
    const EncodeMemory& memory_;
    ByteCount half_bytes_;
};

}  // namespace

Status fetch_payloads(const Stream& stream, const EncodeMemory& memory, std::span<PayloadPlace> places) {
    if (places.empty()) return {};
    std::ranges::sort(places, {}, &PayloadPlace::offset);
    return PieceCopier(stream, memory).copy(places);
}

}  // namespace gradsieve::codec::cuda
