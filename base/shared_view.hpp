// A read-only view of bytes together with whatever keeps them alive: a coded payload that several peers' send queues
// and the payload log hold at once. Immutable after construction; any thread may hold and drop it.
#pragma once

#include "base/bytes.hpp"

#include <memory>
#include <utility>

namespace gradsieve {

class SharedView {
public:
    SharedView() = default;
    SharedView(std::shared_ptr<const void> owner, ByteView bytes) : owner_(std::move(owner)), bytes_(bytes) {}
    /// Takes the bytes over.
    [[nodiscard]] static SharedView take(Bytes bytes) {
        auto owner = std::make_shared<const Bytes>(std::move(bytes));
        const ByteView view(*owner);
        return {std::move(owner), view};
    }
    /// A part of the same bytes with the same owner. `first + count` must lie inside.
    [[nodiscard]] SharedView part(std::size_t first, std::size_t count) const {
        return {owner_, bytes_.subspan(first, count)};
    }
    [[nodiscard]] ByteView bytes() const noexcept { return bytes_; }
    [[nodiscard]] const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

private:
    std::shared_ptr<const void> owner_;
    ByteView bytes_;
};

}  // namespace gradsieve
