// A fake driver with some memory in it, for the tests of tensors on a device. Names of the fake's contexts, streams and
// addresses as its log shows them.
#pragma once

#include "client/cuda_driver.hpp"
#include "fake_cuda.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gradsieve::client::test {

using Kind = FakeCuda::Kind;
using Lines = std::vector<std::string>;

inline void* pointer_to(DeviceAddress address) { return reinterpret_cast<void*>(address); }

/// One allocation of each kind, a gap behind each. Resets the fake.
struct FakeMemory {
    static constexpr std::uint64_t kBytes = 0x200000;
    static constexpr DeviceAddress kLegacy = 0x10000000;
    static constexpr DeviceAddress kMapped = 0x20000000;  ///< ten physical allocations, one behind the other
    static constexpr DeviceAddress kUnexported = 0x30000000;
    static constexpr DeviceAddress kPool = 0x40000000;
    static constexpr DeviceAddress kHost = 0x50000000;
    static constexpr DeviceAddress kManaged = 0x60000000;
    static constexpr DeviceAddress kOtherDevice = 0x70000000;

    FakeMemory() {
        auto& fake = FakeCuda::get();
        fake.reset();
        fake.add({kLegacy, kBytes, Kind::kLegacy, 0});
        for (std::uint64_t place = 0; place < 10; ++place)
            fake.add({kMapped + place * kBytes, kBytes, Kind::kMapped, 0});
        fake.add({kUnexported, kBytes, Kind::kUnexported, 0});
        fake.add({kPool, kBytes, Kind::kPool, 0});
        fake.add({kHost, kBytes, Kind::kHost, 0});
        fake.add({kManaged, kBytes, Kind::kManaged, 0});
        fake.add({kOtherDevice, kBytes, Kind::kLegacy, 1});
    }
};

inline std::unique_ptr<CudaDriver> load_fake() {
    auto driver = CudaDriver::load(FakeCuda::path());
    EXPECT_TRUE(driver.is_ok()) << driver.status().to_string();
    return std::move(*driver);
}

}  // namespace gradsieve::client::test
