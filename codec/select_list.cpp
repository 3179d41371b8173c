#include "codec/select_list.hpp"

namespace gradsieve::codec {

void SelectionList::clear() noexcept {
    chunks_.clear();
    count_ = 0;
}

void SelectionList::begin_chunk(std::uint32_t chunk_index) { chunks_.push_back({chunk_index, count_}); }

void SelectionList::append(const SpanCells& cells, std::size_t count, bool with_variances) {
    indices_.ensure(count_ + count, count_);
    values_.ensure(count_ + count, count_);
    std::copy_n(cells.indices.data(), count, indices_.data() + count_);
    std::copy_n(cells.values.data(), count, values_.data() + count_);
    has_variances_ = with_variances;
    if (with_variances) {
        variances_.ensure(count_ + count, count_);
        std::copy_n(cells.variances.data(), count, variances_.data() + count_);
    }
    count_ += count;
}

}  // namespace gradsieve::codec
