// Host work of the GPU's checks that one core would be slow at: loops over many cases or elements on all cores, and
// numbers that depend on a seed and a place alone. Header only.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

namespace gradsieve::gpu_check {

/// Calls body(0) .. body(count - 1), each once, on as many threads as the host has cores.
template <typename Body>
void on_all_cores(std::size_t count, const Body& body) {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        // Relaxed: the numbers only have to differ; joining the threads orders what they wrote.
        for (std::size_t at = next.fetch_add(1, std::memory_order_relaxed); at < count;
             at = next.fetch_add(1, std::memory_order_relaxed))
            body(at);
    };
    std::vector<std::thread> threads;
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    for (std::size_t thread = 1; thread < std::min(cores, count); ++thread) threads.emplace_back(work);
    work();
    for (auto& thread : threads) thread.join();
}

/// Calls body(begin, end) for consecutive ranges of [0, count) on all cores.
template <typename Body>
void on_ranges(std::size_t count, const Body& body) {
    constexpr std::size_t kRange = std::size_t{1} << 18U;
    on_all_cores((count + kRange - 1) / kRange,
                 [&](std::size_t range) { body(range * kRange, std::min(count, (range + 1) * kRange)); });
}

/// splitmix64 of a seed and a place.
[[nodiscard]] inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t place) {
    std::uint64_t x = seed + 0x9E3779B97F4A7C15ULL * (place + 1);
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31U);
}

/// About normal (the sum of eight uniform numbers), mean 0, deviation `scale`.
inline void fill_normal(std::span<float> values, std::uint64_t seed, float scale) {
    // Eight numbers of 8 bits have a variance of 8 * 256^2 / 12.
    const float unit = scale / std::sqrt(8.0F * 65536.0F / 12.0F);
    on_ranges(values.size(), [&](std::size_t begin, std::size_t end) {
        for (std::size_t place = begin; place < end; ++place) {
            std::uint64_t bits = random_bits(seed, place);
            const auto fine = static_cast<float>(bits >> 40U) * 0x1p-24F;  // so that few values are equal
            std::uint32_t sum = 0;
            for (unsigned part = 0; part < 8; ++part, bits >>= 8U) sum += bits & 0xFFU;
            values[place] = (static_cast<float>(sum) - 1020.5F + fine) * unit;
        }
    });
}

[[nodiscard]] inline bool are_equal(std::span<const float> left, std::span<const float> right) {
    std::atomic<bool> is_equal{left.size() == right.size()};
    if (!is_equal) return false;
    on_ranges(left.size(), [&](std::size_t begin, std::size_t end) {
        if (std::memcmp(left.data() + begin, right.data() + begin, (end - begin) * sizeof(float)) != 0)
            is_equal.store(false, std::memory_order_relaxed);  // read after the threads are joined
    });
    return is_equal;
}

}  // namespace gradsieve::gpu_check
