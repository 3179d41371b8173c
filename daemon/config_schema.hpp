// The table of configuration keys: one row per key, which is all that parsing, printing, reloading and the documents'
// tests know about it. Immutable after construction; any thread.
#pragma once

#include "daemon/config.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace gradsieve::daemon {

/// One scalar as it stands in the file.
using ConfigValue = std::variant<std::int64_t, double, bool, std::string>;
/// Why a value is refused: nothing = taken; "" = outside of what the row allows; else a reason of its own.
using Refusal = std::optional<std::string>;

struct ConfigKey {
    std::string section;
    std::string name;
    std::string allowed;  ///< "1 to 16"
    std::string meaning;  ///< one sentence
    bool is_reloadable;   ///< SIGHUP applies it
    Refusal (*set)(Config&, const ConfigValue&);
    std::string (*text)(const Config&);  ///< as a TOML literal; "" = absent
    [[nodiscard]] std::string dotted() const { return section + "." + name; }
};
struct NodeKey {
    std::string name;
    std::string allowed;
    std::string meaning;
    bool is_required;
    Refusal (*set)(NodeConfig&, const ConfigValue&);
    std::string (*text)(const NodeConfig&);  ///< as a TOML literal; "" = absent
};

/// In the order in which they are printed; sections are contiguous.
[[nodiscard]] const std::vector<ConfigKey>& config_keys();
/// Of `[[node]]`.
[[nodiscard]] const std::vector<NodeKey>& node_keys();

}  // namespace gradsieve::daemon
