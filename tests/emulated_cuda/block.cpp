#include "block.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <numeric>
#include <random>
#include <thread>

namespace gradsieve::emulated {
namespace {

thread_local const Place* running_place = nullptr;
thread_local Block* running_block = nullptr;

/// How long all lanes of a block may wait for other blocks.
constexpr auto kLongestWait = std::chrono::seconds{60};

struct PooledStack {
    StackPool* pool;
    [[nodiscard]] boost::context::stack_context allocate() const { return pool->take(); }
    void deallocate(boost::context::stack_context& stack) const { pool->give_back(stack); }
};

}  // namespace

// Not inlined: a fiber may look at it again after others ran.
const Place& current_place() noexcept { return *running_place; }
const std::uint64_t* meet_warp(unsigned mask, std::uint64_t value, Meeting meeting) {
    return running_block->meet_warp(mask, value, meeting);
}
unsigned meet_block(bool value) { return running_block->meet_block(value); }
void pause_fiber() { running_block->pause(); }

StackPool::~StackPool() {
    for (auto& stack : free_) ::munmap(static_cast<std::byte*>(stack.sp) - kBytes, kBytes);
}

boost::context::stack_context StackPool::take() {
    if (free_.empty()) {
        void* pages =
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) throw std::bad_alloc();
        boost::context::stack_context stack;
        stack.size = kBytes;
        stack.sp = static_cast<std::byte*>(pages) + kBytes;
        return stack;
    }
    const auto stack = free_.back();
    free_.pop_back();
    return stack;
}

void Block::start(const Place& first, const std::function<void()>& body) {
    const std::size_t threads = std::size_t{first.block_size.x} * first.block_size.y * first.block_size.z;
    if (threads == 0 || threads > 1024 || threads % 32 != 0) die("a block needs 32, 64 ... 1,024 threads here");
    lanes_.clear();
    lanes_.resize(threads);
    warps_.assign(threads / 32, {});
    ended_ = 0;
    votes_ = 0;
    for (std::size_t number = 0; number < threads; ++number) {
        Lane& lane = lanes_[number];
        lane.place = first;
        lane.place.thread = {static_cast<unsigned>(number), 0, 0};
        lane.fiber = boost::context::fiber(std::allocator_arg, PooledStack{&stacks_},
                                           [this, number, &body](boost::context::fiber&& back) {
                                               lanes_[number].back = std::move(back);
                                               body();
                                               lanes_[number].wait = Wait::kEnded;
                                               ++ended_;
                                               return std::move(lanes_[number].back);
                                           });
    }
}

void Block::run(const Place& first, std::uint64_t seed, const std::function<void()>& body) {
    start(first, body);
    running_block = this;
    std::mt19937_64 random(seed);
    std::vector<std::size_t> order(warps_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    auto moved_at = std::chrono::steady_clock::now();
    while (ended_ < lanes_.size()) {
        std::shuffle(order.begin(), order.end(), random);
        bool has_moved = false;
        for (const auto warp : order) has_moved = run_warp(warp) || has_moved;
        if (open_barrier() || has_moved) {
            moved_at = std::chrono::steady_clock::now();
            continue;
        }
        bool is_pausing = false;
        for (auto& lane : lanes_) {
            if (lane.wait != Wait::kPause) continue;
            lane.wait = Wait::kNothing;
            is_pausing = true;
        }
        if (!is_pausing) die("no lane of the block can go on");
        if (std::chrono::steady_clock::now() - moved_at > kLongestWait) die("the block waits for another one in vain");
        std::this_thread::yield();
    }
    running_block = nullptr;
}

/// Runs the warp until none of its lanes can go on. Whether one ended or came to a new meeting.
bool Block::run_warp(std::size_t warp) {
    bool has_moved = false;
    for (bool is_moving = true; is_moving;) {
        is_moving = false;
        for (std::size_t number = warp * 32; number < warp * 32 + 32; ++number) {
            Lane& lane = lanes_[number];
            if (lane.wait != Wait::kNothing) continue;
            running_ = number;
            resume(lane);
            is_moving = true;
            if (lane.wait != Wait::kPause) has_moved = true;
        }
    }
    return has_moved;
}

void Block::resume(Lane& lane) {
    running_place = &lane.place;
    lane.fiber = std::move(lane.fiber).resume();
    running_place = nullptr;
}

void Block::leave(Wait wait) {
    Lane& lane = lanes_[running_];
    lane.wait = wait;
    lane.back = std::move(lane.back).resume();
}

const std::uint64_t* Block::meet_warp(unsigned mask, std::uint64_t value, Meeting meeting) {
    const std::size_t number = running_;
    Warp& warp = warps_[number / 32];
    const unsigned bit = 1U << (number % 32);
    if ((mask & bit) == 0) die("a lane that its mask leaves out");
    if (warp.arrived == 0) {
        warp.mask = mask;
        warp.meeting = meeting;
    } else if (warp.mask != mask || warp.meeting != meeting) {
        die("lanes of one warp have come to different meetings");
    }
    auto& values = warp.values[warp.generation % 2];
    values[number % 32] = value;
    warp.arrived |= bit;
    if (warp.arrived != mask) {
        leave(Wait::kWarp);
        return values.data();
    }
    warp.arrived = 0;
    ++warp.generation;
    for (std::size_t other = number / 32 * 32; other < number / 32 * 32 + 32; ++other)
        if (lanes_[other].wait == Wait::kWarp) lanes_[other].wait = Wait::kNothing;
    return values.data();
}

unsigned Block::meet_block(bool value) {
    votes_ += value ? 1U : 0U;
    leave(Wait::kBlock);
    return result_;
}

void Block::pause() { leave(Wait::kPause); }

/// Lets everybody go on if all that have not ended wait at the barrier.
bool Block::open_barrier() {
    std::size_t waiting = 0;
    for (const auto& lane : lanes_) waiting += lane.wait == Wait::kBlock ? 1 : 0;
    if (waiting == 0 || waiting + ended_ != lanes_.size()) return false;
    result_ = votes_;
    votes_ = 0;
    for (auto& lane : lanes_)
        if (lane.wait == Wait::kBlock) lane.wait = Wait::kNothing;
    return true;
}

void Block::die(const char* why) const {
    std::fprintf(stderr, "emulated card: %s\n", why);
    constexpr const char* kNames[] = {"can run", "waits for its warp", "waits at a barrier of the block", "pauses",
                                      "has ended"};
    for (const auto& lane : lanes_)
        std::fprintf(stderr, "  block %u thread %u %s\n", lane.place.block.x, lane.place.thread.x,
                     kNames[static_cast<std::size_t>(lane.wait)]);
    std::abort();
}

}  // namespace gradsieve::emulated
