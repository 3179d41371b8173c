#include "shm/layout.hpp"
#include "shm/session_memory.hpp"

namespace gradsieve::shm {

struct ResultArea::Impl {
    Segment segment;
    ResultLayout layout;
};

ResultArea::ResultArea(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResultArea::ResultArea(ResultArea&&) noexcept = default;
ResultArea& ResultArea::operator=(ResultArea&&) noexcept = default;
ResultArea::~ResultArea() = default;

Result<ResultArea> ResultArea::make(const std::string& label, std::span<const ElementCount> tensor_elements) {
    GRADSIEVE_ASSIGN(auto layout, result_layout(tensor_elements));
    GRADSIEVE_ASSIGN(auto segment, Segment::make(label + "-result", layout.total_bytes, Sharing::kPeerReads));
    return ResultArea(std::make_unique<Impl>(Impl{std::move(segment), std::move(layout)}));
}

float* ResultArea::tensor(std::uint32_t index) noexcept {
    return reinterpret_cast<float*>(impl_->segment.bytes().data() + offset_bytes(index));
}

std::uint64_t ResultArea::offset_bytes(std::uint32_t index) const noexcept {
    GRADSIEVE_CHECK(index < impl_->layout.offsets.size());
    return impl_->layout.offsets[index];
}

int ResultArea::fd() const noexcept { return impl_->segment.fd(); }
ByteCount ResultArea::size_bytes() const noexcept { return impl_->segment.size_bytes(); }

}  // namespace gradsieve::shm
