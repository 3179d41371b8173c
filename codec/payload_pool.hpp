// Memory of payloads: base/byte_pool.hpp by the codec's names.
#pragma once

#include "base/byte_pool.hpp"

namespace gradsieve::codec {

using PayloadPool = BytePool;
using PayloadBytes = PooledBytes;

}  // namespace gradsieve::codec
