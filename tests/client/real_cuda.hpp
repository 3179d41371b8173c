// The CUDA driver of the machine that a test runs on, as far as the test of device memory between processes needs it
// beyond what the client itself calls. Loaded at run time, so that it builds and skips anywhere. Every call that fails
// ends the process with its name: the test is a pair of processes, and either must not go on.
#pragma once

#include "client/cuda_driver.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace gradsieve::client::test {

class RealCuda {
public:
    struct Location {
        int type = 1;  // device
        int id = 0;
    };
    /// CUmemAllocationProp
    struct Properties {
        int type = 1;  // pinned
        int handle_types = 0;
        Location location;
        void* unused = nullptr;
        std::array<unsigned char, 8> flags{};
    };
    /// CUmemAccessDesc
    struct Access {
        Location location;
        int flags = 3;  // read and write
    };
    struct Handle {
        std::array<char, 64> bytes;
    };

    /// Why there is nothing to test; empty if there is. Initializes the driver.
    static std::string why_not() {
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
        if (library == nullptr) return "no CUDA driver (libcuda.so.1)";
        auto* const init = reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"));
        const int code = init(0);
        return code == 0 ? "" : "cuInit answered " + std::to_string(code);
    }

    /// Makes the primary context of device 0 current.
    RealCuda() {
        call<void**, int>("cuDevicePrimaryCtxRetain", &context_, 0);
        make_current();
        call<void**, unsigned>("cuStreamCreate", &stream_, 1U);
        scratch_ = allocate(kScratchBytes);
    }
    void make_current() const { call<void*>("cuCtxSetCurrent", context_); }
    void forget_current() const { call<void*>("cuCtxSetCurrent", nullptr); }
    [[nodiscard]] StreamRef stream() const { return stream_; }

    template <typename... Arguments>
    static void call(const char* name, Arguments... arguments) {
        static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
        auto* const function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, name));
        const int code = function != nullptr ? function(arguments...) : -1;
        if (code == 0) return;
        std::fprintf(stderr, "%s answered %d\n", name, code);
        std::abort();
    }

    [[nodiscard]] static DeviceAddress allocate(std::size_t bytes) {
        DeviceAddress address = 0;
        call<DeviceAddress*, std::size_t>("cuMemAlloc_v2", &address, bytes);
        return address;
    }
    /// `count` physical allocations of `bytes` each, mapped one behind the other.
    [[nodiscard]] static DeviceAddress map(std::size_t count, std::size_t bytes, bool is_exportable) {
        DeviceAddress address = 0;
        call<DeviceAddress*, std::size_t, std::size_t, DeviceAddress, unsigned long long>(
            "cuMemAddressReserve", &address, count * bytes, 0, 0, 0);
        const Properties properties{.handle_types = is_exportable ? 1 : 0, .location = {}};
        for (std::size_t place = 0; place < count; ++place) {
            unsigned long long physical = 0;
            call<unsigned long long*, std::size_t, const Properties*, unsigned long long>("cuMemCreate", &physical,
                                                                                          bytes, &properties, 0);
            map_one(address + place * bytes, bytes, physical);
        }
        return address;
    }
    /// Maps what descriptors stand for, one behind the other.
    [[nodiscard]] static DeviceAddress import(const std::vector<std::pair<int, std::size_t>>& descriptors) {
        std::size_t total_bytes = 0;
        for (const auto& [fd, bytes] : descriptors) total_bytes += bytes;
        DeviceAddress address = 0;
        call<DeviceAddress*, std::size_t, std::size_t, DeviceAddress, unsigned long long>(
            "cuMemAddressReserve", &address, total_bytes, 0, 0, 0);
        auto at = address;
        for (const auto& [fd, bytes] : descriptors) {
            unsigned long long physical = 0;
            call<unsigned long long*, void*, int>("cuMemImportFromShareableHandle", &physical,
                                                  reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)), 1);
            map_one(at, bytes, physical);
            at += bytes;
        }
        return address;
    }
    void fill(DeviceAddress address, unsigned word, std::size_t words) const {
        call<DeviceAddress, unsigned, std::size_t, void*>("cuMemsetD32Async", address, word, words, stream_);
    }
    /// Enqueues some milliseconds of work.
    void keep_busy() const {
        for (int round = 0; round < 40; ++round) fill(scratch_, 0, kScratchBytes / 4);
    }
    void synchronize() const { call<void*>("cuStreamSynchronize", stream_); }
    /// Waits for the stream.
    [[nodiscard]] std::vector<unsigned> read(DeviceAddress address, std::size_t words) const {
        std::vector<unsigned> values(words);
        call<void*, DeviceAddress, std::size_t, void*>("cuMemcpyDtoHAsync_v2", values.data(), address, words * 4,
                                                       stream_);
        synchronize();
        return values;
    }

private:
    static void map_one(DeviceAddress at, std::size_t bytes, unsigned long long physical) {
        call<DeviceAddress, std::size_t, std::size_t, unsigned long long, unsigned long long>("cuMemMap", at, bytes, 0,
                                                                                              physical, 0);
        call<unsigned long long>("cuMemRelease", physical);
        const Access access;
        call<DeviceAddress, std::size_t, const Access*, std::size_t>("cuMemSetAccess", at, bytes, &access, 1);
    }
    static constexpr std::size_t kScratchBytes = std::size_t{1} << 29U;
    void* context_ = nullptr;
    StreamRef stream_ = nullptr;
    DeviceAddress scratch_ = 0;
};

}  // namespace gradsieve::client::test
