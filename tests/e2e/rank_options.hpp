// The options of the tests' training processes: "--key value" pairs. Tests only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace gradsieve::test {

struct RankOptions {
    RankOptions(int argc, char** argv) {
        for (int place = 1; place + 1 < argc; place += 2) values[std::string(argv[place]).substr(2)] = argv[place + 1];
    }
    std::map<std::string, std::string> values;
    [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise = "") const {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : found->second;
    }
    [[nodiscard]] std::uint64_t number(const std::string& key, std::uint64_t otherwise) const {
        const auto found = values.find(key);
        return found == values.end() ? otherwise : std::stoull(found->second);
    }
};

}  // namespace gradsieve::test
