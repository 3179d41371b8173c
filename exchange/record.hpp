// The record: one chunk of one tensor as it stands in a data frame. Layout: docs/wire-format-jobs.md. The reader trusts
// nothing that it reads and allocates nothing. Any thread; payloads keep the frame they came in alive.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/shared_view.hpp"
#include "base/status.hpp"

#include <optional>

namespace gradsieve::exchange {

/// How the receiver learns that a tensor of a peer is complete, whatever the order of arrival.
enum class RecordKind : std::uint8_t {
    kChunk = 0,        ///< one chunk; another record tells how many there are
    kLast = 1,         ///< the last chunk of a tensor that has all chunks 0 .. chunk
    kLastOfCount = 2,  ///< the last chunk; the tensor has `count` chunks, some numbers are left out
    kMark = 3,         ///< no chunk: `code` 0 says that the tensor is empty, else why it failed (payload = text)
};
struct RecordHeader {
    std::uint32_t tensor = 0;  ///< number in the job's sorted table, below 2^30
    RecordKind kind = RecordKind::kChunk;
    std::uint32_t chunk = 0;  ///< kMark: the status code
    std::uint32_t count = 0;  ///< records of this tensor; only kLast (chunk + 1) and kLastOfCount
    std::uint32_t payload_bytes = 0;
    bool operator==(const RecordHeader&) const = default;
};
struct Record {
    RecordHeader header;
    SharedView payload;
};
/// Stands in place of a payload that failed.
[[nodiscard]] constexpr bool is_failure(const RecordHeader& header) noexcept {
    return header.kind == RecordKind::kMark && header.chunk != 0;
}
/// Appends the header of a record (payload follows it). At most 20 bytes; 4 where the numbers are small.
void build_record_header(Bytes& out, const RecordHeader& header);

/// Walks over the records of a frame's body from `first_byte` on.
class RecordReader {
public:
    RecordReader(const SharedView& body, std::size_t first_byte);
    /// The next record; nothing at the end, or once a record did not parse (`is_ok()` tells which).
    [[nodiscard]] std::optional<Record> next();
    [[nodiscard]] bool is_ok() const noexcept { return ok_; }

private:
    const SharedView& body_;
    std::size_t first_byte_;
    ByteReader reader_;
    bool ok_ = true;
};
/// True if all records up to the end of the body parse, so that a broken frame is refused whole.
[[nodiscard]] bool has_whole_records(const SharedView& body, std::size_t first_byte);

}  // namespace gradsieve::exchange
