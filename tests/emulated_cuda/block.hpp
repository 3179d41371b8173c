// One block of a kernel on one host thread: a fiber for each of its threads, run in turn until it has to wait for
// others. Which warp goes first differs from block to block, so that a missing barrier shows. Ends the process, with
// what every lane waits for, where a real card would hang. One host thread at a time.
#pragma once

#include "emulated_kernel.hpp"

#include <boost/context/fiber.hpp>

#include <array>
#include <functional>
#include <memory>
#include <vector>

namespace gradsieve::emulated {

/// Stacks of fibers, kept from block to block.
class StackPool {
public:
    static constexpr std::size_t kBytes = std::size_t{256} << 10U;
    StackPool() = default;
    ~StackPool();
    StackPool(const StackPool&) = delete;
    StackPool& operator=(const StackPool&) = delete;
    [[nodiscard]] boost::context::stack_context take();
    void give_back(boost::context::stack_context stack) { free_.push_back(stack); }

private:
    std::vector<boost::context::stack_context> free_;
};

class Block {
public:
    explicit Block(StackPool& stacks) : stacks_(stacks) {}
    /// Runs a whole block; `seed` orders its warps.
    void run(const Place& first, std::uint64_t seed, const std::function<void()>& body);

    // Called by the running fiber.
    const std::uint64_t* meet_warp(unsigned mask, std::uint64_t value, Meeting meeting);
    unsigned meet_block(bool value);
    void pause();

private:
    enum class Wait : std::uint8_t { kNothing, kWarp, kBlock, kPause, kEnded };
    struct Lane {
        Place place;
        Wait wait = Wait::kNothing;
        boost::context::fiber fiber;
        boost::context::fiber back;  ///< to the scheduler, while the lane runs
    };
    struct Warp {
        unsigned arrived = 0;
        unsigned mask = 0;
        Meeting meeting{};
        std::uint64_t generation = 0;
        std::array<std::array<std::uint64_t, 32>, 2> values{};
    };

    void start(const Place& first, const std::function<void()>& body);
    bool run_warp(std::size_t warp);
    void resume(Lane& lane);
    void leave(Wait wait);
    bool open_barrier();
    [[noreturn]] void die(const char* why) const;

    StackPool& stacks_;
    std::vector<Lane> lanes_;
    std::vector<Warp> warps_;
    std::size_t running_ = 0, ended_ = 0;
    unsigned votes_ = 0, result_ = 0;
};

}  // namespace gradsieve::emulated
