#include "figure_data.hpp"

#include "first_step.hpp"
#include "wire_parts.hpp"

#include <cmath>

namespace gradsieve::codec {
namespace {

WireParts parts_of(const std::string& codec, ElementCount elements) {
    return wire_parts(run_first_step(codec, elements, kFigureSeed).trial.payloads(), elements);
}

}  // namespace

std::vector<IndexPoint> index_points(std::uint64_t elements) {
    std::vector<IndexPoint> points;
    std::vector<double> densities;
    for (int step = 0; step <= 15; ++step) densities.push_back(std::pow(10, -4 + 0.25 * step));
    densities.insert(densities.end(), {0.7, 0.8, 0.9});
    for (const StageRow& stage : stage_table()) {
        if (stage.role != "index coder") continue;
        for (const double density : densities) {
            const std::string codec = "topk(" + std::to_string(density) + ") | f32 | " + std::string(stage.name);
            const WireParts parts = parts_of(codec, elements);
            const auto kept = static_cast<double>(parts.elements);
            points.push_back({std::string(stage.name), kept / static_cast<double>(elements),
                              8.0 * static_cast<double>(parts.header_bytes + parts.index_bytes) / kept,
                              index_entropy(kept / static_cast<double>(elements))});
        }
    }
    return points;
}

std::vector<ScalePoint> scale_points(std::uint64_t elements) {
    std::vector<ScalePoint> points;
    for (const std::string quantizer : {"pow2(bits=4)", "pow2(bits=4, scope=tensor)", "sign", "dither(levels=7)"})
        for (const double density : {1e-1, 1e-2, 1e-3, 1e-4}) {
            const std::string codec = "topk(" + std::to_string(density) + ") | " + quantizer;
            const WireParts parts = parts_of(codec, elements);
            points.push_back({quantizer, density,
                              8.0 * static_cast<double>(parts.scale_bytes) / static_cast<double>(parts.elements)});
        }
    return points;
}

}  // namespace gradsieve::codec
