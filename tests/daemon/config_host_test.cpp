#include "daemon/config_host.hpp"

#include "shm/local_socket.hpp"
#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

const std::string kTwoNodes =
    "[network]\nsecurity = \"plain\"\n[[node]]\nname = \"a\"\naddress = \"192.0.2.6\"\n[[node]]\nname = \"b\"\naddress "
    "= \"192.0.2.7\"\n";

/// "node <index>" or the error's text.
std::string self_of(const std::vector<NodeConfig>& nodes, const std::string& name, const HostFacts& host) {
    const auto self = find_self(nodes, name, host);
    return self.is_ok() ? "node " + std::to_string(*self) : self.error().to_string();
}

TEST_F(ConfigTest, Node_is_found_by_its_local_address) {
    const auto config = load(kTwoNodes);
    ASSERT_TRUE(config.is_ok()) << config.error().to_string();
    EXPECT_EQ(config->self, 1U);
}
TEST_F(ConfigTest, Node_is_found_by_short_and_qualified_name_in_any_case) {
    const std::vector<NodeConfig> nodes = {{"a", "198.51.100.1"}, {"Trainer", "198.51.100.2"}};
    EXPECT_EQ(self_of(nodes, "", host), "node 1");
    host.host_name = "trainer.example.org";
    EXPECT_EQ(self_of(nodes, "", host), "node 1") << "the part before the first dot counts";
    EXPECT_EQ(self_of({{"a", "198.51.100.1"}, {"b", "trainer.example.org"}}, "", host), "node 1") << "as an address";
    host.host_name = "other";
    host.qualified_name = [] { return std::string("trainer.example.org"); };
    EXPECT_EQ(self_of(nodes, "", host), "node 1");
}
TEST_F(ConfigTest, Node_is_found_by_looking_its_address_up) {
    host.resolve = [](const std::string& name) {
        return name == "b.example.org" ? std::vector<std::string>{"192.0.2.7"} : std::vector<std::string>{"192.0.2.99"};
    };
    EXPECT_EQ(self_of({{"a", "a.example.org"}, {"b", "b.example.org"}}, "", host), "node 1");
    EXPECT_EQ(self_of({{"a", "a.example.org"}, {"b", "::ffff:192.0.2.7"}}, "", host), "node 1") << "mapped address";
    EXPECT_EQ(self_of({{"a", "a.example.org"}, {"b", "2001:DB8:0::7"}}, "", host), "node 1") << "another spelling";
}
TEST_F(ConfigTest, Name_server_is_not_asked_where_name_or_address_settles_it) {
    host.resolve = [](const std::string&) -> std::vector<std::string> {
        ADD_FAILURE() << "asked";
        return {};
    };
    host.qualified_name = []() -> std::string {
        ADD_FAILURE() << "asked";
        return "";
    };
    EXPECT_EQ(self_of({{"a", "a.example.org"}, {"trainer", "b.example.org"}}, "", host), "node 1");
    EXPECT_EQ(self_of({{"a", "a.example.org"}, {"b", "192.0.2.7"}}, "", host), "node 1");
}
TEST_F(ConfigTest, Given_name_wins_over_everything_found) {
    EXPECT_EQ(self_of({{"a", "192.0.2.7"}, {"b", "198.51.100.2"}}, "b", host), "node 1");
}
TEST_F(ConfigTest, Two_nodes_on_one_host_ask_for_the_name) {
    EXPECT_EQ(self_of({{"a", "127.0.0.1", 1}, {"b", "127.0.0.1", 2}}, "", host),
              "invalid-argument: this host has the addresses and is nodes 'a' (127.0.0.1), 'b' (127.0.0.1): a daemon "
              "is one node; say "
              "which with --node NAME");
    EXPECT_EQ(self_of({{"a", "trainer", 1}, {"b", "trainer", 2}}, "", host),
              "invalid-argument: this host named 'trainer' is nodes 'a' (trainer), 'b' (trainer): a daemon is one "
              "node; say which with "
              "--node NAME");
}
TEST_F(ConfigTest, Name_and_address_that_disagree_are_refused) {
    EXPECT_EQ(self_of({{"trainer", "198.51.100.1"}, {"b", "192.0.2.7"}}, "", host),
              "invalid-argument: this host's name 'trainer' is node 'trainer', but address 192.0.2.7 of node 'b' is "
              "local: they must "
              "agree; correct the addresses, or say which node with --node NAME");
}
TEST_F(ConfigTest, Host_that_is_no_node_is_told_both_sides) {
    EXPECT_EQ(self_of({{"a", "198.51.100.1"}, {"b", "198.51.100.2"}}, "", host),
              "not-found: this host 'trainer' with addresses 127.0.0.1, 192.0.2.7, 2001:db8::7 is none of the nodes "
              "'a' (198.51.100.1), "
              "'b' (198.51.100.2): one of them must have its name or an address of it; correct the file, or say which "
              "with --node NAME");
}
TEST_F(ConfigTest, Unknown_given_name_lists_the_names_and_the_nearest) {
    EXPECT_EQ(self_of({{"alpha", "198.51.100.1"}, {"beta", "198.51.100.2"}}, "bata", host),
              "not-found: --node bata: no [[node]] has that name: allowed are 'alpha' (198.51.100.1), 'beta' "
              "(198.51.100.2); did you "
              "mean 'beta'?");
    EXPECT_THAT(self_of({}, "a", host), HasSubstr("not-found: --node a: the configuration has no [[node]]"));
}

TEST_F(ConfigTest, Socket_and_state_of_root_and_of_the_service_manager) {
    host.user_id = 0;
    EXPECT_EQ(default_socket(host)->path, "/run/gradsieve/gradsieved.sock");
    EXPECT_EQ(default_state_directory(host)->path, "/var/lib/gradsieve");
    EXPECT_EQ(default_socket(host)->origin, "default");
    host.user_id = 990;
    host.environment["RUNTIME_DIRECTORY"] = "/run/gradsieve:/run/other";
    host.environment["STATE_DIRECTORY"] = "/var/lib/gradsieve";
    EXPECT_EQ(default_socket(host)->path, "/run/gradsieve/gradsieved.sock");
    EXPECT_EQ(default_state_directory(host)->path, "/var/lib/gradsieve");
    EXPECT_EQ(default_socket(host)->origin, "environment");
}
TEST_F(ConfigTest, Socket_of_a_user_without_a_session_falls_back_or_says_what_to_do) {
    host.environment.erase("XDG_RUNTIME_DIR");
    EXPECT_EQ(default_socket(host).error().to_string(),
              "failed-precondition: no place for the socket: XDG_RUNTIME_DIR is not set and /run/user/1000 is not "
              "there: a folder that "
              "only this user can write to is needed; give --socket PATH, or set path in [socket]");
    host.folder_exists = [](const std::string& path) { return path == "/run/user/1000"; };
    EXPECT_EQ(default_socket(host)->path, "/run/user/1000/gradsieve/gradsieved.sock");
}
TEST_F(ConfigTest, Clients_look_for_the_socket_where_a_daemon_of_the_same_user_puts_it) {
    host.folder_exists = [](const std::string&) { return true; };
    for (const unsigned user_id : {0U, 1000U, 1001U})
        for (const std::string runtime : {"/run/user/1000", "/tmp/elsewhere", "relative", ""}) {
            host.user_id = user_id;
            host.environment["XDG_RUNTIME_DIR"] = runtime;
            const auto daemon = default_socket(host);
            ASSERT_TRUE(daemon.is_ok()) << daemon.error().to_string();
            const auto only_that = [&](const std::string& path) { return path == daemon->path; };
            EXPECT_EQ(shm::find_socket_path({"", runtime, user_id, only_that}), daemon->path)
                << user_id << " " << runtime;
        }
}
TEST_F(ConfigTest, State_of_a_user_follows_the_base_directories) {
    host.environment.erase("XDG_STATE_HOME");
    EXPECT_EQ(default_state_directory(host)->path, "/home/u/.local/state/gradsieve");
    host.environment["HOME"] = "relative";
    EXPECT_THAT(default_state_directory(host).error().to_string(), HasSubstr("give --state PATH"));
}
TEST(HostFacts, This_host_has_a_name_a_loopback_address_and_working_look_ups) {
    const auto host = read_host_facts();
    EXPECT_FALSE(host.host_name.empty());
    EXPECT_THAT(host.addresses, testing::Contains("127.0.0.1"));
    EXPECT_THAT(host.resolve("127.0.0.1"), testing::Contains("127.0.0.1"));
    EXPECT_TRUE(host.folder_exists("/proc"));
    EXPECT_FALSE(host.folder_exists("/proc/self/stat"));
}

}  // namespace
}  // namespace gradsieve::daemon
