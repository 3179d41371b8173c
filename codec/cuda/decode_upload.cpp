#include "codec/cuda/decode_upload.hpp"

#include "codec/cuda/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

/// Copied to the device in one call, so that gathering and copying overlap: an eighth of a small upload, but never so
/// little that the calls are what takes time (5 to 10 us each), nor more than keeps the bus busy.
constexpr ByteCount kLeastSegmentBytes = ByteCount{256} << 10U;
constexpr ByteCount kMostSegmentBytes = ByteCount{4} << 20U;
constexpr ByteCount kSegments = 8;
/// Waking a thread costs as much as copying some hundred kB.
constexpr ByteCount kBytesPerThread = ByteCount{1} << 20U;

struct Segment {
    std::size_t first_piece = 0, end_piece = 0;
    ByteCount begin = 0, end = 0;
};

/// What is sent, in consecutive segments; the tables belong to the first.
std::vector<Segment> cut_segments(std::span<const UploadPiece> pieces, const UploadLayout& layout) {
    const ByteCount segment_bytes = std::clamp(layout.sent_bytes / kSegments, kLeastSegmentBytes, kMostSegmentBytes);
    std::vector<Segment> segments = {{0, 0, 0, layout.sent_bytes}};
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
        if (pieces[piece].offset - segments.back().begin >= segment_bytes) {
            segments.back().end = pieces[piece].offset;
            segments.push_back({piece, piece, pieces[piece].offset, layout.sent_bytes});
        }
        segments.back().end_piece = piece + 1;
    }
    return segments;
}

/// Segments are taken by whoever is free, in order.
class Gathering {
public:
    Gathering(std::span<const UploadPiece> pieces, std::span<const Segment> segments, std::byte* staging)
        : pieces_(pieces), segments_(segments), staging_(staging), is_ready_(segments.size()) {}

    /// Gathers one segment; false if all are taken.
    bool gather_one() noexcept {
        const std::size_t place = next_.fetch_add(1, std::memory_order_relaxed);
        if (place >= segments_.size()) return false;
        for (std::size_t piece = segments_[place].first_piece; piece < segments_[place].end_piece; ++piece)
            std::memcpy(staging_ + pieces_[piece].offset, pieces_[piece].source, pieces_[piece].bytes);
        is_ready_[place].store(true, std::memory_order_release);  // pairs with the acquire in `wait_for`
        is_ready_[place].notify_one();
        return true;
    }
    /// Helps until the segment is gathered. Only memory copies are waited for, so there is no deadline.
    void wait_for(std::size_t place) noexcept {
        while (!is_ready_[place].load(std::memory_order_acquire))
            if (!gather_one()) is_ready_[place].wait(false, std::memory_order_acquire);
    }

private:
    std::span<const UploadPiece> pieces_;
    std::span<const Segment> segments_;
    std::byte* staging_;
    std::vector<std::atomic<bool>> is_ready_;
    std::atomic<std::size_t> next_{0};
};

}  // namespace

Status upload_pieces(std::span<const UploadPiece> pieces, const UploadLayout& layout, std::byte* staging,
                     std::byte* device_memory, const Stream& stream, GatherThreads& threads) {
    const std::vector<Segment> segments = cut_segments(pieces, layout);
    Gathering gathering(pieces, segments, staging);
    const auto helpers = static_cast<unsigned>(layout.sent_bytes / kBytesPerThread);
    if (helpers > 0) threads.start([&gathering] { return gathering.gather_one(); }, helpers);
    Status status;
    for (std::size_t place = 0; place < segments.size(); ++place) {
        gathering.wait_for(place);
        if (!status.is_ok()) continue;
        const Segment& segment = segments[place];
        status = status_of(
            cudaMemcpyAsync(device_memory + segment.begin, staging + segment.begin, segment.end - segment.begin,
                            cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream.handle())),
            "copying payloads to a GPU");
    }
    if (helpers > 0) threads.finish();
    return status;
}

}  // namespace gradsieve::codec::cuda
