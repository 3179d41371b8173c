// A job with tensors on a device: a fake driver on one side, a fake daemon on the other. Tests only.
#pragma once

#include "device_fixture.hpp"
#include "environment.hpp"
#include "job_fixture.hpp"

namespace gradsieve::client::test {

inline const TensorOptions kOnDevice{.samples_max = 1, .has_second_moment = false, .group = "", .on_device = true};

inline DeviceBuffer buffer_at(DeviceAddress address) {
    return {.pointer = pointer_to(address),
            .elements = 4,
            .type = ElementType::kF32,
            .stream = FakeCuda::stream_of(0),
            .sample_stride_elements = 0,
            .second_moment = nullptr};
}

class JobDevices : public ::testing::Test {
protected:
    JobDevices() { environment_.set("GRADSIEVE_CUDA_DRIVER", FakeCuda::path()); }

    FakeMemory memory_;
    Environment environment_;
    DeviceBuffer good_ = buffer_at(FakeMemory::kLegacy + 64);
};

}  // namespace gradsieve::client::test
