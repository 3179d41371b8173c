// The encoder's kernels by what they are for; each takes one EncodeRound by value. Those that look at lists run blocks
// of kTileThreads. The .cu files define them, the host launches them; the pointers mean nothing else.
#pragma once

#include "codec/cuda/encode_plan.hpp"
#include "codec/encoder.hpp"
#include "codec/pipeline.hpp"

namespace gradsieve::codec::cuda {

using KernelHandle = void (*)(EncodeRound);

/// A dense pass, in a grid of any size: blocks take tile after tile, some of which they have in shared memory.
struct PassKernel {
    KernelHandle kernel = nullptr;
    unsigned threads = 0;            ///< of a block
    unsigned blocks = 1;             ///< that a multiprocessor has registers for
    std::uint32_t shared_bytes = 0;  ///< of dynamic shared memory before the tiles
    std::uint32_t stage_bytes = 0;   ///< of each tile there
};

/// What happens to samples before a dense pass: one block for each tile of the pass.
[[nodiscard]] KernelHandle front_kernel() noexcept;
/// Before those, where the norm of the samples' mean has a bound: adds up squares, a block for kWarps tiles of a pass;
/// then, one block per chunk, behind all passes, finds what each tensor's weights are multiplied by.
[[nodiscard]] KernelHandle square_kernel() noexcept;
[[nodiscard]] KernelHandle fold_clips_kernel() noexcept;
/// Clears u where an element was sent, once the lists hold what is; one block per group of tiles.
[[nodiscard]] KernelHandle mask_kernel() noexcept;
/// Filters r once it is what was not sent; one block for each tile of the round.
[[nodiscard]] KernelHandle low_pass_kernel() noexcept;

/// Samples that the dense kernels keep in registers: `sample_count` if there is a form for it, 0 for any number.
[[nodiscard]] unsigned near_samples(VarianceSource source, std::uint32_t sample_count) noexcept;

/// The dense pass that sends lists, or leaves them where the tensor is decided first (`is_deferred`). Parts:
/// encode_list.cu (no variance, moments, one gradient), encode_list_groups.cu (groups).
[[nodiscard]] PassKernel find_list_kernel(VarianceSource source, unsigned samples, bool is_deferred) noexcept;
[[nodiscard]] PassKernel find_group_list_kernel(VarianceSource source, unsigned samples, bool is_deferred) noexcept;
/// The dense pass that codes every element, with any quantizer but pow2 and integer; and the one that rotates tiles
/// first, with any quantizer that may stand behind a rotation.
[[nodiscard]] PassKernel find_dense_kernel(QuantizerKind quantizer, unsigned samples) noexcept;
[[nodiscard]] PassKernel find_rotated_kernel(QuantizerKind quantizer, unsigned samples) noexcept;
/// The same of integer, whose codes it leaves in the tiles' slots, and all of a chunk's magnitudes or-ed in its result.
[[nodiscard]] PassKernel find_integer_kernel(unsigned samples) noexcept;
/// Behind it: places the payloads, whose codes are as wide as their chunk wants, a thread for each chunk and
/// kTileThreads to a block; and packs the codes, a block per group of tiles.
[[nodiscard]] KernelHandle place_integers_kernel() noexcept;
[[nodiscard]] KernelHandle pack_integers_kernel() noexcept;

/// Lists again where the floor let too few through; one block per group of tiles, as the next four.
[[nodiscard]] KernelHandle relist_kernel() noexcept;
/// A look at tensors whose threshold is estimated: measures r; one block per group. Then, one block per chunk, joins
/// the sums and decides, or leaves them for the other devices, on each of which the third one takes all.
[[nodiscard]] KernelHandle measure_kernel() noexcept;
[[nodiscard]] KernelHandle fold_estimates_kernel() noexcept;
[[nodiscard]] KernelHandle take_estimates_kernel() noexcept;
/// Leading 11 bits of the k-th magnitude, then 10, then the last 10.
[[nodiscard]] KernelHandle histogram_kernel(unsigned level) noexcept;
/// Where ties are cut: how many stand before each tile.
[[nodiscard]] KernelHandle tie_kernel() noexcept;
/// Behind the pass of tensors that are selected together with others: counts magnitudes on a level; and lists from the
/// k-th magnitude on, in front of tie_kernel. One block per group of tiles, as the next two.
[[nodiscard]] KernelHandle scope_count_kernel(unsigned level) noexcept;
[[nodiscard]] KernelHandle scope_list_kernel() noexcept;
/// Cuts lists that wait to the best of each block, for block top-k.
[[nodiscard]] KernelHandle block_kernel() noexcept;
/// Cuts lists that wait to what adaptive_random draws.
[[nodiscard]] KernelHandle adaptive_kernel() noexcept;
/// Sends the lists that waited, of which none is coded in a way behind `draw`.
[[nodiscard]] KernelHandle send_kernel(Draw draw) noexcept;
/// Draws and sends the lists of keyed selectors, none of which is coded in a way behind `draw`; a block per group.
[[nodiscard]] KernelHandle keyed_kernel(Draw draw) noexcept;
/// Codes the chunks once their lists hold what is sent; a block of kCodeThreads for each chunk, with kNearPayloadBytes
/// of dynamic shared memory.
[[nodiscard]] KernelHandle code_kernel() noexcept;
/// Bytes that a kernel copies; whole vectors of 16 at both ends.
struct ByteCopy {
    const std::byte* from;
    std::byte* to;
    ByteCount bytes;
};
/// The batch's plan on its way in: a small copy by a kernel is on its way sooner than one by the copy engine, and the
/// next kernel need not wait for another engine. A grid of any size of kCodeThreads, as the next one.
[[nodiscard]] auto take_plan_kernel() noexcept -> void (*)(ByteCopy);
/// Its results on their way out, and the payloads of lists to the batch's host memory, as far as it reaches.
[[nodiscard]] auto give_results_kernel() noexcept -> void (*)(EncodeRound, ByteCopy);
/// Payloads up to this size are put together in shared memory.
inline constexpr std::uint32_t kNearPayloadBytes = 64U << 10U;

// Where several devices share the tensors of a round (encode_shared.cu); one block per chunk. Between a kernel that
// leaves counts for the others and the one that takes them, every device has to wait for all.
/// Leaves what the dense pass listed; the kernels above leave the other counts by themselves.
[[nodiscard]] KernelHandle share_listed_kernel() noexcept;
[[nodiscard]] KernelHandle take_listed_kernel() noexcept;
/// Each takes what histogram_kernel of the level left.
[[nodiscard]] KernelHandle take_bins_kernel(unsigned level) noexcept;
[[nodiscard]] KernelHandle take_ties_kernel() noexcept;

}  // namespace gradsieve::codec::cuda
