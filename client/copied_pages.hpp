// The host memory that staged tensors are copied to and from, made known to the driver so that copies need no detour.
// What the driver refuses is copied without. Owned by the staging; made and destroyed under the core's lock.
#pragma once

#include "client/cuda_driver.hpp"

#include <memory>
#include <span>
#include <vector>

namespace gradsieve::client {

class CopiedPages {
public:
    /// Whole pages around the spans, each once, in `context`. `memory` keeps them mapped.
    CopiedPages(std::shared_ptr<const CudaDriver> driver, ContextRef context, std::shared_ptr<const void> memory);
    CopiedPages(const CopiedPages&) = delete;
    CopiedPages& operator=(const CopiedPages&) = delete;
    /// No copy may be under way.
    ~CopiedPages();

    void add(std::vector<std::span<const std::byte>> spans, bool is_read_only);

private:
    const std::shared_ptr<const CudaDriver> driver_;
    const ContextRef context_;
    const std::shared_ptr<const void> memory_;
    std::vector<const std::byte*> registered_;
};

}  // namespace gradsieve::client
