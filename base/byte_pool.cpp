#include "base/byte_pool.hpp"

#include <array>
#include <bit>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace gradsieve {
namespace {

constexpr std::size_t kAlignment = 64;
/// Four sizes to an octave, from 2^kLeastLog2 bytes on: a step's payload is seldom exactly as long as the last one's.
constexpr unsigned kSizesPerOctave = 4;
constexpr unsigned kLeastLog2 = 8;
/// The largest class is far above any chunk's payload.
constexpr unsigned kClassCount = (40 - kLeastLog2) * kSizesPerOctave;
/// A payload may take a block this many classes too large, less than twice its size.
constexpr unsigned kClassesAbove = kSizesPerOctave - 1;
/// After so many payloads, what lay idle all the time is freed.
constexpr unsigned kTrimPeriod = 512;

unsigned class_of(std::size_t bytes) noexcept {
    const std::size_t least = (std::size_t{1} << kLeastLog2) + 1;
    const std::size_t wanted = std::max(bytes, least);
    const auto log2 = static_cast<unsigned>(std::bit_width(wanted - 1)) - 1;  // 2^log2 < wanted <= 2^(log2 + 1)
    const std::size_t step = (std::size_t{1} << log2) / kSizesPerOctave;
    const std::size_t steps = (wanted - (std::size_t{1} << log2) + step - 1) / step;
    return (log2 - kLeastLog2) * kSizesPerOctave + static_cast<unsigned>(steps) - 1;
}

std::size_t class_bytes(unsigned size_class) noexcept {
    const std::size_t octave = std::size_t{1} << (size_class / kSizesPerOctave + kLeastLog2);
    return octave + octave / kSizesPerOctave * (size_class % kSizesPerOctave + 1);
}

void free_block(std::byte* block) noexcept { ::operator delete[](block, std::align_val_t{kAlignment}); }

}  // namespace

struct BytePool::State {
    struct SizeClass {
        std::vector<std::byte*> idle;
        std::size_t blocks = 0;      ///< idle or in use
        std::size_t least_idle = 0;  ///< since the last trim
    };
    std::mutex mutex;
    // guarded by mutex
    std::array<SizeClass, kClassCount> classes;
    unsigned takes = 0;

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
        for (const SizeClass& size_class : classes) std::ranges::for_each(size_class.idle, free_block);
    }

    std::byte* take(unsigned& inout_class);
    void trim() noexcept;
};

/// An idle block of the class or one a little above it; a fresh one of the class if there is none.
std::byte* BytePool::State::take(unsigned& inout_class) {
    {
        const std::lock_guard lock(mutex);
        if (++takes % kTrimPeriod == 0) trim();
        for (unsigned found = inout_class; found <= inout_class + kClassesAbove && found < kClassCount; ++found) {
            SizeClass& size_class = classes[found];
            if (size_class.idle.empty()) continue;
            std::byte* block = size_class.idle.back();
            size_class.idle.pop_back();
            size_class.least_idle = std::min(size_class.least_idle, size_class.idle.size());
            inout_class = found;
            return block;
        }
        // So that giving back allocates nothing: room for all blocks of the class that exist.
        SizeClass& size_class = classes[inout_class];
        size_class.idle.reserve(++size_class.blocks);
    }
    return static_cast<std::byte*>(::operator new[](class_bytes(inout_class), std::align_val_t{kAlignment}));
}

void BytePool::State::trim() noexcept {
    for (SizeClass& size_class : classes) {
        for (; size_class.least_idle > 0; --size_class.least_idle) {
            free_block(size_class.idle.back());
            size_class.idle.pop_back();
            --size_class.blocks;
        }
        size_class.least_idle = size_class.idle.size();
    }
}

BytePool::BytePool() : state_(std::make_shared<State>()) {}

PooledBytes BytePool::take(std::size_t size_bytes, std::size_t aligned_at) const {
    PooledBytes payload;
    const std::size_t lead = (kAlignment - aligned_at % kAlignment) % kAlignment;
    payload.size_class_ = class_of(lead + size_bytes + kSlackBytes);
    payload.block_ = state_->take(payload.size_class_);
    payload.owner_ = state_;
    payload.data_ = payload.block_ + lead;
    payload.size_ = size_bytes;
    return payload;
}

std::size_t BytePool::idle_bytes() const {
    const std::lock_guard lock(state_->mutex);
    std::size_t sum = 0;
    for (unsigned size_class = 0; size_class < kClassCount; ++size_class)
        sum += state_->classes[size_class].idle.size() * class_bytes(size_class);
    return sum;
}

PooledBytes::PooledBytes(PooledBytes&& other) noexcept
    : owner_(std::move(other.owner_)),
      block_(std::exchange(other.block_, nullptr)),
      size_class_(other.size_class_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

PooledBytes& PooledBytes::operator=(PooledBytes&& other) noexcept {
    if (this == &other) return *this;
    give_back();
    owner_ = std::move(other.owner_);
    block_ = std::exchange(other.block_, nullptr);
    size_class_ = other.size_class_;
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
}

PooledBytes PooledBytes::part_of(std::shared_ptr<void> block, std::byte* data, std::size_t size_bytes) {
    PooledBytes part;
    part.owner_ = std::move(block);
    part.data_ = data;
    part.size_ = size_bytes;
    return part;
}

PooledBytes::~PooledBytes() { give_back(); }

void PooledBytes::give_back() noexcept {
    if (block_ != nullptr) {
        auto& pool = *static_cast<BytePool::State*>(owner_.get());
        const std::lock_guard lock(pool.mutex);
        pool.classes[size_class_].idle.push_back(block_);  // has room, see take
    }
    block_ = nullptr;
    owner_.reset();  // outside of the lock: this may end the pool
}

SharedView share(PooledBytes bytes) {
    const ByteView view = bytes.view();
    if (bytes.block_ == nullptr) return {std::move(bytes.owner_), view};
    return {std::make_shared<const PooledBytes>(std::move(bytes)), view};
}

}  // namespace gradsieve
