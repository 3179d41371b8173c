#include "codec/cuda/mirror_pool.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace gradsieve::codec::cuda {
namespace {

constexpr std::align_val_t kPage{4096};
/// Sizes are rounded up to this, so that a step's payloads seldom need another block than the last one's.
constexpr ByteCount kGranularityBytes = ByteCount{1} << 20U;

Status lock_pages(std::byte* data, ByteCount bytes) {
    GRADSIEVE_CUDA_TRY(cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
                       "locking host memory for payloads");
    void* on_device = nullptr;
    auto status = status_of(cudaHostGetDevicePointer(&on_device, data, 0), "asking where a GPU finds host memory");
    if (status.is_ok() && on_device != data)
        status = {StatusCode::kUnimplemented,
                  "payloads in host memory: this GPU finds it at other addresses than the host: allowed are GPUs that "
                  "share the host's addresses; keep the gradients in host memory"};
    if (!status.is_ok()) static_cast<void>(cudaHostUnregister(data));
    return status;
}

}  // namespace

HostMirror::HostMirror(ByteCount size)
    : data_(static_cast<std::byte*>(::operator new[](size, kPage, std::nothrow))), size_(size) {}

HostMirror::~HostMirror() { ::operator delete[](data_, kPage); }

/// Shared by the pool and by whoever still holds a block.
struct MirrorPool::State {
    mutable std::mutex mutex;
    // guarded by mutex
    bool is_open = true;              ///< the pool lives
    std::vector<HostMirror*> blocks;  ///< all that are locked
    std::vector<std::unique_ptr<HostMirror>> idle;

    /// One that is large enough; if there is none, those that are too small are left in `ret_small`.
    std::unique_ptr<HostMirror> take_idle(ByteCount bytes, std::vector<std::unique_ptr<HostMirror>>& ret_small) {
        const std::lock_guard lock(mutex);
        const auto found = std::ranges::find_if(idle, [bytes](const auto& block) { return block->size() >= bytes; });
        if (found == idle.end()) {
            ret_small.swap(idle);
            return nullptr;
        }
        auto block = std::move(*found);
        idle.erase(found);
        return block;
    }
    /// Of an idle block. Not under the lock: unlocking may wait for the GPU.
    void forget(std::unique_ptr<HostMirror> block) {
        static_cast<void>(cudaHostUnregister(block->data()));
        const std::lock_guard lock(mutex);
        std::erase(blocks, block.get());
    }
    void give_back(std::unique_ptr<HostMirror> block) {
        const std::lock_guard lock(mutex);
        if (is_open) idle.push_back(std::move(block));  // else it goes here: its pages are not locked any more
    }
};

MirrorPool::MirrorPool() : state_(std::make_shared<State>()) {}

MirrorPool::~MirrorPool() {
    const std::lock_guard lock(state_->mutex);
    state_->is_open = false;
    for (const HostMirror* block : state_->blocks) static_cast<void>(cudaHostUnregister(block->data()));
    state_->blocks.clear();
    state_->idle.clear();
}

Result<std::shared_ptr<HostMirror>> MirrorPool::take(ByteCount bytes) {
    std::vector<std::unique_ptr<HostMirror>> small;
    auto block = state_->take_idle(bytes, small);
    for (auto& one : small) state_->forget(std::move(one));
    if (block == nullptr) {
        const ByteCount size = rounded_up(std::max<ByteCount>(bytes, 1), kGranularityBytes);
        block.reset(new HostMirror(size));
        if (block->data() == nullptr)
            return Status(StatusCode::kResourceExhausted,
                          "payloads on their way from the GPU: no memory for " + std::to_string(size) +
                              " bytes: allowed is what the process may take; raise its memory limit");
        GRADSIEVE_TRY(lock_pages(block->data(), size));
        const std::lock_guard lock(state_->mutex);
        state_->blocks.push_back(block.get());
    }
    // Not under the lock, which giving back takes.
    return std::shared_ptr<HostMirror>(
        block.release(), [state = state_](HostMirror* given) { state->give_back(std::unique_ptr<HostMirror>(given)); });
}

bool MirrorPool::holds(const std::byte* data, ByteCount bytes) const {
    const std::lock_guard lock(state_->mutex);
    return std::ranges::any_of(state_->blocks, [&](const HostMirror* block) {
        return data >= block->data() && data + bytes <= block->data() + block->size();
    });
}

ByteCount MirrorPool::bytes() const {
    const std::lock_guard lock(state_->mutex);
    ByteCount sum = 0;
    for (const HostMirror* block : state_->blocks) sum += block->size();
    return sum;
}

}  // namespace gradsieve::codec::cuda
