#include "shm/cell.hpp"
#include "shm/control_header.hpp"
#include "shm/doorbell.hpp"
#include "shm/futex.hpp"
#include "shm/ring.hpp"
#include "shm/session_memory.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

namespace gradsieve::shm {
namespace {

constexpr std::size_t kDescriptorCount = 4;  // control, gradient, result, doorbell
/// About 20 us of looking before sleeping: what a futex wake-up costs. Only where a core is to spare for it.
constexpr unsigned kSpinRounds = 400;

unsigned spin_rounds() noexcept { return std::thread::hardware_concurrency() > 2 ? kSpinRounds : 0; }

void relax_cpu() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

Status check_results(std::span<const SlabPlace> slabs, const AttachReply& reply) {
    if (reply.result_offsets.size() != slabs.size()) {
        return {StatusCode::kCorrupt, "attach reply: " + std::to_string(reply.result_offsets.size()) +
                                          " result offsets; allowed is one for each of " +
                                          std::to_string(slabs.size()) + " tensors; report it"};
    }
    for (std::size_t index = 0; index < slabs.size(); ++index) {
        const auto offset = reply.result_offsets[index];
        const auto bytes = slabs[index].on_device ? 0 : slabs[index].elements * sizeof(float);
        const auto end = checked_add(offset, bytes);
        if (offset % kAlignmentBytes == 0 && end && *end <= reply.result_bytes) continue;
        return {StatusCode::kCorrupt, "attach reply: result of tensor " + std::to_string(index) + " at offset " +
                                          std::to_string(offset) + "; allowed is a multiple of 64 that ends within " +
                                          std::to_string(reply.result_bytes) + " bytes; report it"};
    }
    return {};
}

Status check_sizes(const AttachReply& reply, const ControlLayout& control, const GradientLayout& gradient) {
    if (reply.control_bytes == control.total_bytes && reply.gradient_bytes == gradient.total_bytes) return {};
    return {StatusCode::kCorrupt, "attach reply: segments of " + std::to_string(reply.control_bytes) + " and " +
                                      std::to_string(reply.gradient_bytes) + " bytes; allowed is " +
                                      std::to_string(control.total_bytes) + " and " +
                                      std::to_string(gradient.total_bytes) + ", as the tensors need; report it"};
}

}  // namespace

struct ClientSession::Impl {
    struct Segments {
        Segment control;
        Segment gradient;
        Segment result;
    };
    Impl(Segments memory, UniqueFd doorbell_event, const ControlLayout& control_places, GradientLayout gradient_places,
         std::vector<std::uint64_t> result_places)
        : segments(std::move(memory)),
          doorbell(std::move(doorbell_event)),
          control_layout(control_places),
          layout(std::move(gradient_places)),
          result_offsets(std::move(result_places)),
          submissions(segments.control.bytes(), submission_ring(control_places)),
          completions(segments.control.bytes(), completion_ring(control_places)) {}

    [[nodiscard]] const SlabPlace& slab(std::uint32_t tensor_index) const noexcept {
        GRADSIEVE_CHECK(tensor_index < layout.slabs.size());
        return layout.slabs[tensor_index];
    }
    [[nodiscard]] std::span<float> floats_at(std::uint64_t offset, ElementCount elements) noexcept {
        return {reinterpret_cast<float*>(segments.gradient.bytes().data() + offset), elements};
    }
    /// The ring made no sense: the job ends for this client with a completion of our own, once.
    void end_as_corrupt(Completion& ret_completion, std::string_view why) noexcept {
        is_broken.store(true, std::memory_order_relaxed);
        ret_completion = Completion{.kind = CompletionKind::kJobEnded, .code = StatusCode::kCorrupt};
        ret_completion.set_text(why);
    }

    Segments segments;
    UniqueFd doorbell;
    const ControlLayout control_layout;
    const GradientLayout layout;
    const std::vector<std::uint64_t> result_offsets;
    RingProducer submissions;
    RingConsumer completions;
    std::atomic<bool> is_broken{false};  ///< set by the popping thread, read by waiting ones
};

ClientSession::ClientSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ClientSession::ClientSession(ClientSession&&) noexcept = default;
ClientSession& ClientSession::operator=(ClientSession&&) noexcept = default;
ClientSession::~ClientSession() = default;

Result<ClientSession> ClientSession::adopt(std::span<const TensorEntry> tensors, const AttachReply& reply,
                                           std::vector<UniqueFd> descriptors) {
    if (reply.abi_version != kAbiVersion) return version_mismatch(reply.abi_version, kAbiVersion);
    if (!reply.status.is_ok()) return reply.status;
    if (descriptors.size() != kDescriptorCount) {
        return Status(StatusCode::kCorrupt, "attach reply: " + std::to_string(descriptors.size()) +
                                                " descriptors; allowed is 4 (control, gradient, result, doorbell); "
                                                "report it");
    }
    GRADSIEVE_ASSIGN(auto gradient_places, gradient_layout(tensors));
    const auto control_places = control_layout(tensors);
    GRADSIEVE_ASSIGN(auto control, Segment::adopt(std::move(descriptors[0]), reply.control_bytes, Access::kReadWrite,
                                                  /*fork_visible=*/false));
    // The header first: another version may mean other sizes, and then the versions are what to tell.
    GRADSIEVE_TRY(check_control_header(control.bytes(), control_places));
    GRADSIEVE_TRY(check_sizes(reply, control_places, gradient_places));
    GRADSIEVE_TRY(check_results(gradient_places.slabs, reply));
    GRADSIEVE_ASSIGN(auto gradient, Segment::adopt(std::move(descriptors[1]), reply.gradient_bytes, Access::kReadWrite,
                                                   /*fork_visible=*/false));
    GRADSIEVE_ASSIGN(auto result, Segment::adopt(std::move(descriptors[2]), reply.result_bytes, Access::kReadOnly,
                                                 /*fork_visible=*/false));
    return ClientSession(std::make_unique<Impl>(
        Impl::Segments{std::move(control), std::move(gradient), std::move(result)}, std::move(descriptors[3]),
        control_places, std::move(gradient_places), reply.result_offsets));
}

std::span<float> ClientSession::slice(std::uint32_t tensor_index, std::uint32_t sample_index) noexcept {
    const auto& slab = impl_->slab(tensor_index);
    GRADSIEVE_CHECK(sample_index < slab.samples_max);
    if (slab.on_device) return {};
    return impl_->floats_at(slab.slices + sample_index * slab.stride_bytes, slab.elements);
}

std::span<float> ClientSession::second_moment(std::uint32_t tensor_index) noexcept {
    const auto& slab = impl_->slab(tensor_index);
    if (!slab.has_second_moment || slab.on_device) return {};
    return impl_->floats_at(slab.slices + slab.samples_max * slab.stride_bytes, slab.elements);
}

void ClientSession::set_slice_samples(std::uint32_t tensor_index, std::span<const std::uint32_t> counts) noexcept {
    const auto& slab = impl_->slab(tensor_index);
    GRADSIEVE_CHECK(counts.size() <= slab.samples_max);
    auto* const table = impl_->segments.gradient.bytes().data() + slab.counts;
    if (!counts.empty()) std::memcpy(table, counts.data(), counts.size_bytes());
    std::memset(table + counts.size_bytes(), 0, (slab.samples_max - counts.size()) * sizeof(std::uint32_t));
}

std::span<const float> ClientSession::result(std::uint32_t tensor_index) const noexcept {
    const auto& slab = impl_->slab(tensor_index);
    if (slab.on_device) return {};
    const auto bytes = std::as_const(impl_->segments.result).bytes();
    return {reinterpret_cast<const float*>(bytes.data() + impl_->result_offsets[tensor_index]), slab.elements};
}

std::span<std::uint32_t> ClientSession::ready_words() noexcept {
    const auto& places = impl_->control_layout;
    return {word_address<std::uint32_t>(impl_->segments.control.bytes(), places.ready_words), places.ready_word_count};
}

Status ClientSession::push(const Submission& submission) {
    switch (impl_->submissions.try_push(build_submission_cell(submission))) {
        case RingAnswer::kDone: break;
        case RingAnswer::kWouldBlock:
            return {StatusCode::kBusy,
                    "submission ring: full; allowed is two open hand-ins for each tensor; wait for results, then call "
                    "again"};
        case RingAnswer::kCorrupt:
            return {StatusCode::kCorrupt,
                    "submission ring: the daemon's tail is not within one ring of what was pushed; allowed is at most "
                    "its capacity; end the job and report it"};
    }
    auto asleep = shared_word32(impl_->segments.control.bytes(), ControlWord::kDaemonAsleep);
    // The push stored its head before this load, sequentially consistent. Pairs with DaemonSession::announce_sleep:
    // either we see that it sleeps, or it sees our submission when it looks once more.
    if (asleep.load(std::memory_order_seq_cst) == 0) return {};
    // One ring is enough until it announces sleep again; the ring comes after the store, so none gets lost.
    asleep.store(0, std::memory_order_relaxed);
    ring_doorbell(impl_->doorbell.get());
    return {};
}

bool ClientSession::try_pop(Completion& ret_completion) {
    if (impl_->is_broken.load(std::memory_order_relaxed)) return false;
    CompletionCell cell;
    switch (impl_->completions.try_pop(cell)) {
        case RingAnswer::kWouldBlock: return false;
        case RingAnswer::kCorrupt:
            impl_->end_as_corrupt(ret_completion,
                                  "completion ring: the daemon's head is not within one ring of what was read; allowed "
                                  "is at most its capacity; report it");
            return true;
        case RingAnswer::kDone: break;
    }
    const auto parsed = parse_completion_cell(cell, impl_->layout.slabs.size());
    if (parsed.is_ok()) {
        ret_completion = *parsed;
    } else {
        impl_->end_as_corrupt(ret_completion, parsed.error().text());
    }
    return true;
}

std::uint32_t ClientSession::ticket() const noexcept {
    // Pairs with the store in DaemonSession::ring_client.
    return shared_word32(impl_->segments.control.bytes(), ControlWord::kClientBell).load(std::memory_order_seq_cst);
}

bool ClientSession::wait_for_completion(TimePoint deadline) {
    do {
        if (wait_for_completion(deadline, ticket())) return true;
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
}

bool ClientSession::wait_for_completion(TimePoint deadline, std::uint32_t ticket_seen) {
    const auto has_completion = [this] {
        return !impl_->is_broken.load(std::memory_order_relaxed) && impl_->completions.has_cell();
    };
    for (unsigned round = spin_rounds(); round > 0 && !has_completion(); --round) relax_cpu();
    const auto control = impl_->segments.control.bytes();
    auto waiters = shared_word32(control, ControlWord::kClientWaiters);
    auto* const bell = word_address<std::uint32_t>(control, ControlWord::kClientBell);
    while (!has_completion() && ticket() == ticket_seen && std::chrono::steady_clock::now() < deadline) {
        // Announce, then look once more: pairs with DaemonSession::ring_client, which rings, then looks for waiters.
        waiters.fetch_add(1, std::memory_order_seq_cst);
        if (!has_completion()) futex_wait(bell, ticket_seen, deadline);
        waiters.fetch_sub(1, std::memory_order_relaxed);
    }
    return has_completion();
}

}  // namespace gradsieve::shm
