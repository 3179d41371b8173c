// What a configuration has to say of keys, and where the secret one is looked for.
#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

const std::string kKeyA = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
const std::string kKeyB = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";

std::string node(const std::string& name, const std::string& address, const std::string& key = "") {
    return "[[node]]\nname = \"" + name + "\"\naddress = \"" + address + "\"\n" +
           (key.empty() ? "" : "public_key = \"" + key + "\"\n");
}
std::string two_nodes(const std::string& first, const std::string& second) {
    return node("a", "192.0.2.7", first) + node("b", "192.0.2.8", second);
}

TEST_F(ConfigTest, Several_nodes_without_keys_are_refused_with_both_ways_out) {
    EXPECT_EQ(error_of(two_nodes("", "")),
              "invalid-argument: gradsieved.toml:1: [[node]] 'a', 'b' without public_key: traffic between nodes is "
              "encrypted unless this file says otherwise; run 'gradsieve keygen' on each node and enter what it prints "
              "as public_key = \"...\", or set security = \"plain\" in [network] if only the nodes can reach their "
              "network");
    EXPECT_THAT(error_of(two_nodes(kKeyA, "")), HasSubstr("gradsieved.toml:5: [[node]] 'b' without public_key: "));
    EXPECT_THAT(error_of("[network]\nsecurity = \"curve\"\n" + two_nodes("", kKeyB)),
                HasSubstr("gradsieved.toml:3: [[node]] 'a' without public_key: "));
}
TEST_F(ConfigTest, Several_nodes_with_keys_or_in_plain_text_on_demand_are_fine) {
    EXPECT_EQ(error_of(two_nodes(kKeyA, kKeyB)), "loaded");
    EXPECT_EQ(error_of("[network]\nsecurity = \"plain\"\n" + two_nodes("", "")), "loaded");
    EXPECT_EQ(error_of("[network]\nsecurity = \"plain\"\n" + two_nodes(kKeyA, "")), "loaded") << "on the way to keys";
}
TEST_F(ConfigTest, Single_node_needs_no_key) {
    EXPECT_EQ(error_of(""), "loaded");
    EXPECT_EQ(error_of(node("a", "192.0.2.7")), "loaded");
    EXPECT_EQ(error_of("[network]\nsecurity = \"curve\"\n" + node("a", "192.0.2.7")), "loaded");
}
TEST_F(ConfigTest, Wrong_keys_and_modes_are_named_with_what_is_allowed) {
    EXPECT_EQ(
        error_of(two_nodes(kKeyA, kKeyA)),
        "invalid-argument: gradsieved.toml:5: public_key of node 'b' is that of node 'a' too: allowed is one node "
        "per key; run 'gradsieve keygen' on each");
    const auto wrong = error_of(two_nodes(kKeyA, kKeyB.substr(1)));
    EXPECT_EQ(wrong, "invalid-argument: gradsieved.toml:8: node.public_key = \"" + kKeyB.substr(1) +
                         "\": allowed is 40 characters of Z85, as gradsieve keygen prints them; correct the line, then "
                         "run 'gradsieve check-config'");
    EXPECT_THAT(error_of("[network]\nsecurity = \"tls\"\n"),
                HasSubstr("network.security = \"tls\": allowed is \"curve\" or \"plain\""));
    EXPECT_THAT(error_of("[network]\nsecurity = \"\"\n"), HasSubstr("allowed is \"curve\" or \"plain\""));
    EXPECT_THAT(error_of("[network]\nkey_file = \"node.key\"\n"),
                HasSubstr("network.key_file = \"node.key\": allowed is an absolute path"));
}
TEST_F(ConfigTest, Secret_key_is_looked_for_in_file_credentials_and_state) {
    EXPECT_EQ(load("")->key_file, "/home/u/.state/gradsieve/node.key");
    EXPECT_EQ(load("")->origins.at("network.key_file"), "default");
    EXPECT_EQ(load("[daemon]\nstate_directory = \"/srv/state\"\n")->key_file, "/srv/state/node.key");
    host.environment["CREDENTIALS_DIRECTORY"] = folder.string();
    EXPECT_EQ(load("")->key_file, "/home/u/.state/gradsieve/node.key") << "the service manager has other credentials";
    static_cast<void>(write_file("", "node.key"));
    EXPECT_EQ(load("")->key_file, folder.string() + "/node.key");
    EXPECT_EQ(load("")->origins.at("network.key_file"), "environment");
    EXPECT_EQ(load("[network]\nkey_file = \"/etc/k\"\n")->key_file, "/etc/k");
}
TEST_F(ConfigTest, Keys_are_printed_where_there_are_some) {
    const auto with = load(two_nodes(kKeyA, kKeyB));
    ASSERT_TRUE(with.is_ok());
    EXPECT_THAT(config_text(*with), HasSubstr("port = 7077\npublic_key = \"" + kKeyB + "\"\n"));
    EXPECT_EQ(error_of(config_text(*with)), "loaded");
    const auto without = load("[network]\nsecurity = \"plain\"\n" + two_nodes("", ""));
    ASSERT_TRUE(without.is_ok());
    EXPECT_EQ(config_text(*without).find("public_key"), std::string::npos);
    EXPECT_EQ(error_of(config_text(*without)), "loaded");
}

}  // namespace
}  // namespace gradsieve::daemon
