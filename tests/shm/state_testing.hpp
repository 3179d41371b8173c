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

/// The same with tensors "a" and "b" on two GPUs, and where they lie there.
inline StateTable gpu_table() {
    auto table = small_table();
    for (auto& tensor : table.tensors)
        for (auto& array : tensor.arrays) array.part = kDevicesPart;
    return table;
}
inline StatePlacement small_placement() {
    StatePlacement placement;
    placement.parts = {{"GPU-aa", kDevicePageBytes, 7}, {"GPU-bb", 2 * kDevicePageBytes, 8}};
    placement.tensors = {{{0, 0, 300, {{256, 4096}, {2048, 6144}}}},
                         {{0, 0, 1000, {{8192, 16384}}}, {1, 1000, 1000, {{256, 4352}}}},
                         {}};
    return placement;
}

}  // namespace gradsieve::shm
