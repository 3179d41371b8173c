// The codec stages as a list for people and for programs. Pure; any thread.
#pragma once

#include "cli/console.hpp"

#include <string>
#include <vector>

namespace gradsieve::cli {

struct StageView {
    std::string name, role, parameters, scope, state, meaning, source, combine, backends;
};
/// Grouped by role in the order of their first rows, wrapped to the look's width.
[[nodiscard]] std::string render_stages(const std::vector<StageView>& stages, const Look& look);
/// A list of objects with the members' names as keys.
[[nodiscard]] std::string stages_json(const std::vector<StageView>& stages);

}  // namespace gradsieve::cli
