// A job whose tensors are staged: their device memory is there, and cannot be shared. Tests only.
#pragma once

#include "job_device_fixture.hpp"

#include <cstring>
#include <vector>

namespace gradsieve::client::test {

class Staged : public JobDevices {
protected:
    static constexpr std::uint64_t kBytes = 1024;

    /// Values as they lie in device memory.
    template <typename Element>
    static std::vector<Element> read(DeviceAddress address, std::size_t count = 4) {
        std::vector<Element> values(count);
        std::memcpy(values.data(), pointer_to(address), count * sizeof(Element));
        return values;
    }
    template <typename Element>
    static void write(DeviceAddress address, const std::vector<Element>& values) {
        std::memcpy(pointer_to(address), values.data(), values.size() * sizeof(Element));
    }

    const DeviceAddress gradient_ = FakeCuda::get().add_memory(Kind::kPool, kBytes);
    DeviceBuffer buffer_ = buffer_at(gradient_);
};

/// Started, with one tensor that is staged.
struct StagedJob : FreshJob {
    StagedJob(const FakeDaemon& daemon, const DeviceBuffer& buffer, const TensorOptions& options = kOnDevice)
        : FreshJob(daemon, {"w"}, options) {
        for (const auto& status : {tensor().bind_device(buffer, kPatient), job.start(kPatient)})
            EXPECT_TRUE(status.is_ok()) << status.to_string();
        EXPECT_TRUE(tensor().is_staged());
    }
    /// Hands in and waits.
    void step(Step number) {
        const auto submitted = tensor().submit(number);
        ASSERT_TRUE(submitted.is_ok()) << submitted.to_string();
        const auto waited = tensor().wait(kPatient);
        ASSERT_TRUE(waited.is_ok()) << waited.status().to_string();
        EXPECT_TRUE(waited->empty()) << "the average is in the bound memory";
    }
};

/// What the daemon finds in the slab.
inline std::vector<float> slab_of(FakeDaemon& daemon, std::uint32_t sample = 0) {
    std::vector<float> values;
    daemon.run([&](FakeDaemon& at) {
        const auto* const slice = at.session().slice(0, sample);
        values.assign(slice, slice + 4);
    });
    return values;
}

}  // namespace gradsieve::client::test
