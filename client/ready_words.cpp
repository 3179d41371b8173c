#include "client/ready_words.hpp"

#include "shm/layout.hpp"
#include "shm/shared_word.hpp"

#include <atomic>
#include <utility>

namespace gradsieve::client {
namespace {

/// The whole pages that `words` lie in: the segment consists of such.
std::span<std::byte> pages_of(std::span<std::uint32_t> words) {
    auto* const bytes = reinterpret_cast<std::byte*>(words.data());
    const auto before = reinterpret_cast<std::uintptr_t>(bytes) % shm::kPageBytes;
    const auto used = before + words.size_bytes();
    return {bytes - before, (used + shm::kPageBytes - 1) / shm::kPageBytes * shm::kPageBytes};
}

}  // namespace

ReadyWords::ReadyWords(std::shared_ptr<const CudaDriver> driver, std::span<std::uint32_t> words,
                       std::shared_ptr<const void> memory)
    : driver_(std::move(driver)),
      words_(words),
      memory_(std::make_unique<Kept>(std::move(memory))),
      enqueued_(words.size()) {}

ReadyWords::~ReadyWords() {
    if (context_ == nullptr) return;
    if (is_write_pending()) {
        keep(std::move(memory_));
        return;
    }
    const ContextScope scope(*driver_, context_);
    if (scope.status().is_ok()) driver_->unregister_host(pages_of(words_).data());  // else it went with its context
}

void ReadyWords::keep(std::unique_ptr<Kept> kept) noexcept {
    static std::atomic<Kept*> first{nullptr};  // reachable: no leak checker takes it for a mistake
    auto* const link = kept.release();
    link->next = first.load();
    while (!first.compare_exchange_weak(link->next, link)) continue;
}

bool ReadyWords::is_write_pending() const noexcept {
    for (std::size_t index = 0; index < words_.size(); ++index)
        if (shm::SharedWord32(words_[index]).load(std::memory_order_acquire) != enqueued_[index]) return true;
    return false;
}

Result<DeviceAddress> ReadyWords::address_of(ContextRef context, std::uint32_t tensor_index) {
    const auto pages = pages_of(words_);
    if (context_ == nullptr) {
        GRADSIEVE_TRY(driver_->register_host(pages));
        context_ = context;
    }
    // Asked for where the pages begin, which is what was registered: the driver promises no more.
    GRADSIEVE_ASSIGN(const auto base, driver_->device_address_of(pages.data()));
    const auto* const word = reinterpret_cast<const std::byte*>(&words_[tensor_index]);
    return base + static_cast<DeviceAddress>(word - pages.data());
}

Status ReadyWords::write(StreamRef stream, DeviceAddress address, std::uint32_t tensor_index, Step step) {
    const auto value = static_cast<std::uint32_t>(step);  // the low 32 bits: a tensor's steps differ by one
    GRADSIEVE_TRY(driver_->write_word(stream, address, value));
    enqueued_[tensor_index] = value;
    return {};
}

}  // namespace gradsieve::client
