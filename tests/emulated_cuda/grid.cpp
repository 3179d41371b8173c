// Running the blocks of a launch: some host threads take them in order, so that a block that waits for an earlier one
// waits for one that runs.
#include "block.hpp"
#include "emulated_card.hpp"
#include "emulated_launch.hpp"
#include "streams.hpp"

#include <atomic>
#include <latch>
#include <random>

namespace gradsieve::emulated {
namespace {

/// Blocks of one launch that run at a time.
constexpr unsigned kWorkers = 3;

std::uint64_t seed_of_process() {
    static const std::uint64_t seed = std::random_device{}();
    return seed;
}

/// Threads that outlive a launch: shared memory of every kernel is theirs.
class Workers {
public:
    static Workers& get() {
        static auto* const only = new Workers;  // never ends: streams may still run while the process leaves
        return *only;
    }
    void run(dim3 blocks, dim3 threads, const std::function<void()>& body) {
        std::atomic<unsigned> next{0};
        const std::uint64_t seed = seed_of_process() + launches_.fetch_add(1) * 0x9E3779B97F4A7C15ULL;
        std::latch done(kWorkers);
        for (auto& queue : queues_)
            queue.enqueue([&, seed] {
                thread_local StackPool stacks;
                thread_local Block block(stacks);
                for (unsigned number = next.fetch_add(1); number < blocks.x; number = next.fetch_add(1))
                    block.run({{}, {number, 0, 0}, threads, blocks}, seed + number, body);
                done.count_down();
            });
        done.wait();
    }

private:
    StreamQueue queues_[kWorkers]{StreamQueue(-1), StreamQueue(-1), StreamQueue(-1)};
    std::atomic<std::uint64_t> launches_{0};
};

}  // namespace

cudaError_t enqueue_kernel(dim3 blocks, dim3 threads, cudaStream_t stream, std::function<void()> body) {
    if (blocks.x == 0 || blocks.y != 1 || blocks.z != 1 || threads.y != 1 || threads.z != 1 || threads.x > 1024)
        return fail(cudaErrorInvalidValue);
    if (stream != nullptr && reinterpret_cast<StreamQueue*>(stream)->device() != current_device())
        return fail(cudaErrorInvalidResourceHandle);
    if (const auto error = count_launch(); error != cudaSuccess) return error;
    enqueue_on(reinterpret_cast<StreamQueue*>(stream),
               [blocks, threads, device = current_device(), body = std::move(body)] {
                   if (is_in_error()) return;
                   const KernelTurn turn(device);
                   Workers::get().run(blocks, threads, body);
               });
    return cudaSuccess;
}

}  // namespace gradsieve::emulated
