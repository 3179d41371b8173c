// What is behind the public handles of gradsieve.hpp: a reference to the job's core and, for a tensor, what never
// changes about it. Constant after construction; any thread.
#pragma once

#include "client/job_core.hpp"
#include "gradsieve/gradsieve.hpp"

#include <memory>
#include <string>

namespace gradsieve {

struct Job::Impl {
    std::shared_ptr<client::JobCore> core;
};

struct Tensor::Impl {
    std::shared_ptr<client::JobCore> core;
    std::uint32_t index = 0;
    std::string name;
    std::uint64_t elements = 0;
};

}  // namespace gradsieve
