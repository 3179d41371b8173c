// The documents against the table of keys: the reference page, the manual page and the default file say all of it.
#include "daemon/config_schema.hpp"
#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>

#include <sstream>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

std::string page(const std::string& path) {
    std::ifstream file(std::string(GRADSIEVE_SOURCE_DIR) + "/" + path);
    EXPECT_TRUE(file.is_open()) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    return text;
}
/// From the line of `heading` to the next line that starts with `mark`.
std::string section_of(const std::string& text, const std::string& heading, const std::string& mark) {
    const auto start = text.find("\n" + heading + "\n");
    EXPECT_NE(start, std::string::npos) << heading;
    const auto body = start + heading.size() + 2;
    return text.substr(body, text.find("\n" + mark, body) - body);
}
std::string in_table(const std::string& text) { return replaced(text, "|", "\\|"); }
std::string in_manual(const std::string& text) {
    return replaced(replaced(replaced(replaced(text, "\\", "\\e"), "-", "\\-"), "\"", "\\(dq"), "'", "\\(aq");
}
bool has_place(const ConfigKey& key) {
    return key.name == "path" || key.name == "state_directory" || key.name == "key_file";
}
std::string default_of(const NodeKey& key) {
    const auto text = key.text(NodeConfig());
    return key.is_required ? "required" : text.empty() ? "absent" : "`" + text + "`";
}
std::string default_of(const ConfigKey& key) {
    const auto text = key.text(Config());
    return has_place(key) ? "see below" : text.empty() ? "absent" : "`" + in_table(text) + "`";
}

TEST(ConfigDocs, Reference_page_has_a_row_with_the_facts_of_every_key) {
    const auto text = page("docs/configuration.md");
    for (const auto& key : config_keys()) {
        const auto section = section_of(text, "## [" + key.section + "]", "## ");
        const auto start = section.find("| `" + key.name + "` | ");
        ASSERT_NE(start, std::string::npos) << key.dotted();
        const auto row = section.substr(start, section.find('\n', start) - start);
        EXPECT_THAT(row, testing::EndsWith(" | " + in_table(key.allowed) + " | " + default_of(key) + " | " +
                                           in_table(key.meaning) + " | " + (key.is_reloadable ? "yes" : "no") + " |"))
            << key.dotted();
    }
    const auto nodes = section_of(text, "## [[node]]", "## ");
    for (const auto& key : node_keys()) {
        EXPECT_THAT(nodes, HasSubstr("| `" + key.name + "` | "));
        EXPECT_THAT(nodes, HasSubstr(" | " + key.allowed + " | " + default_of(key) + " | " + key.meaning + " |"));
    }
}
TEST(ConfigDocs, Manual_page_has_every_key_with_meaning_and_range) {
    const auto text = page("docs/man/gradsieved.toml.5");
    for (const auto& key : config_keys()) {
        const auto section = section_of(text, ".SH [" + key.section + "]", ".SH ");
        EXPECT_THAT(section, HasSubstr(".TP\n.B " + key.name + "\n" + in_manual(key.meaning) +
                                       "\n.br\nAllowed: " + in_manual(key.allowed) + ".\n"))
            << key.dotted();
        const auto start = section.find(".B " + key.name + "\n");
        const auto entry = section.substr(start, section.find(".TP", start) - start);
        EXPECT_EQ(entry.find("(reload)") != std::string::npos, key.is_reloadable) << key.dotted();
    }
    const auto nodes = section_of(text, ".SH [[node]]", ".SH ");
    for (const auto& key : node_keys())
        EXPECT_THAT(nodes, HasSubstr(".TP\n.B " + key.name + "\n" + in_manual(key.meaning)));
}
TEST_F(ConfigTest, Default_file_loads_and_sets_nothing) {
    const auto config = load(page("systemd/gradsieved.toml"));
    ASSERT_TRUE(config.is_ok()) << config.error().to_string();
    for (const auto& [key, origin] : config->origins) EXPECT_NE(origin, "file") << key;
    EXPECT_TRUE(config->nodes.empty());
}
TEST_F(ConfigTest, Default_file_with_every_line_taken_in_loads_and_says_the_defaults) {
    std::istringstream lines(page("systemd/gradsieved.toml"));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
        const bool is_set = line.size() > 1 && line[0] == '#' && line[1] != ' ';
        text += (is_set ? line.substr(1) : line) + '\n';
    }
    const auto config = load(text, "a");
    ASSERT_TRUE(config.is_ok()) << config.error().to_string();
    for (const auto& key : config_keys()) {
        EXPECT_EQ(config->origins.at(key.dotted()), "file") << key.dotted() << " is not in the default file";
        const auto built_in = key.text(Config());
        if (has_place(key) || built_in.empty()) continue;
        EXPECT_EQ(key.text(*config), built_in) << key.dotted();
    }
    EXPECT_EQ(config->socket_path, "/run/gradsieve/gradsieved.sock");
    EXPECT_EQ(config->state_directory, "/var/lib/gradsieve");
    EXPECT_EQ(config->key_file, "/var/lib/gradsieve/node.key");
    EXPECT_EQ(config->nodes.size(), 2U);
}

}  // namespace
}  // namespace gradsieve::daemon
