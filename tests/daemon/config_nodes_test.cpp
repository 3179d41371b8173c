// Node lists that the file does not write out: from a name server, from a launcher, and with a file of keys.
#include "daemon/config_nodes.hpp"

#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kKeyA = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
const std::string kKeyB = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";

struct ConfigNodes : ConfigTest {
    ConfigNodes() {
        host.resolve = [this](const std::string& name) {
            asked.push_back(name);
            return name == "cluster.example" ? answer : std::vector<std::string>();
        };
    }
    [[nodiscard]] std::vector<std::string> nodes_of(const std::string& text, const std::string& node = "") const {
        const auto config = load(text, node);
        EXPECT_TRUE(config.is_ok()) << config.status().to_string();
        std::vector<std::string> nodes;
        if (config.is_ok())
            for (const auto& entry : config->nodes) nodes.push_back(entry.name + " " + entry.endpoint());
        return nodes;
    }
    std::vector<std::string> answer;
    std::vector<std::string> asked;
};

TEST_F(ConfigNodes, Every_address_of_a_name_is_a_node_in_an_order_that_no_answer_changes) {
    const auto text = kPlain + "[nodes]\ndns = \"cluster.example\"\n";
    answer = {"192.0.2.100", "192.0.2.7", "192.0.2.9", "192.0.2.7", "::ffff:192.0.2.9"};
    EXPECT_THAT(nodes_of(text),
                ElementsAre("192.0.2.7 192.0.2.7:7077", "192.0.2.9 192.0.2.9:7077", "192.0.2.100 192.0.2.100:7077"));
    EXPECT_EQ(load(text)->self, 0U) << "its own address";
    answer = {"192.0.2.9", "192.0.2.100", "192.0.2.7"};
    EXPECT_THAT(nodes_of(text + "port = 9\n"),
                ElementsAre("192.0.2.7 192.0.2.7:9", "192.0.2.9 192.0.2.9:9", "192.0.2.100 192.0.2.100:9"));
    EXPECT_EQ(load(text)->origins.at("node"), "nodes.dns");
}
TEST_F(ConfigNodes, Hosts_with_addresses_of_both_families_are_one_node_each) {
    const auto text = kPlain + "[nodes]\ndns = \"cluster.example\"\n";
    answer = {"2001:db8::9", "192.0.2.9", "2001:db8::7", "192.0.2.7"};
    EXPECT_THAT(nodes_of(text), ElementsAre("192.0.2.7 192.0.2.7:7077", "192.0.2.9 192.0.2.9:7077"));
    answer = {"2001:db8::9", "2001:db8::7"};
    EXPECT_THAT(nodes_of(text), ElementsAre("2001-db8--7 [2001:db8::7]:7077", "2001-db8--9 [2001:db8::9]:7077"));
}
TEST_F(ConfigNodes, A_name_without_addresses_or_with_another_number_than_asked_for_is_named) {
    EXPECT_EQ(error_of(kPlain + "[nodes]\ndns = \"nobody.example\"\n"),
              "not-found: gradsieved.toml: nodes.dns = \"nobody.example\": the name has no address: allowed is a name "
              "with one for every node; correct it, or try again when the name server knows them");
    answer = {"192.0.2.9", "192.0.2.7"};
    EXPECT_EQ(error_of(kPlain + "[nodes]\ndns = \"cluster.example\"\ncount = 3\n"),
              "unavailable: gradsieved.toml: [nodes] names 2 nodes (192.0.2.7, 192.0.2.9): nodes.count says 3; start "
              "again when all are there, or correct the number");
    EXPECT_EQ(error_of(kPlain + "[nodes]\ndns = \"cluster.example\"\ncount = 2\n"), "loaded");
    answer = {"192.0.2.9", "192.0.2.10"};
    EXPECT_THAT(error_of(kPlain + "[nodes]\ndns = \"cluster.example\"\n"), HasSubstr("is none of the nodes"));
}
TEST_F(ConfigNodes, A_launchers_list_is_taken_from_the_environment) {
    const auto text = kPlain + "[nodes]\nhosts = \"$SLURM_JOB_NODELIST\"\n";
    EXPECT_EQ(
        error_of(text),
        "not-found: gradsieved.toml: nodes.hosts = \"$SLURM_JOB_NODELIST\": the variable is not set in the "
        "daemon's environment: allowed is what a launcher sets there; start it by the launcher, or write the hosts");
    host.environment["SLURM_JOB_NODELIST"] = "trainer[1-2]";
    host.host_name = "trainer2";
    EXPECT_THAT(nodes_of(text), ElementsAre("trainer1 trainer1:7077", "trainer2 trainer2:7077"));
    EXPECT_EQ(load(text)->self, 1U);
    EXPECT_TRUE(asked.empty()) << "the host's name says which it is";
    host.environment["SLURM_JOB_NODELIST"] = "trainer[1-";
    EXPECT_THAT(error_of(text), HasSubstr("gradsieved.toml: nodes.hosts: host list, at 'trainer[1-': a bracket"));
    host.environment["GRADSIEVE_NODES"] = "x,trainer2";
    EXPECT_EQ(nodes_of(kPlain + "[nodes]\nhosts = \"$GRADSIEVE_NODES\"\n").size(), 2U);
}
TEST_F(ConfigNodes, A_list_in_the_file_is_checked_with_its_line) {
    EXPECT_EQ(nodes_of(kPlain + "[nodes]\nhosts = \"trainer,other[1-3]\"\n").size(), 4U);
    EXPECT_THAT(error_of(kPlain + "[nodes]\nhosts = \"other[3-1]\"\n"),
                HasSubstr("gradsieved.toml:4: nodes.hosts = \"other[3-1]\": allowed is a list such as"));
    EXPECT_THAT(error_of(kPlain + "[nodes]\nhosts = \"$HOME\"\n"), HasSubstr("gradsieved.toml:4: nodes.hosts"));
    EXPECT_THAT(error_of(kPlain + "[nodes]\ndns = \"a b\"\n"),
                HasSubstr("nodes.dns = \"a b\": allowed is a host name"));
}
TEST_F(ConfigNodes, Only_one_kind_of_list_is_taken) {
    EXPECT_THAT(error_of(kPlain + "[nodes]\nhosts = \"trainer\"\ndns = \"cluster.example\"\n"),
                HasSubstr("[nodes] with dns and hosts: allowed is one of dns, hosts and [[node]] tables"));
    EXPECT_THAT(error_of(kPlain + "[nodes]\nhosts = \"trainer\"\n[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\n"),
                HasSubstr("[nodes] with [[node]] tables: allowed is one of"));
    EXPECT_EQ(error_of("[nodes]\ncount = 4\n"), "loaded") << "it asks for no list";
}
TEST_F(ConfigNodes, Keys_come_from_a_file_of_all_machines) {
    const auto keys = write_file(
        "# the cluster\n\ntrainer " + kKeyA + " # rack 1\nother1 " + kKeyB + "\nspare " + kKeyA + "\n", "nodes.keys");
    const auto text = "[nodes]\nhosts = \"trainer,other1\"\n";
    EXPECT_THAT(error_of(text),
                HasSubstr("invalid-argument: gradsieved.toml: nodes 'trainer', 'other1' of [nodes] have "
                          "no public key: traffic between nodes is encrypted unless"));
    const auto with = load(text + ("keys = \"" + keys + "\"\n"));
    ASSERT_TRUE(with.is_ok()) << with.status().to_string();
    EXPECT_EQ(with->nodes[0].public_key, kKeyA);
    EXPECT_EQ(with->nodes[1].public_key, kKeyB);
    EXPECT_THAT(error_of("[nodes]\nhosts = \"trainer,other2\"\nkeys = \"" + keys + "\"\n"),
                HasSubstr("nodes 'other2' of [nodes] have no public key"));
    EXPECT_THAT(error_of("[nodes]\nhosts = \"trainer,spare\"\nkeys = \"" + keys + "\"\n"),
                HasSubstr("nodes.keys: 'trainer' and 'spare' have one public key"));
    EXPECT_THAT(error_of("[nodes]\nhosts = \"trainer\"\nkeys = \"/nowhere/keys\"\n"), HasSubstr("/nowhere/keys"));
    for (const auto& line :
         std::vector<std::string>{"trainer", "trainer short", "a " + kKeyA + " b", "a " + kKeyA + "\na " + kKeyA}) {
        const auto bad = write_file(line + "\n", "bad.keys");
        EXPECT_THAT(error_of("[nodes]\nhosts = \"trainer\"\nkeys = \"" + bad + "\"\n"),
                    HasSubstr("allowed is a node's name, once, and its public key"))
            << line;
    }
}
TEST_F(ConfigNodes, What_a_list_came_to_is_printed_and_not_read_again) {
    answer = {"192.0.2.9", "192.0.2.7"};
    const auto config = load(kPlain + "[nodes]\ndns = \"cluster.example\"\ncount = 2\n");
    ASSERT_TRUE(config.is_ok());
    const auto text = config_text(*config);
    EXPECT_THAT(text, HasSubstr("\n# [[node]] # this node\n# name = \"192.0.2.7\"\n# address = \"192.0.2.7\"\n"));
    EXPECT_EQ(error_of(text), "loaded");
}

}  // namespace
}  // namespace gradsieve::daemon
