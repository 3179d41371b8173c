#include "shm/cell.hpp"
#include "shm/control_header.hpp"
#include "shm/futex.hpp"
#include "shm/ring.hpp"
#include "shm/session_memory.hpp"

#include <cstring>

namespace gradsieve::shm {

Result<ByteCount> session_bytes_bound(std::span<const TensorEntry> tensors) {
    GRADSIEVE_ASSIGN(const auto gradient, gradient_layout(tensors));
    return gradient.total_bytes + control_layout(tensors).total_bytes;  // both far below 2^63
}

struct DaemonSession::Impl {
    Impl(Segment control_segment, Segment gradient_segment, const ControlLayout& control_places,
         GradientLayout gradient_places)
        : control(std::move(control_segment)),
          gradient(std::move(gradient_segment)),
          ready_words(control_places.ready_words),
          layout(std::move(gradient_places)),
          submissions(control.bytes(), submission_ring(control_places)),
          completions(control.bytes(), completion_ring(control_places)) {}

    [[nodiscard]] const SlabPlace& slab(std::uint32_t tensor_index) const noexcept {
        GRADSIEVE_CHECK(tensor_index < layout.slabs.size());
        return layout.slabs[tensor_index];
    }
    [[nodiscard]] const float* floats_at(std::uint64_t offset) const noexcept {
        return reinterpret_cast<const float*>(std::as_const(gradient).bytes().data() + offset);
    }

    Segment control;
    Segment gradient;
    const std::uint64_t ready_words;  ///< offset
    const GradientLayout layout;
    RingConsumer submissions;
    RingProducer completions;
    Status broken;           ///< why the session is to be ended; stays once set
    std::uint32_t bell = 0;  ///< rings so far; ours, the client only sees a copy
};

DaemonSession::DaemonSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DaemonSession::DaemonSession(DaemonSession&&) noexcept = default;
DaemonSession& DaemonSession::operator=(DaemonSession&&) noexcept = default;
DaemonSession::~DaemonSession() = default;

Result<DaemonSession> DaemonSession::make(const std::string& label, std::span<const TensorEntry> tensors) {
    GRADSIEVE_ASSIGN(auto gradient_places, gradient_layout(tensors));
    const auto control_places = control_layout(tensors);
    GRADSIEVE_ASSIGN(auto control, Segment::make(label + "-control", control_places.total_bytes, Sharing::kPeerWrites));
    GRADSIEVE_ASSIGN(auto gradient,
                     Segment::make(label + "-gradient", gradient_places.total_bytes, Sharing::kPeerWrites));
    write_control_header(control.bytes(), control_places);
    return DaemonSession(
        std::make_unique<Impl>(std::move(control), std::move(gradient), control_places, std::move(gradient_places)));
}

int DaemonSession::control_fd() const noexcept { return impl_->control.fd(); }
int DaemonSession::gradient_fd() const noexcept { return impl_->gradient.fd(); }
ByteCount DaemonSession::control_bytes() const noexcept { return impl_->control.size_bytes(); }
ByteCount DaemonSession::gradient_bytes() const noexcept { return impl_->gradient.size_bytes(); }

Result<bool> DaemonSession::try_pop(Submission& ret_submission) {
    if (!impl_->broken.is_ok()) return impl_->broken;
    SubmissionCell cell;
    const auto answer = impl_->submissions.try_pop(cell);
    if (answer == RingAnswer::kWouldBlock) return false;
    if (answer == RingAnswer::kCorrupt) {
        impl_->broken = Status(StatusCode::kCorrupt,
                               "submission ring: the client's head is not within one ring of what was read; allowed is "
                               "at most its capacity; end this session");
        return impl_->broken;
    }
    auto parsed = parse_submission_cell(cell, impl_->layout.slabs);
    if (!parsed.is_ok()) {
        impl_->broken = parsed.error();
        return impl_->broken;
    }
    ret_submission = *parsed;
    return true;
}

Status DaemonSession::push(const Completion& completion) {
    if (!impl_->broken.is_ok()) return impl_->broken;
    switch (impl_->completions.try_push(build_completion_cell(completion))) {
        case RingAnswer::kDone: return {};
        case RingAnswer::kWouldBlock:
            return {StatusCode::kResourceExhausted,
                    "completion ring: full; allowed is what the client has room for, twice its open steps; the client "
                    "does not read its completions: end this session"};
        case RingAnswer::kCorrupt: break;
    }
    impl_->broken =
        Status(StatusCode::kCorrupt,
               "completion ring: the client's tail is not within one ring of what was pushed; allowed is at "
               "most its capacity; end this session");
    return impl_->broken;
}

void DaemonSession::ring_client() noexcept {
    const auto control = impl_->control.bytes();
    // A waiter that announces itself after the load below read 0 sees the new bell (or the completion) and does not
    // sleep: both sides store first and load second, sequentially consistent. Pairs with ClientSession's wait.
    shared_word32(control, ControlWord::kClientBell).store(++impl_->bell, std::memory_order_seq_cst);
    if (shared_word32(control, ControlWord::kClientWaiters).load(std::memory_order_seq_cst) == 0) return;
    futex_wake_all(word_address<std::uint32_t>(control, ControlWord::kClientBell));
}

void DaemonSession::announce_sleep(bool is_asleep) noexcept {
    // Sequentially consistent: the look at the ring that follows must not pass it. Pairs with ClientSession::push.
    shared_word32(impl_->control.bytes(), ControlWord::kDaemonAsleep)
        .store(is_asleep ? 1 : 0, std::memory_order_seq_cst);
}

bool DaemonSession::has_submission() const noexcept { return impl_->submissions.has_cell(); }

std::uint32_t DaemonSession::ready_word(std::uint32_t tensor_index) const noexcept {
    GRADSIEVE_CHECK(tensor_index < impl_->layout.slabs.size());
    const auto offset = impl_->ready_words + std::uint64_t{tensor_index} * sizeof(std::uint32_t);
    // Pairs with the fence of the GPU's write behind the gradient: whoever sees the step sees the gradient.
    return shared_word32(impl_->control.bytes(), offset).load(std::memory_order_acquire);
}

const float* DaemonSession::slice(std::uint32_t tensor_index, std::uint32_t sample_index) const noexcept {
    const auto& slab = impl_->slab(tensor_index);
    GRADSIEVE_CHECK(sample_index < slab.samples_max);
    if (slab.on_device) return nullptr;
    return impl_->floats_at(slab.slices + sample_index * slab.stride_bytes);
}

const float* DaemonSession::second_moment(std::uint32_t tensor_index) const noexcept {
    const auto& slab = impl_->slab(tensor_index);
    if (!slab.has_second_moment || slab.on_device) return nullptr;
    return impl_->floats_at(slab.slices + slab.samples_max * slab.stride_bytes);
}

void DaemonSession::slice_samples(std::uint32_t tensor_index, std::span<std::uint32_t> ret_counts) const noexcept {
    const auto& slab = impl_->slab(tensor_index);
    GRADSIEVE_CHECK(ret_counts.size() <= slab.samples_max);
    if (ret_counts.empty()) return;
    std::memcpy(ret_counts.data(), std::as_const(impl_->gradient).bytes().data() + slab.counts,
                ret_counts.size_bytes());
}

}  // namespace gradsieve::shm
