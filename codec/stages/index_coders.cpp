#include "codec/stages/index_coders.hpp"

#include "codec/stages/stage_text.hpp"

namespace gradsieve::codec::stages {

const IndexCoderStage Auto::kStage = {.row = StageRow{"auto", "index coder", "", "chunk", "-",
                                                      "the smallest of rice, bitmap and raw32, chunk by chunk", "-"},
                                      .kind = IndexCoderKind::kAuto};

const IndexCoderStage Rice::kStage = {
    .row = StageRow{"rice", "index coder", "", "chunk", "-",
                    "gaps in Golomb-Rice code, quotients and remainders apart, parameter of the fewest bits",
                    "Golomb 1966, Run-length Encodings; Rice and Plaunt 1971"},
    .kind = IndexCoderKind::kRice};

const IndexCoderStage Bitmap::kStage = {
    .row = StageRow{"bitmap", "index coder", "", "chunk", "-", "one bit per element of the chunk", "-"},
    .kind = IndexCoderKind::kBitmap};

const IndexCoderStage Raw32::kStage = {
    .row = StageRow{"raw32", "index coder", "", "chunk", "-",
                    "32 bits per index; with pow2(bits=4) index, sign and exponent share one word", kTsuzuku},
    .kind = IndexCoderKind::kRaw32};

const IndexCoderStage EliasFano::kStage = {
    .row =
        StageRow{
            "elias_fano", "index coder", "", "chunk", "-",
            "the lower bits of each index, and its upper part in a bitmap: the position of the j-th one is that plus "
            "j; each index is read without those before it",
            "Elias 1974, Efficient Storage and Retrieval by Content and Address of Static Files; Fano 1971"},
    .kind = IndexCoderKind::kEliasFano};

}  // namespace gradsieve::codec::stages
