// A small state table for the tests of what is kept of a job.
#pragma once

#include "shm/state_segment.hpp"

#include <string>

namespace gradsieve::shm {

/// Two tensors in group "g" (residual and variance; residual), one in "h" (nothing kept).
inline StateTable small_table() {
    StateTable table;
    table.job_name = "resnet";
    table.run_id = "seven";
    table.owner = 1000;
    table.world_size = 70;
    for (const char byte : {'s', 'p', 'e', 'c'}) table.spec.push_back(static_cast<std::byte>(byte));
    table.groups = {"g", "h"};
    table.tensors = {
        {.name = "a",
         .group = 0,
         .elements = 300,
         .codec = "variance | pow2",
         .arrays = {{.name = "residual", .bytes = 1200}, {.name = "variance", .bytes = 1200}}},
        {.name = "b", .group = 0, .elements = 2000, .codec = "topk", .arrays = {{.name = "residual", .bytes = 8000}}},
        {.name = "c", .group = 1, .elements = 5, .codec = "all | f32", .arrays = {}}};
    return table;
}

}  // namespace gradsieve::shm
