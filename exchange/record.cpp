// Writes and reads record headers. Any thread; owns nothing.
#include "exchange/record.hpp"

#include <limits>

namespace gradsieve::exchange {
namespace {

constexpr std::uint64_t kTensorLimit = std::uint64_t{1} << 30U;

/// Reads a number that must fit 32 bits.
std::uint32_t read_number(ByteReader& reader, bool& ret_ok) {
    const auto value = reader.read_varint();
    if (!reader.is_ok() || value > std::numeric_limits<std::uint32_t>::max()) ret_ok = false;
    return ret_ok ? static_cast<std::uint32_t>(value) : 0;
}

}  // namespace

void build_record_header(Bytes& out, const RecordHeader& header) {
    GRADSIEVE_CHECK(header.tensor < kTensorLimit);
    ByteWriter writer(out);
    writer.write_varint((std::uint64_t{header.tensor} << 2U) | static_cast<std::uint8_t>(header.kind));
    writer.write_varint(header.chunk);
    if (header.kind == RecordKind::kLastOfCount) writer.write_varint(header.count);
    writer.write_varint(header.payload_bytes);
}

RecordReader::RecordReader(const SharedView& body, std::size_t first_byte)
    : body_(body),
      first_byte_(first_byte <= body.bytes().size() ? first_byte : body.bytes().size()),
      reader_(body.bytes().subspan(first_byte_)) {}

std::optional<Record> RecordReader::next() {
    if (!ok_ || reader_.remaining_bytes() == 0) return std::nullopt;
    Record record;
    auto& header = record.header;
    const auto tensor_and_kind = reader_.read_varint();
    if (!reader_.is_ok() || (tensor_and_kind >> 2U) >= kTensorLimit) ok_ = false;
    header.tensor = static_cast<std::uint32_t>(tensor_and_kind >> 2U);
    header.kind = static_cast<RecordKind>(tensor_and_kind & 3U);
    header.chunk = read_number(reader_, ok_);
    if (header.kind == RecordKind::kLastOfCount) header.count = read_number(reader_, ok_);
    if (header.kind == RecordKind::kLast) {
        if (header.chunk == std::numeric_limits<std::uint32_t>::max()) ok_ = false;
        header.count = header.chunk + 1;
    }
    header.payload_bytes = read_number(reader_, ok_);
    if (!ok_ || header.payload_bytes > reader_.remaining_bytes()) {
        ok_ = false;
        return std::nullopt;
    }
    record.payload = body_.part(first_byte_ + reader_.position_bytes(), header.payload_bytes);
    (void)reader_.read_bytes(header.payload_bytes);
    return record;
}

bool has_whole_records(const SharedView& body, std::size_t first_byte) {
    RecordReader reader(body, first_byte);
    while (reader.next()) {}
    return reader.is_ok();
}

}  // namespace gradsieve::exchange
