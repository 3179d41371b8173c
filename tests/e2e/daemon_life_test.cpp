#include "tests/e2e/cluster.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

namespace gradsieve::e2e {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(DaemonLife, Sigterm_ends_open_jobs_with_a_reason_and_the_daemon_with_zero) {
    Cluster cluster(2);
    auto ranks = cluster.ranks(2, {"--steps", "1000000"});
    for (auto& rank : ranks) ASSERT_TRUE(rank.wait_for_line("started")) << rank.output();
    cluster.daemon(0).send_signal(SIGTERM);
    EXPECT_EQ(cluster.daemon(0).wait_for_exit(), 0) << cluster.daemon(0).output();
    for (auto& rank : ranks) {
        const auto error = rank.wait_for_line("error ", Milliseconds(10'000));
        ASSERT_TRUE(error) << rank.output();
        EXPECT_TRUE(contains(*error, "stopping")) << *error;
    }
    EXPECT_EQ(health(cluster.status(0)), "stopped");
    EXPECT_FALSE(std::filesystem::exists(cluster.socket(0))) << "a clean stop removes its socket";
}
TEST(DaemonLife, Status_tells_dead_after_kill_and_live_after_a_restart) {
    Cluster cluster(1);
    cluster.daemon(0).send_signal(SIGKILL);
    ASSERT_TRUE(cluster.daemon(0).wait_for_exit());
    EXPECT_EQ(health(cluster.status(0)), "dead");
    cluster.restart_daemon(0);
    auto ranks = cluster.ranks(2, {"--exact", "1"});
    for (auto& rank : ranks) EXPECT_EQ(rank.wait_for_exit(), 0) << rank.output();
}
TEST(DaemonLife, A_second_daemon_on_the_same_socket_is_refused) {
    Cluster cluster(1);
    auto second = cluster.make_daemon(0);
    EXPECT_EQ(second.wait_for_exit(), 3) << second.output();
    EXPECT_TRUE(contains(second.output(), cluster.socket(0))) << second.output();
}
TEST(DaemonLife, A_port_in_use_names_its_holder) {
    Cluster cluster(2);
    const auto other = cluster.folder() + "/other";
    std::filesystem::create_directories(other);
    const auto ran = run({E2E_DAEMON, "--config", cluster.config_file(), "--node", "a", "--socket",
                          other + "/gradsieved.sock", "--state", other});
    EXPECT_EQ(ran.code, 3) << ran.output;
    EXPECT_TRUE(contains(ran.output, std::to_string(cluster.port(0))) &&
                contains(ran.output, std::to_string(cluster.daemon(0).pid())))
        << ran.output;
}
TEST(DaemonLife, Sighup_applies_limits_and_names_what_needs_a_restart) {
    Cluster cluster(1, "[daemon]\nmemory_limit_mib = 500\n");
    std::ofstream(cluster.config_file()) << "[daemon]\nmemory_limit_mib = 700\nthreads = 2\n";
    cluster.daemon(0).send_signal(SIGHUP);
    EXPECT_TRUE(cluster.wait_for_status(
        0, [](const auto& json) { return json["daemon"]["memory_limit_bytes"] == 700U << 20U; }));
    EXPECT_TRUE(cluster.daemon(0).wait_for_line("", Milliseconds(5'000)));
    cluster.daemon(0).send_signal(SIGTERM);
    ASSERT_TRUE(cluster.daemon(0).wait_for_exit());
    EXPECT_TRUE(contains(cluster.daemon(0).output(), "daemon.threads")) << cluster.daemon(0).output();
}
TEST(DaemonLife, Sighup_takes_up_a_node_that_moved_between_jobs) {
    Cluster cluster(3);
    cluster.daemon(2).send_signal(SIGTERM);
    ASSERT_TRUE(cluster.daemon(2).wait_for_exit());
    const auto moved = free_port();
    std::ofstream config(cluster.config_file());
    config << with_plain_text("");
    for (std::size_t node = 0; node < 3; ++node)
        config << "[[node]]\nname = \"" << static_cast<char>('a' + node)
               << "\"\naddress = \"127.0.0.1\"\nport = " << (node == 2 ? moved : cluster.port(node)) << "\n";
    config.close();
    for (std::size_t node = 0; node < 2; ++node) cluster.daemon(node).send_signal(SIGHUP);
    cluster.restart_daemon(2);
    for (std::size_t node = 0; node < 2; ++node)
        EXPECT_TRUE(cluster.wait_for_status(node, [&](const auto& json) {
            const auto& peer = json["peers"][2];
            return peer["state"] == "up" && peer["address"] == "127.0.0.1:" + std::to_string(moved);
        })) << cluster.status(node).dump(1);
    auto ranks = cluster.ranks(3, {"--codec", "all | f32", "--exact", "1"});
    for (auto& rank : ranks) EXPECT_EQ(rank.wait_for_exit(), 0) << rank.output();
}
TEST(DaemonLife, A_job_beyond_the_memory_limit_is_refused_with_the_figures) {
    Cluster cluster(1, "[daemon]\nmemory_limit_mib = 1\n");
    auto rank = cluster.rank(0, {"--rank", "0", "--world", "1", "--scale", "20000"});
    const auto error = rank.wait_for_line("error start ");
    ASSERT_TRUE(error) << rank.output();
    EXPECT_TRUE(contains(*error, "resource-exhausted") && contains(*error, "memory_limit_mib")) << *error;
}
TEST(DaemonLife, Nothing_is_left_in_dev_shm_and_only_socket_and_status_beside_it) {
    const auto listing = [] {
        std::set<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) names.insert(entry.path().filename());
        return names;
    };
    const auto before = listing();
    Cluster cluster(1);
    for (int round = 0; round < 5; ++round) {
        auto ranks = cluster.ranks(2, {"--steps", "1000000", "--job", "killed-" + std::to_string(round)});
        for (auto& rank : ranks) ASSERT_TRUE(rank.wait_for_line("started")) << rank.output();
        for (auto& rank : ranks) rank.send_signal(SIGKILL);
    }
    EXPECT_TRUE(cluster.wait_for_status(0, [](const auto& json) {
        return json["jobs"].empty() && json["daemon"]["memory_bytes"] == 0;
    })) << cluster.status(0).dump(2);
    cluster.daemon(0).send_signal(SIGKILL);
    ASSERT_TRUE(cluster.daemon(0).wait_for_exit());
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(cluster.folder() + "/a"))
        left.insert(entry.path().filename());
    EXPECT_EQ(left, (std::set<std::string>{"gradsieved.sock", "status"}));
    for (const auto& name : listing()) EXPECT_TRUE(before.count(name) > 0 || !contains(name, "gradsieve")) << name;
}

}  // namespace
}  // namespace gradsieve::e2e
