#include "reference_warmup.hpp"

#include <algorithm>
#include <utility>

namespace gradsieve::codec::reference {

Input warmed(const Input& input) {
    Input of_step = input;
    const auto steps = static_cast<Step>(std::exchange(of_step.pipeline.front.warmup_steps, 0));
    std::vector<double> ratios;
    for (double ratio = input.pipeline.front.warmup_from; ratio > input.pipeline.selector.ratio; ratio /= 4)
        ratios.push_back(ratio);
    if (input.step <= steps)
        of_step.pipeline.selector.ratio = ratios[(std::max<Step>(input.step, 1) - 1) * ratios.size() / steps];
    return of_step;
}

}  // namespace gradsieve::codec::reference
