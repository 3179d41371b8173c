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

/// A job that is not started yet, with tensors of four elements.
struct FreshJob {
    explicit FreshJob(const JobOptions& job_options, const std::vector<std::string>& names = {"w"},
                      const TensorOptions& options = kOnDevice)
        : job(Job::make(job_options).value()) {
        for (const auto& name : names) tensors.push_back(job.add_tensor(name, {2, 2}, options).value());
    }
    explicit FreshJob(const FakeDaemon& daemon, const std::vector<std::string>& names = {"w"},
                      const TensorOptions& options = kOnDevice)
        : FreshJob(options_for(daemon), names, options) {}
    Tensor& tensor(std::size_t index = 0) { return tensors.at(index); }

    Job job;
    std::vector<Tensor> tensors;
};

class JobDevices : public ::testing::Test {
protected:
    JobDevices() {
        environment_.set("GRADSIEVE_CUDA_DRIVER", FakeCuda::path());
        environment_.set("GRADSIEVE_REQUIRE", std::nullopt);
    }

    FakeMemory memory_;
    Environment environment_;
    DeviceBuffer good_ = buffer_at(FakeMemory::kLegacy + 64);
};

}  // namespace gradsieve::client::test
