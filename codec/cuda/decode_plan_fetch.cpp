// What of a batch's payloads the device fetches by itself.
#include "codec/cuda/decode_plan.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>

namespace gradsieve::codec::cuda {

std::size_t DecodePlan::fetch_rows() const noexcept {
    std::size_t rows = 0;
    for (const UploadPiece& piece : fetched_pieces_) rows += (piece.bytes + kFetchBytes - 1) / kFetchBytes;
    return rows;
}

void DecodePlan::write_fetches(FetchPiece* ret_rows) const {
    FetchPiece* row = ret_rows;
    for (const UploadPiece& piece : fetched_pieces_) {
        for (ByteCount first = 0; first < piece.bytes; first += kFetchBytes) {
            const ByteCount bytes = std::min<ByteCount>(kFetchBytes, piece.bytes - first);
            *row++ = {piece.source + first, piece.offset + first, static_cast<std::uint32_t>(bytes),
                      static_cast<std::uint32_t>(aligned(bytes))};
        }
    }
    if (row != ret_rows) row[-1].target_bytes += kReadBehind;
}

}  // namespace gradsieve::codec::cuda
