#include "client/copied_pages.hpp"

#include "shm/layout.hpp"

#include <algorithm>
#include <utility>

namespace gradsieve::client {
namespace {

using Pages = std::pair<std::uintptr_t, std::uintptr_t>;  ///< begin and end

/// In the order of addresses, joined where they touch: no page is in two.
std::vector<Pages> pages_of(std::span<const std::span<const std::byte>> spans) {
    std::vector<Pages> all;
    for (const auto span : spans) {
        const auto begin = reinterpret_cast<std::uintptr_t>(span.data());
        const auto end = begin + span.size() + shm::kPageBytes - 1;
        if (!span.empty()) all.emplace_back(begin - begin % shm::kPageBytes, end - end % shm::kPageBytes);
    }
    std::ranges::sort(all);
    std::vector<Pages> joined;
    for (const auto& [begin, end] : all) {
        if (!joined.empty() && begin <= joined.back().second)
            joined.back().second = std::max(joined.back().second, end);
        else
            joined.emplace_back(begin, end);
    }
    return joined;
}

}  // namespace

CopiedPages::CopiedPages(std::shared_ptr<const CudaDriver> driver, ContextRef context,
                         std::shared_ptr<const void> memory)
    : driver_(std::move(driver)), context_(context), memory_(std::move(memory)) {}

CopiedPages::~CopiedPages() {
    if (registered_.empty()) return;
    const ContextScope scope(*driver_, context_);
    if (!scope.status().is_ok()) return;  // they went with their context
    for (const auto* pages : registered_) driver_->unregister_host(pages);
}

void CopiedPages::add(std::vector<std::span<const std::byte>> spans, bool is_read_only) {
    const ContextScope scope(*driver_, context_);
    if (!scope.status().is_ok()) return;
    for (const auto& [begin, end] : pages_of(spans)) {
        const auto* const pages = reinterpret_cast<const std::byte*>(begin);  // NOLINT: whole pages of a mapping
        if (driver_->register_for_copies({pages, end - begin}, is_read_only).is_ok()) registered_.push_back(pages);
    }
}

}  // namespace gradsieve::client
