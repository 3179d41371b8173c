// A described host and a configuration file in a folder of its own, for the configuration's tests.
#pragma once

#include "daemon/config_host.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace gradsieve::daemon {

/// For lists of several nodes where keys are beside the point.
inline const std::string kPlain = "[network]\nsecurity = \"plain\"\n";

struct ConfigTest : testing::Test {
    std::filesystem::path folder;
    HostFacts host;

    ConfigTest() {
        auto pattern = (std::filesystem::temp_directory_path() / "gradsieve-config-XXXXXX").string();
        folder = ::mkdtemp(pattern.data());
        host.user_id = 1000;
        host.host_name = "trainer";
        host.addresses = {"127.0.0.1", "192.0.2.7", "2001:db8::7"};
        host.environment = {
            {"XDG_RUNTIME_DIR", "/run/user/1000"}, {"XDG_STATE_HOME", "/home/u/.state"}, {"HOME", "/home/u"}};
        host.default_file = (folder / "absent.toml").string();
        host.file_exists = [](const std::string& path) { return std::filesystem::exists(path); };
        host.folder_exists = [](const std::string&) { return false; };
        host.qualified_name = [] { return std::string(); };
        host.resolve = [](const std::string&) { return std::vector<std::string>(); };
    }
    ~ConfigTest() override { std::filesystem::remove_all(folder); }

    [[nodiscard]] std::string write_file(const std::string& text, const std::string& name = "gradsieved.toml") const {
        const auto path = folder / name;
        std::ofstream(path) << text;
        return path.string();
    }
    [[nodiscard]] Result<Config> load(const std::string& text, const std::string& node = "") const {
        return load_config_on({.file = write_file(text), .node = node, .socket_path = {}, .state_directory = {}}, host);
    }
    /// The error's text with the folder cut off, or "loaded".
    [[nodiscard]] std::string error_of(const std::string& text, const std::string& node = "") const {
        const auto loaded = load(text, node);
        if (loaded.is_ok()) return "loaded";
        auto message = loaded.error().to_string();
        const auto prefix = folder.string() + "/";
        for (auto at = message.find(prefix); at != std::string::npos; at = message.find(prefix))
            message.erase(at, prefix.size());
        return message;
    }
};

}  // namespace gradsieve::daemon
