// Told what the payloads of a round do, for whoever draws where a step's time goes. Told from within the machine's own
// calls, so on its one thread; it must not call the machine.
#pragma once

#include "base/id.hpp"

#include <cstdint>

namespace gradsieve::exchange {

class RoundWatcher {
public:
    virtual ~RoundWatcher() = default;
    /// A record of a member's payload was taken in. `is_first`: none of this tensor's came before; `is_last`: none is
    /// missing any more, of both phases where a tensor has two.
    virtual void on_record_in(std::uint32_t tensor, Step step, PeerIndex origin, bool is_first, bool is_last) = 0;
    /// Records of our own payload travel in the frame that SendFrame::number names.
    virtual void on_record_out(std::uint32_t tensor, Step step, PeerIndex to, std::uint64_t frame) = 0;
};

}  // namespace gradsieve::exchange
