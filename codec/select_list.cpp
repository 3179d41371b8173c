#include "codec/select_list.hpp"

namespace gradsieve::codec {

void SelectionList::clear() noexcept {
    chunks_.clear();
    count_ = 0;
}

void SelectionList::begin_chunk(std::uint32_t chunk_index) { chunks_.push_back({chunk_index, count_}); }

void SelectionList::reserve_more(std::size_t count, bool with_variances) {
    indices_.ensure(count_ + count, count_);
    values_.ensure(count_ + count, count_);
    if (with_variances) variances_.ensure(count_ + count, count_);
}

}  // namespace gradsieve::codec
