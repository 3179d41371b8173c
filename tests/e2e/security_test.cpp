// Encrypted clusters of real daemons: they average as in plain text, strangers stay out and are seen, keys are changed.
#include "tests/e2e/cluster.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

namespace gradsieve::e2e {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
    return count;
}

std::set<std::string> digests_of_job(Cluster& cluster) {
    auto ranks = cluster.ranks(4, {"--codec", "topk(0.05) | pow2(bits=4) | auto", "--steps", "30", "--samples", "2"});
    std::set<std::string> found;
    for (auto& rank : ranks) {
        found.insert(rank.wait_for_line("digest ").value_or("none"));
        EXPECT_EQ(rank.wait_for_exit(), 0) << rank.output();
    }
    return found;
}

/// The configuration of two nodes, with these public keys.
void write_nodes(const Cluster& cluster, const std::string& file, const std::string& key_a, const std::string& key_b) {
    std::ofstream config(file);
    for (std::size_t node = 0; node < 2; ++node)
        config << "[[node]]\nname = \"" << static_cast<char>('a' + node)
               << "\"\naddress = \"127.0.0.1\"\nport = " << cluster.port(node) << "\npublic_key = \""
               << (node == 0 ? key_a : key_b) << "\"\n";
}

auto peer_is(std::size_t peer, const std::string& state) {
    return [=](const auto& json) { return json["peers"][peer]["state"] == state; };
}

TEST(Security, Two_encrypted_nodes_average_the_same_bits_as_two_in_plain_text) {
    Cluster plain(2);
    Cluster encrypted(2, "", "127.0.0.1", false, Security::kCurve);
    const auto expected = digests_of_job(plain);
    EXPECT_EQ(expected.size(), 1U);
    EXPECT_EQ(digests_of_job(encrypted), expected);
    const auto security = encrypted.status(0).at("security");
    EXPECT_EQ(security.at("mode"), "curve");
    EXPECT_EQ(security.at("public_key"), encrypted.public_key(0));
    EXPECT_EQ(security.at("keys_refused"), 0);
    EXPECT_EQ(plain.status(0).at("security").at("mode"), "plain");
    EXPECT_TRUE(contains(run({E2E_TOOL, "status", "--socket", plain.socket(0)}).output, "plain text"));
    EXPECT_TRUE(contains(run({E2E_TOOL, "status", "--socket", encrypted.socket(0)}).output, encrypted.public_key(0)));
}
TEST(Security, A_strangers_daemon_is_refused_logged_once_and_seen_on_both_sides) {
    Cluster cluster(2, "[network]\nheartbeat_ms = 100\n", "127.0.0.1", false, Security::kCurve);
    ASSERT_TRUE(cluster.wait_for_status(0, peer_is(1, "up")));
    cluster.kill_daemon(1);
    // It knows everything but b's secret, and takes b's place.
    const auto folder = cluster.folder() + "/stranger";
    std::filesystem::create_directories(folder);
    const auto key = make_key(folder);
    write_nodes(cluster, folder + "/c.toml", cluster.public_key(0), key);
    const auto socket = folder + "/gradsieved.sock";
    Process stranger(
        {E2E_DAEMON, "--config", folder + "/c.toml", "--node", "b", "--socket", socket, "--state", folder});
    ASSERT_TRUE(cluster.wait_for_status(0, [&](const auto& json) {
        return json["security"]["keys_refused"] > 6 &&
               contains(json["security"]["last_refusal"].template get<std::string>(), "key " + key + " from 127.0.0.1");
    })) << cluster.status(0).dump(1);
    EXPECT_NE(cluster.status(0)["peers"][1]["state"], "up");
    const auto told = run({E2E_TOOL, "peers", "--socket", socket}).output;
    EXPECT_TRUE(contains(told, "key refused by a (127.0.0.1:" + std::to_string(cluster.port(0)) + ")")) << told;
    EXPECT_TRUE(contains(run({E2E_TOOL, "status", "--socket", cluster.socket(0)}).output, "key " + key));
    const auto doctor = run({E2E_TOOL, "doctor", folder + "/c.toml", "--node", "b", "--socket", socket});
    EXPECT_EQ(doctor.code, 1);
    EXPECT_TRUE(contains(doctor.output, "key refused by a")) << doctor.output;
    stranger.send_signal(SIGKILL);
    ASSERT_TRUE(stranger.wait_for_exit());
    cluster.restart_daemon(1);
    EXPECT_TRUE(cluster.wait_for_status(0, peer_is(1, "up"))) << "the rightful b comes back";
    cluster.daemon(0).send_signal(SIGTERM);
    ASSERT_TRUE(cluster.daemon(0).wait_for_exit());
    EXPECT_EQ(count_of(cluster.daemon(0).output(), "key " + key), 1U) << cluster.daemon(0).output();
}
TEST(Security, A_new_key_is_taken_up_by_a_reload_between_jobs) {
    Cluster cluster(2, "", "127.0.0.1", false, Security::kCurve);
    ASSERT_TRUE(cluster.wait_for_status(0, peer_is(1, "up")));
    const auto fresh = make_key(cluster.state_folder(1));
    write_nodes(cluster, cluster.config_file(), cluster.public_key(0), fresh);
    for (std::size_t node = 0; node < 2; ++node) cluster.daemon(node).send_signal(SIGHUP);
    ASSERT_TRUE(cluster.wait_for_status(1, [&](const auto& json) { return json["security"]["public_key"] == fresh; }));
    ASSERT_TRUE(cluster.wait_for_status(0, peer_is(1, "up")) && cluster.wait_for_status(1, peer_is(0, "up")))
        << cluster.status(0).dump(1) << cluster.status(1).dump(1);
    EXPECT_EQ(digests_of_job(cluster).size(), 1U);
}
TEST(Security, A_daemon_without_keys_or_with_an_open_key_file_does_not_start) {
    const Cluster cluster(2, "", "127.0.0.1", false, Security::kCurve);
    const auto folder = cluster.folder() + "/other";
    std::filesystem::create_directories(folder);
    const auto start = [&](const std::string& config) {
        return run({E2E_DAEMON, "--config", config, "--node", "a", "--socket", folder + "/gradsieved.sock", "--state",
                    folder});
    };
    const auto missing = start(cluster.config_file());
    EXPECT_EQ(missing.code, 3) << missing.output;
    EXPECT_TRUE(contains(missing.output, folder + "/node.key") && contains(missing.output, "gradsieve keygen"))
        << missing.output;
    std::filesystem::copy_file(cluster.state_folder(0) + "/node.key", folder + "/node.key");
    std::filesystem::permissions(folder + "/node.key", std::filesystem::perms(0640));
    const auto open = start(cluster.config_file());
    EXPECT_EQ(open.code, 3) << open.output;
    EXPECT_TRUE(contains(open.output, "mode 0640 lets others")) << open.output;
    std::ofstream(folder + "/c.toml") << "[[node]]\nname = \"a\"\naddress = \"127.0.0.1\"\n[[node]]\nname = \"b\"\n"
                                         "address = \"127.0.0.2\"\n";
    const auto keyless = start(folder + "/c.toml");
    EXPECT_EQ(keyless.code, 2) << keyless.output;
    EXPECT_TRUE(contains(keyless.output, "security = \"plain\"")) << keyless.output;
}

}  // namespace
}  // namespace gradsieve::e2e
