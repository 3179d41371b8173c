// Which keys a daemon takes over without a restart.
#include "daemon/config_schema.hpp"
#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>

namespace gradsieve::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(ConfigTest, Reloadable_keys_need_no_restart_and_all_others_are_named) {
    const std::string nodes = "[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\n";
    const auto running = load(kPlain + nodes);
    ASSERT_TRUE(running.is_ok());
    EXPECT_THAT(changed_keys_needing_restart(*running, *running), IsEmpty());
    const auto reloadable = load(
        "[daemon]\nlog_level = \"debug\"\nmemory_limit_mib = 9\n[network]\nsecurity = \"plain\"\npeer_timeout_s = "
        "1\nround_deadline_s = 1\nmax_late_s = "
        "1\ncredit_mib = 1\n[gpu]\nmemory_limit_mib = 1\nstate = \"host\"\n[state]\nkeep_minutes = 2\nsnapshot_steps = "
        "3\npinned_snapshots = 4\npinned_limit_mib = 5\npinned_days = 6\n[codec]\nbudget_bytes_per_step = "
        "7\nstep_aside = true\n" +
        nodes + "[[node]]\nname = \"b\"\naddress = \"192.0.2.8\"\n");
    ASSERT_TRUE(reloadable.is_ok());
    EXPECT_THAT(changed_keys_needing_restart(*running, *reloadable), IsEmpty());
    const auto others = load(
        "[daemon]\nthreads = 7\ncpus = \"0\"\nstate_directory = \"/x\"\n[socket]\npath = \"/x\"\nmode = "
        "\"0600\"\ngroup = \"x\"\n"
        "[network]\nkey_file = \"/x\"\ninterface = \"x\"\nlanes = 2\nheartbeat_ms = 100\nsilent_ms = "
        "900\n[codec]\ndefault = \"all | "
        "bf16\"\nsmall = "
        "\"all | f32\"\nsmall_elements = 1\nsmall_share = 0\nplan = \"sharded\"\ndown = \"all | sign\"\n[[node]]\nname "
        "= \"z\"\naddress = "
        "\"192.0.2.8\"\npublic_key = "
        "\"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"\n" +
        nodes + "public_key = \"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID\"\n");
    ASSERT_TRUE(others.is_ok()) << others.error().to_string();
    EXPECT_THAT(
        changed_keys_needing_restart(*running, *others),
        ElementsAre("daemon.threads", "daemon.cpus", "daemon.state_directory", "socket.path", "socket.mode",
                    "socket.group", "network.security", "network.key_file", "network.interface", "network.lanes",
                    "network.heartbeat_ms", "network.silent_ms", "codec.default", "codec.small", "codec.small_elements",
                    "codec.small_share", "codec.plan", "codec.down", "node"));
}

TEST_F(ConfigTest, Reload_takes_over_exactly_the_reloadable_keys) {
    const std::string nodes = "[[node]]\nname = \"a\"\naddress = \"192.0.2.7\"\n";
    auto running = load(nodes);
    const auto fresh = load(
        "[daemon]\nthreads = 7\ncpus = \"0\"\nmemory_limit_mib = 9\nlog_level = \"debug\"\nstate_directory = "
        "\"/x\"\n[socket]\n"
        "path = \"/x\"\nmode = \"0600\"\ngroup = \"x\"\n[network]\nsecurity = \"plain\"\nkey_file = \"/x\"\ninterface "
        "= \"x\"\nlanes = 2\nheartbeat_ms = "
        "100\nsilent_ms = "
        "900\npeer_timeout_s = 1\nround_deadline_s = 1\nmax_late_s = 1\ncredit_mib = 1\n[gpu]\nmemory_limit_mib = "
        "1\nstate = \"host\"\nmax_multiprocessors = 5\nbatch_elements = 6\n[state]\nkeep_minutes = 2\nsnapshot_steps = "
        "3\npinned_snapshots = 4\npinned_limit_mib = 5\npinned_days = 6\n[nodes]\ndns = \"\"\nhosts = \"\"\ncount = "
        "5\nport = 6\nkeys = \"/x\"\n[codec]\nbudget_ms_per_step = "
        "0\nbudget_bytes_per_step = 0\nstep_aside = true\ndefault "
        "= \"all | "
        "bf16\"\nsmall = "
        "\"all | f32\"\nsmall_elements = 1\nsmall_share = 0\nplan = \"sharded\"\ndown = \"all | sign\"\n" +
        nodes + "[[node]]\nname = \"b\"\naddress = \"192.0.2.8\"\n");
    ASSERT_TRUE(running.is_ok() && fresh.is_ok()) << fresh.status().to_string();
    take_reloadable_keys(*running, *fresh);
    for (const auto& key : config_keys()) {
        EXPECT_EQ(key.text(*running) == key.text(*fresh), key.is_reloadable) << key.dotted();
        EXPECT_EQ(running->origins.at(key.dotted()) == "file", key.is_reloadable) << key.dotted();
    }
    EXPECT_EQ(running->nodes.size(), 1U) << "security has changed, and with it what the list has to hold";
    auto more = *fresh;
    more.security = running->security;
    more.nodes[0].public_key = "a new key of its own";
    take_reloadable_keys(*running, more);
    EXPECT_EQ(running->nodes.size(), 2U);
    EXPECT_EQ(running->nodes[0].public_key, "a new key of its own");
    auto moved = more;
    moved.nodes = {{"a", "192.0.2.9"}};
    take_reloadable_keys(*running, moved);
    EXPECT_EQ(running->nodes.size(), 2U) << "its own address has changed";
}

}  // namespace
}  // namespace gradsieve::daemon
