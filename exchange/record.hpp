// The record: one chunk of one tensor as it stands in a data frame. Layout: docs/wire-format.md. Parse reads untrusted
// bytes. Any thread.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/shared_view.hpp"
#include "base/status.hpp"

#include <vector>

namespace gradsieve::exchange {

struct Record {
    std::uint32_t tensor = 0;       ///< number in the job's sorted table
    std::uint32_t chunk = 0;
    SharedView payload;
};
/// Appends the header of a record (payload follows it). At most 15 bytes; 4 where the numbers are small.
void build_record_header(Bytes& out, std::uint32_t tensor, std::uint32_t chunk, ByteCount payload_bytes);

}  // namespace gradsieve::exchange
