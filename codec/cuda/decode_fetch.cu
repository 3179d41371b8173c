// Payloads that lie in host memory which the device reads (mirror_pool.hpp): it fetches them by itself, so that no core
// gathers them. Blocks: one per piece.
#include "codec/cuda/decode_tables.hpp"
#include "codec/cuda/launch.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kLanes = 32;
/// Words that a lane has under way at once: host memory is far.
constexpr unsigned kWordsAhead = 4;

/// Word `number` of a piece that begins at any byte. A whole warp with consecutive numbers.
__device__ std::uint32_t load_word(const std::uint32_t* words, std::uint32_t number, std::uint32_t count,
                                   unsigned shift) {
    const std::uint32_t own = number < count ? words[number] : 0U;
    std::uint32_t next = __shfl_down_sync(~0U, own, 1);
    if (threadIdx.x % kLanes == kLanes - 1) next = shift > 0 && number + 1 < count ? words[number + 1] : 0U;
    return __funnelshift_r(own, next, shift);
}

/// What lies between pieces is cleared: kernels read whole words.
__global__ void __launch_bounds__(kThreads) fetch_pieces(const FetchPiece* pieces, std::byte* upload) {
    const FetchPiece piece = pieces[blockIdx.x];
    const auto address = reinterpret_cast<std::uintptr_t>(piece.source);
    const auto* source = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
    const auto misalignment = static_cast<unsigned>(address & 3U);
    const std::uint32_t source_words = (misalignment + piece.bytes + 3) / 4;
    auto* target = reinterpret_cast<std::uint32_t*>(upload + piece.offset);
    const std::uint32_t target_words = piece.target_bytes / 4;
    for (std::uint32_t begin = threadIdx.x; begin - threadIdx.x % kLanes < target_words;
         begin += kThreads * kWordsAhead) {
        std::uint32_t loaded[kWordsAhead];
#pragma unroll
        for (unsigned ahead = 0; ahead < kWordsAhead; ++ahead)
            loaded[ahead] = load_word(source, begin + ahead * kThreads, source_words, misalignment * 8);
#pragma unroll
        for (unsigned ahead = 0; ahead < kWordsAhead; ++ahead) {
            const std::uint32_t word = begin + ahead * kThreads;
            if (word < target_words) target[word] = loaded[ahead];
        }
    }
}

}  // namespace

int launch_fetch_pieces(const FetchPiece* pieces, std::uint32_t count, std::byte* upload, void* stream) {
    return launch(fetch_pieces, {count, kThreads}, static_cast<cudaStream_t>(stream), pieces, upload);
}

}  // namespace gradsieve::codec::cuda
