// A CUDA driver that drives nothing: the library that tests load in place of libcuda.so.1. It knows the allocations and
// contexts that a test describes, writes down every call in one log that tests add their own marks to, and fails on
// request. Copies between memory that is there happen when their stream is waited for, and not before. Thread-safe; one
// per process, and reset by each test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradsieve::client::test {

class FakeCuda {
public:
    enum class Kind : std::uint8_t {
        kLegacy,      ///< cudaMalloc
        kMapped,      ///< cuMemMap of a physical allocation that can be exported
        kUnexported,  ///< cuMemMap of one that cannot
        kPool,        ///< cudaMallocAsync: shared by no kind of handle
        kHost,        ///< cudaMallocHost
        kManaged,
    };
    struct Allocation {
        std::uint64_t base = 0;
        std::uint64_t bytes = 0;
        Kind kind = Kind::kLegacy;
        int device = 0;
    };

    [[nodiscard]] static FakeCuda& get();
    /// Path of this library, for dlopen.
    [[nodiscard]] static std::string path();
    /// Forgets allocations, failures and the log; contexts and streams of devices 0 and 1 are there.
    void reset();

    void add(const Allocation& allocation);
    /// An allocation with memory behind it, which copies move; full of 0xCD, and there until `reset`.
    [[nodiscard]] std::uint64_t add_memory(Kind kind, std::uint64_t bytes, int device = 0);
    /// The next `count` calls of this name answer `code`.
    void fail(const std::string& call, int code, int count = 1);
    /// A line of the test's own.
    void note(const std::string& line);
    [[nodiscard]] std::vector<std::string> log();
    /// Lines that begin with `beginning`.
    [[nodiscard]] std::vector<std::string> log_of(const std::string& beginning);
    void clear_log();
    /// True: cuStreamSynchronize does not return until false comes.
    void hold_streams(bool is_holding);
    /// Waits until this many threads are held by `hold_streams`.
    void await_held(int threads);
    /// From now on the calls of a step are neither written down nor failed, and allocate nothing.
    void keep_quiet();
    /// True: streams get stuck, and write nothing until false comes.
    void hold_writes(bool is_holding);
    /// Ranges of host memory that are registered.
    [[nodiscard]] int registered();
    /// Where devices find registered host memory: somewhere else than the host.
    [[nodiscard]] static std::uint64_t device_address_of(const void* host);
    /// Descriptors that were exported.
    [[nodiscard]] int exported();

    /// The context that memory and streams of a device belong to.
    [[nodiscard]] static void* context_of(int device);
    [[nodiscard]] static void* stream_of(int device);
    /// The calling thread's contexts, the current one last.
    [[nodiscard]] static std::vector<void*>& contexts();
};

}  // namespace gradsieve::client::test
