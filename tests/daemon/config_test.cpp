#include "daemon/config.hpp"

#include "daemon/config_schema.hpp"
#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

TEST_F(ConfigTest, Ipv6_address_may_stand_in_brackets) {
    for (const std::string address : {"2001:db8::7", "[2001:db8::7]"}) {
        const auto config = load("[[node]]\nname = \"a\"\naddress = \"" + address + "\"\n");
        ASSERT_TRUE(config.is_ok()) << config.error().to_string();
        EXPECT_EQ(config->nodes[0].address, "2001:db8::7");
        EXPECT_EQ(config->nodes[0].endpoint(), "[2001:db8::7]:7077");
    }
}
TEST_F(ConfigTest, No_file_gives_a_working_single_node) {
    const auto config = load_config_on({}, host);
    ASSERT_TRUE(config.is_ok()) << config.error().to_string();
    EXPECT_EQ(config->file, "");
    EXPECT_THAT(config->nodes, IsEmpty());
    EXPECT_EQ(config->socket_path, "/run/user/1000/gradsieve/gradsieved.sock");
    EXPECT_EQ(config->state_directory, "/home/u/.state/gradsieve");
    EXPECT_EQ(config->origins.at("socket.path"), "environment");
    EXPECT_EQ(config->origins.at("network.lanes"), "default");
}
TEST_F(ConfigTest, Every_key_of_a_full_file_arrives_in_its_unit) {
    const auto config = load(R"(
[daemon]
threads = 3
cpus = "0-3,8"
memory_limit_mib = 512
log_level = "debug"
state_directory = "/srv/state"
[socket]
path = "/srv/g.sock"
mode = "0666"
group = "trainers"
[network]
security = "curve"
key_file = "/srv/node.key"
interface = "!docker0"
lanes = 4
heartbeat_ms = 250
silent_ms = 1500.5
peer_timeout_s = 0.5
round_deadline_s = 7
max_late_s = 90
credit_mib = 2
[gpu]
memory_limit_mib = 3
state = "host"
max_multiprocessors = 16
batch_elements = 123456
[state]
keep_minutes = 1.5
snapshot_steps = 500
pinned_snapshots = 3
pinned_limit_mib = 4
pinned_days = 5
[codec]
default = "topk(0.01) | pow2(bits=4) | auto"
small = "all | f32"
small_elements = 100
small_share = 0.25
plan = "sharded"
down = "topk(0.02) | f32"
budget_bytes_per_step = 0
budget_ms_per_step = 0
step_aside = true
[nodes]
dns = ""
hosts = ""
count = 3
port = 7001
keys = "/srv/nodes.keys"
[[node]]
name = "a"
address = "192.0.2.7"
public_key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
[[node]]
name = "b"
address = "b.example.org"
port = 7000
public_key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
)");
    ASSERT_TRUE(config.is_ok()) << config.error().to_string();
    EXPECT_EQ(config->threads, 3U);
    EXPECT_EQ(config->cpus, "0-3,8");
    EXPECT_EQ(config->memory_limit_bytes, 536'870'912U);
    EXPECT_EQ(config->log_level, "debug");
    EXPECT_EQ(config->state_directory, "/srv/state");
    EXPECT_EQ(config->socket_path, "/srv/g.sock");
    EXPECT_EQ(config->socket_mode, 0666U);
    EXPECT_EQ(config->socket_group, "trainers");
    EXPECT_EQ(config->security, "curve");
    EXPECT_EQ(config->key_file, "/srv/node.key");
    EXPECT_EQ(config->interface, "!docker0");
    EXPECT_EQ(config->lanes, 4U);
    EXPECT_EQ(config->heartbeat, Duration(250ms));
    EXPECT_EQ(config->silent_after, Duration(1500500us));
    EXPECT_EQ(config->peer_timeout, Duration(500ms));
    EXPECT_EQ(config->round_deadline, Duration(7s));
    EXPECT_EQ(config->max_late, Duration(90s));
    EXPECT_EQ(config->credit_bytes, 2'097'152U);
    EXPECT_EQ(config->gpu_memory_limit_bytes, 3'145'728U);
    EXPECT_EQ(config->gpu_state, "host");
    EXPECT_EQ(config->gpu_multiprocessors, 16U);
    EXPECT_EQ(config->gpu_batch_elements, 123'456U);
    EXPECT_EQ(config->keep_state_for, Duration(90s));
    EXPECT_EQ(config->snapshot_steps, 500U);
    EXPECT_EQ(config->pinned_snapshots, 3U);
    EXPECT_EQ(config->pinned_limit_bytes, 4U << 20U);
    EXPECT_EQ(config->pinned_days, 5U);
    EXPECT_EQ(config->codec, "topk(0.01) | pow2(bits=4) | auto");
    EXPECT_EQ(config->small_codec, "all | f32");
    EXPECT_EQ(config->small_elements, 100U);
    EXPECT_EQ(config->small_share, 0.25);
    EXPECT_EQ(config->plan, "sharded");
    EXPECT_EQ(config->down_codec, "topk(0.02) | f32");
    EXPECT_EQ(config->nodes_count, 3U);
    EXPECT_EQ(config->nodes_port, 7001);
    EXPECT_EQ(config->nodes_keys, "/srv/nodes.keys");
    ASSERT_EQ(config->nodes.size(), 2U);
    EXPECT_EQ(config->nodes[0].port, kDefaultPort);
    EXPECT_EQ(config->nodes[1].name, "b");
    EXPECT_EQ(config->nodes[1].address, "b.example.org");
    EXPECT_EQ(config->nodes[1].port, 7000);
    EXPECT_EQ(config->nodes[1].public_key, "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7");
    EXPECT_EQ(config->self, 0U);
    for (const auto& key : config_keys()) EXPECT_EQ(config->origins.at(key.dotted()), "file") << key.dotted();
}
TEST_F(ConfigTest, Default_file_is_read_where_it_exists) {
    host.default_file = write_file("[network]\nlanes = 2\n");
    const auto config = load_config_on({}, host);
    ASSERT_TRUE(config.is_ok());
    EXPECT_EQ(config->lanes, 2U);
    EXPECT_EQ(config->file, host.default_file);
}
TEST_F(ConfigTest, Options_win_over_the_file_and_become_absolute) {
    const auto file = write_file("[socket]\npath = \"/a.sock\"\n[daemon]\nstate_directory = \"/s\"\n");
    const auto config =
        load_config_on({.file = file, .node = {}, .socket_path = "x/../b.sock", .state_directory = "/t"}, host);
    ASSERT_TRUE(config.is_ok());
    EXPECT_EQ(config->socket_path, (std::filesystem::current_path() / "b.sock").string());
    EXPECT_EQ(config->state_directory, "/t");
    EXPECT_EQ(config->origins.at("socket.path"), "option");
    EXPECT_EQ(config->origins.at("daemon.state_directory"), "option");
}
TEST_F(ConfigTest, Option_that_no_socket_can_have_is_refused) {
    const auto config = load_config_on(
        {.file = {}, .node = {}, .socket_path = "/" + std::string(107, 'x'), .state_directory = {}}, host);
    ASSERT_FALSE(config.is_ok());
    EXPECT_EQ(config.error().text(), "--socket /" + std::string(107, 'x') +
                                         ": allowed is an absolute path of at most 107 bytes; choose another path");
}

struct Refused {
    std::string toml;
    std::string text;
};
const std::string kAdvice = "; correct the line, then run 'gradsieve check-config'";
const std::vector<Refused> kRefused = {
    {"[network]\nlanse = 2\n",
     "gradsieved.toml:2: unknown key 'lanse' in [network]: allowed are security, key_file, interface, lanes, "
     "heartbeat_ms, silent_ms, "
     "peer_timeout_s, "
     "round_deadline_s, max_late_s, credit_mib; did you mean 'lanes'?"},
    {"[daemon]\nlanes = 2\n",
     "gradsieved.toml:2: unknown key 'lanes' in [daemon]: allowed are threads, cpus, memory_limit_mib, log_level, "
     "state_directory; "
     "'lanes' belongs in [network]"},
    {"[codec]\nheartbeat = 2\n",
     "gradsieved.toml:2: unknown key 'heartbeat' in [codec]: allowed are default, small, small_elements, small_share, "
     "plan, down, budget_bytes_per_step, budget_ms_per_step, step_aside; "
     "did you mean "
     "'heartbeat_ms' in [network]?"},
    {"[codec]\ncolour_of_the_bikeshed = 2\n",
     "gradsieved.toml:2: unknown key 'colour_of_the_bikeshed' in [codec]: allowed are default, small, small_elements, "
     "small_share, plan, down, budget_bytes_per_step, budget_ms_per_step, step_aside; "
     "remove the line"},
    {"\n[netwrk]\nlanes = 2\n",
     "gradsieved.toml:2: unknown section 'netwrk': allowed are [daemon], [socket], [network], [gpu], [state], [codec], "
     "[nodes] and [[node]]; "
     "did you mean "
     "'network'?"},
    {"threads = 2\n",
     "gradsieved.toml:1: unknown key outside of a section, 'threads': allowed are [daemon], [socket], [network], "
     "[gpu], [state], [codec], [nodes] and [[node]]; "
     "'threads' belongs in [daemon]"},
    {"daemon = 3\n", "gradsieved.toml:1: 'daemon' is 3: allowed is a section; write [daemon]"},
    {"[node]\nname = \"a\"\n",
     "gradsieved.toml:1: 'node' is a table: allowed is a list of tables; write [[node]] with two pairs of brackets "
     "before each node"},
    {"[daemon]\nthreads = -1\n", "gradsieved.toml:2: daemon.threads = -1: allowed is 0 to 1024 threads" + kAdvice},
    {"[daemon]\nthreads = 1025\n", "gradsieved.toml:2: daemon.threads = 1025: allowed is 0 to 1024 threads" + kAdvice},
    {"[daemon]\nthreads = 1.5\n", "gradsieved.toml:2: daemon.threads = 1.5: allowed is 0 to 1024 threads" + kAdvice},
    {"[daemon]\nthreads = \"2\"\n",
     "gradsieved.toml:2: daemon.threads = \"2\": allowed is 0 to 1024 threads" + kAdvice},
    {"[daemon]\nthreads = true\n", "gradsieved.toml:2: daemon.threads = true: allowed is 0 to 1024 threads" + kAdvice},
    {"[daemon]\nthreads = [1]\n", "gradsieved.toml:2: daemon.threads = a list: allowed is 0 to 1024 threads" + kAdvice},
    {"[daemon]\nthreads = {}\n", "gradsieved.toml:2: daemon.threads = a table: allowed is 0 to 1024 threads" + kAdvice},
    {"[daemon]\ncpus = \"3-1\"\n",
     "gradsieved.toml:2: daemon.cpus = \"3-1\": allowed is a CPU list such as \"0-3,8\"" + kAdvice},
    {"[daemon]\nmemory_limit_mib = 16777217\n",
     "gradsieved.toml:2: daemon.memory_limit_mib = 16777217: allowed is 0 to 16777216 MiB" + kAdvice},
    {"[daemon]\nlog_level = \"loud\"\n",
     "gradsieved.toml:2: daemon.log_level = \"loud\": allowed is \"error\", \"warning\", \"info\" or \"debug\"" +
         kAdvice},
    {"[daemon]\nstate_directory = \"state\"\n",
     "gradsieved.toml:2: daemon.state_directory = \"state\": allowed is an absolute path" + kAdvice},
    {"[socket]\npath = \"\"\n",
     "gradsieved.toml:2: socket.path = \"\": allowed is an absolute path of at most 107 bytes" + kAdvice},
    {"[socket]\nmode = 660\n",
     "gradsieved.toml:2: socket.mode = 660: allowed is four octal digits from \"0600\" to \"0777\"" + kAdvice},
    {"[socket]\nmode = \"0066\"\n",
     "gradsieved.toml:2: socket.mode = \"0066\": allowed is four octal digits from \"0600\" to \"0777\"" + kAdvice},
    {"[socket]\nmode = \"0680\"\n",
     "gradsieved.toml:2: socket.mode = \"0680\": allowed is four octal digits from \"0600\" to \"0777\"" + kAdvice},
    {"[socket]\ngroup = \"a b\"\n", "gradsieved.toml:2: socket.group = \"a b\": allowed is a group's name" + kAdvice},
    {"[network]\nlanes = 0\n", "gradsieved.toml:2: network.lanes = 0: allowed is 1 to 16 connections" + kAdvice},
    {"[network]\nlanes = 17\n", "gradsieved.toml:2: network.lanes = 17: allowed is 1 to 16 connections" + kAdvice},
    {"[network]\ninterface = \"10.0.0.0/33\"\n",
     "gradsieved.toml:2: network.interface = \"10.0.0.0/33\": allowed is an interface's name, an address, a network "
     "such as "
     "\"10.0.0.0/8\", or one of them after \"!\"" +
         kAdvice},
    {"[network]\nheartbeat_ms = 9\n",
     "gradsieved.toml:2: network.heartbeat_ms = 9: allowed is 10 to 60000 ms" + kAdvice},
    {"[network]\npeer_timeout_s = 0.09\n",
     "gradsieved.toml:2: network.peer_timeout_s = 0.09: allowed is 0.1 to 86400 s" + kAdvice},
    {"[network]\npeer_timeout_s = inf\n",
     "gradsieved.toml:2: network.peer_timeout_s = inf: allowed is 0.1 to 86400 s" + kAdvice},
    {"[network]\nround_deadline_s = 1e300\n",
     "gradsieved.toml:2: network.round_deadline_s = 1e+300: allowed is 0.1 to 86400 s" + kAdvice},
    {"[network]\nmax_late_s = nan\n",
     "gradsieved.toml:2: network.max_late_s = nan: allowed is 0.001 to 604800 s" + kAdvice},
    {"[network]\ncredit_mib = 0\n", "gradsieved.toml:2: network.credit_mib = 0: allowed is 1 to 65536 MiB" + kAdvice},
    {"[network]\nheartbeat_ms = 2000\n",
     "gradsieved.toml:2: network.silent_ms = 3000 with heartbeat_ms = 2000: allowed is at least twice heartbeat_ms" +
         kAdvice},
    {"[codec]\nsmall_elements = -1\n",
     "gradsieved.toml:2: codec.small_elements = -1: allowed is 0 to 1000000000 elements" + kAdvice},
    {"[codec]\nplan = \"ring\"\n",
     "gradsieved.toml:2: codec.plan = \"ring\": allowed is \"gather\" or \"sharded\"" + kAdvice},
    {"[codec]\nsmall_share = 1.01\n", "gradsieved.toml:2: codec.small_share = 1.01: allowed is 0 to 1" + kAdvice},
    {"[[node]]\nname = \"a b\"\naddress = \"192.0.2.7\"\n",
     "gradsieved.toml:2: node.name = \"a b\": allowed is 1 to 64 letters, digits, '.', '_' or '-'" + kAdvice},
    {"[[node]]\nname = \"a\"\naddress = \"tcp://192.0.2.7\"\n",
     "gradsieved.toml:3: node.address = \"tcp://192.0.2.7\": allowed is an IP address or a host name, without a port" +
         kAdvice},
    {"[[node]]\nname = \"a\"\naddress = \"[192.0.2.7]\"\n",
     "gradsieved.toml:3: node.address = \"[192.0.2.7]\": allowed is an IP address or a host name, without a port" +
         kAdvice},
    {"[[node]]\nname = \"a\"\naddress = \"[::1]:7077\"\n",
     "gradsieved.toml:3: node.address = \"[::1]:7077\": allowed is an IP address or a host name, without a port" +
         kAdvice},
    {"[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\nport = 65536\n",
     "gradsieved.toml:4: node.port = 65536: allowed is 1 to 65535" + kAdvice},
    {"[[node]]\nname = \"a\"\nadress = \"192.0.2.7\"\n",
     "gradsieved.toml:1: [[node]] number 1 has no 'address': allowed is an IP address or a host name, without a port; "
     "add address = "
     "...\ngradsieved.toml:3: unknown key 'adress' in [[node]]: allowed are name, address, port, public_key; did you "
     "mean "
     "'address'?"},
    {kPlain + "[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\n[[node]]\nname = \"a\"\naddress = \"192.0.2.8\"\n",
     "gradsieved.toml:6: node name 'a' is used twice, first in line 3: allowed is one node per name; rename one"},
    {kPlain + "[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\n[[node]]\nname = \"b\"\naddress = \"192.0.2.7\"\n",
     "gradsieved.toml:6: address 192.0.2.7:7077 of node 'b' is used twice, first in line 3: allowed is one node per "
     "address and port; "
     "give one of them another port"},
    {"[network]\nlanes = 99\n[daemon]\nthreads = 9999\n",
     "gradsieved.toml:2: network.lanes = 99: allowed is 1 to 16 connections" + kAdvice +
         "\ngradsieved.toml:4: daemon.threads = 9999: allowed is 0 to 1024 threads" + kAdvice},
};
TEST_F(ConfigTest, Refused_values_are_named_with_line_value_allowed_and_advice) {
    for (const auto& refused : kRefused)
        EXPECT_EQ(error_of(refused.toml), "invalid-argument: " + refused.text) << refused.toml;
}
TEST_F(ConfigTest, Text_that_is_no_toml_names_line_and_column) {
    const auto text = error_of("[network]\nlanes = = 2\n");
    EXPECT_THAT(text, testing::StartsWith("invalid-argument: gradsieved.toml:2:9: not TOML: "));
    EXPECT_THAT(text, testing::EndsWith(kAdvice));
    EXPECT_THAT(error_of("[network]\nlanes = 1\nlanes = 2\n"), HasSubstr("gradsieved.toml:3:"));
    EXPECT_THAT(error_of("name = \"\xff\"\n"), HasSubstr("not TOML"));
}
TEST_F(ConfigTest, More_problems_than_fit_are_counted) {
    std::string toml = "[network]\n";
    for (int number = 0; number < 25; ++number) toml += "unknown_key_number_" + std::to_string(number) + " = 1\n";
    EXPECT_THAT(error_of(toml), testing::EndsWith("\nand 5 more"));
}
TEST_F(ConfigTest, File_that_cannot_be_read_says_which_and_why) {
    const auto missing =
        load_config_on({.file = "/nowhere/x.toml", .node = {}, .socket_path = {}, .state_directory = {}}, host);
    EXPECT_EQ(missing.error().to_string(),
              "not-found: configuration file /nowhere/x.toml: No such file or directory: it must be a readable file; "
              "check --config "
              "and the file's permissions");
    const auto not_a_file =
        load_config_on({.file = folder.string(), .node = {}, .socket_path = {}, .state_directory = {}}, host);
    EXPECT_THAT(not_a_file.error().text(), HasSubstr("not a regular file"));
    EXPECT_THAT(error_of(std::string(1'048'577, '\n')), HasSubstr("more than 1048576 bytes"));
}

TEST_F(ConfigTest, Codec_that_does_not_parse_is_refused_with_its_line) {
    const auto text = error_of("[codec]\nsmall = \"\"\n");
    EXPECT_THAT(text, HasSubstr("gradsieved.toml:2: codec.small = \"\": "));
    EXPECT_THAT(error_of("[codec]\ndefault = \"topk(2)\"\n"),
                HasSubstr("gradsieved.toml:2: codec.default = \"topk(2)\": "));
    EXPECT_EQ(error_of("[codec]\ndefault = \"\"\n"), "loaded");
}

TEST_F(ConfigTest, Printed_text_loads_again_to_the_same_values) {
    const std::string toml =
        "[daemon]\nthreads = 2\nstate_directory = \"/s \\\"x\\\" \\u0001\"\n[network]\nsecurity = \"plain\"\n"
        "silent_ms = 2500.25\nmax_late_s "
        "= "
        "0.5\n[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\n[[node]]\nname = \"b\"\naddress = \"192.0.2.8\"\nport = "
        "1\n";
    const auto first = load(toml);
    ASSERT_TRUE(first.is_ok()) << first.error().to_string();
    const auto printed = config_text(*first);
    const auto second = load(printed);
    ASSERT_TRUE(second.is_ok()) << second.error().to_string() << printed;
    for (const auto& key : config_keys()) EXPECT_EQ(key.text(*first), key.text(*second)) << key.dotted();
    ASSERT_EQ(second->nodes.size(), 2U);
    EXPECT_EQ(second->nodes[1].port, 1);
}
TEST_F(ConfigTest, Printed_text_tells_where_each_value_came_from) {
    const auto config = load("[network]\nlanes = 2\n[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\n");
    ASSERT_TRUE(config.is_ok());
    const auto text = config_text(*config);
    EXPECT_THAT(text, HasSubstr("# effective values with " + folder.string() + "/gradsieved.toml\n\n[daemon]\n"));
    EXPECT_THAT(text, HasSubstr("\nlanes = 2                                # file\n"));
    EXPECT_THAT(text, HasSubstr("\nthreads = 0                              # default\n"));
    EXPECT_THAT(text, HasSubstr("\n# max_late_s                             # default, absent\n"));
    EXPECT_THAT(text, HasSubstr("\npath = \"/run/user/1000/gradsieve/gradsieved.sock\" # environment\n"));
    EXPECT_THAT(text, HasSubstr("\n[[node]] # this node\nname = \"a\"\naddress = \"192.0.2.7\"\nport = 7077\n"));
}

}  // namespace
}  // namespace gradsieve::daemon
