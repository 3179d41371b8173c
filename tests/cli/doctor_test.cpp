#include "cli/doctor.hpp"

#include "cli/tcp_probe.hpp"
#include "daemon/config_key_file.hpp"
#include "tests/cli/cli_fixture.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

namespace gradsieve::cli {
namespace {

using testing::HasSubstr;

/// A socket bound to a loopback port that the kernel chose; nobody can connect until it listens.
class LoopbackPort {
public:
    LoopbackPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof(address);
        EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
        EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
        port_ = ntohs(address.sin_port);
    }
    void listen() const { EXPECT_EQ(::listen(socket_.get(), 4), 0); }
    [[nodiscard]] std::uint16_t port() const { return port_; }

private:
    UniqueFd socket_;
    std::uint16_t port_ = 0;
};

PageReading reading_of(ExitCode code, const std::string& document) {
    PageReading reading;
    reading.code = code;
    reading.health = {code == ExitCode::kOk ? "live" : "dead", 4711, 0.2, false, "/run/gradsieve/status", "", ""};
    reading.document = document;
    return reading;
}

TEST(Doctor, Findings_have_a_line_each_advice_below_and_totals) {
    const std::vector<Finding> findings = {{Grade::kOk, "daemon", "live, pid 1", ""},
                                           {Grade::kWarn, "memory", "little\x1b[2J", "free some"},
                                           {Grade::kFail, "port", "7077 is held", "end that program"}};
    EXPECT_EQ(render_findings(findings, {100, 0, false, true}),
              "ok    daemon         live, pid 1\n"
              "warn  memory         little?[2J\n"
              "                     → free some\n"
              "FAIL  port           7077 is held\n"
              "                     → end that program\n"
              "1 ok, 1 to look at, 1 failed\n");
}
TEST(Doctor, Long_findings_wrap_in_their_column) {
    const auto text = render_findings({{Grade::kOk, "daemon", std::string(30, 'x') + " " + std::string(30, 'y'), ""}},
                                      {60, 0, false, true});
    EXPECT_EQ(text, "ok    daemon         " + std::string(30, 'x') + "\n                     " + std::string(30, 'y') +
                        "\n1 ok, 0 to look at, 0 failed\n");
}

TEST(Doctor, Port_is_free_or_ours_or_taken_by_a_named_program) {
    const LoopbackPort port;
    const daemon::NodeConfig self{"a", "127.0.0.1", port.port()};
    EXPECT_EQ(check_port(self, 0).text, std::to_string(port.port()) + " is free") << "bound, but nobody listens";
    EXPECT_EQ(check_port(self, 4711).grade, Grade::kFail) << "the daemon runs, but not there";
    port.listen();
    const auto ours = check_port(self, ::getpid());
    EXPECT_EQ(ours.grade, Grade::kOk);
    EXPECT_EQ(ours.text, std::to_string(port.port()) + " is held by the daemon");
    const auto taken = check_port(self, 0);
    EXPECT_EQ(taken.grade, Grade::kFail);
    EXPECT_THAT(taken.text, HasSubstr("is held by "));
    EXPECT_THAT(taken.text, HasSubstr("(pid " + std::to_string(::getpid()) + ")"));
}
TEST(Doctor, Peers_that_take_connections_are_told_from_those_that_do_not) {
    const LoopbackPort open;
    const LoopbackPort closed;
    open.listen();
    const std::vector<daemon::NodeConfig> nodes = {{"self", "127.0.0.1", 1},
                                                   {"up", "127.0.0.1", open.port()},
                                                   {"down", "127.0.0.1", closed.port()},
                                                   {"lost", "no-such-host.invalid", 7077}};
    const auto findings = check_peers(nodes, 0, std::chrono::seconds(10));
    ASSERT_EQ(findings.size(), 3U);
    EXPECT_EQ(findings[0].grade, Grade::kOk);
    EXPECT_EQ(findings[0].text, "127.0.0.1:" + std::to_string(open.port()) + " takes connections");
    EXPECT_EQ(findings[1].grade, Grade::kFail);
    EXPECT_EQ(findings[1].text, "127.0.0.1:" + std::to_string(closed.port()) + ": Connection refused");
    EXPECT_EQ(findings[2].grade, Grade::kFail);
    EXPECT_THAT(findings[2].text, testing::StartsWith("no-such-host.invalid:7077: "));
}

TEST(Doctor, Sealed_memory_works_on_any_host_that_runs_this) {
    EXPECT_EQ(check_sealed_memory().grade, Grade::kOk) << check_sealed_memory().text;
}
TEST(Doctor, Locked_memory_limit_is_read_and_judged) {
    const auto limits = [](const std::string& soft) {
        return "Limit  Soft  Hard  Units\nMax locked memory         " + soft + " x bytes\n";
    };
    EXPECT_EQ(check_locked_memory(limits("unlimited")).text, "is not limited");
    EXPECT_EQ(check_locked_memory(limits("8388608")).grade, Grade::kWarn);
    EXPECT_EQ(check_locked_memory(limits("8388608")).text, "limit is 8.00 MiB");
    EXPECT_EQ(check_locked_memory(limits("67108864")).grade, Grade::kOk);
    EXPECT_EQ(check_locked_memory("").grade, Grade::kWarn);
}
TEST(Doctor, Memory_is_compared_with_what_the_daemon_may_take) {
    const std::string meminfo = "MemTotal:        8388608 kB\nMemFree: 1 kB\nMemAvailable:    4194304 kB\n";
    EXPECT_EQ(check_memory(meminfo, 0).grade, Grade::kOk) << "half of the RAM is exactly there";
    EXPECT_EQ(check_memory(meminfo, 0).text, "4.00 GiB available, the daemon may take 4.00 GiB");
    EXPECT_EQ(check_memory(meminfo, (ByteCount{4} << 30U) + 1).grade, Grade::kWarn);
    EXPECT_EQ(check_memory("", 0).grade, Grade::kWarn);
}

TEST(Doctor, Versions_that_differ_are_a_warning) {
    EXPECT_EQ(
        check_versions(reading_of(ExitCode::kOk, R"({"format":1,"daemon":{"version":")" GRADSIEVE_VERSION R"("}})"))
            .grade,
        Grade::kOk);
    const auto other = check_versions(reading_of(ExitCode::kOk, R"({"format":1,"daemon":{"version":"9.9.9"}})"));
    EXPECT_EQ(other.grade, Grade::kWarn);
    EXPECT_THAT(other.text, HasSubstr("daemon 9.9.9"));
    EXPECT_EQ(check_versions(reading_of(ExitCode::kNeverRan, "")).grade, Grade::kOk) << "nothing to compare with";
}
TEST(Doctor, Complaints_of_the_daemon_are_passed_on) {
    const auto findings = check_document(reading_of(ExitCode::kOk, golden_text("trouble.json")));
    ASSERT_EQ(findings.size(), 7U);
    EXPECT_EQ(findings[0].subject, "status page");
    EXPECT_EQ(findings[1].grade, Grade::kWarn);
    EXPECT_THAT(findings[1].text, HasSubstr("traffic between nodes is plain text"));
    EXPECT_THAT(findings[2].text, HasSubstr("17 connections refused; the last: connection that wants CURVE"));
    EXPECT_EQ(findings[3].grade, Grade::kFail);
    EXPECT_EQ(findings[3].subject, "peer gpu-node-with-a-long-name-020");
    EXPECT_THAT(findings[3].text, HasSubstr("wants CURVE: this node speaks plain text"));
    EXPECT_THAT(findings[4].text, HasSubstr("attach of pid 7133"));
    EXPECT_THAT(findings[5].text, HasSubstr("12 from gpu-node-with-a-long-name-018 refused"));
    EXPECT_EQ(findings[6].grade, Grade::kFail);
    EXPECT_THAT(findings[6].text, HasSubstr("1 steps of job 'language-model"));
    EXPECT_EQ(check_document(reading_of(ExitCode::kOk, "[]")).at(0).grade, Grade::kFail);
    EXPECT_TRUE(check_document(reading_of(ExitCode::kNeverRan, "")).empty());
}
TEST_F(CliTest, Doctor_holds_the_key_against_the_configuration) {
    const auto pair = transport::make_key_pair().value();
    daemon::Config config;
    config.key_file = folder() + "/node.key";
    config.origins["network.key_file"] = "file";
    config.nodes = {{"a", "192.0.2.1", 7077, pair.public_key}, {"b", "192.0.2.2", 7077, std::string(40, '0')}};
    const auto daemon_with = [](const std::string& key) {
        return reading_of(ExitCode::kOk, R"({"format":1,"security":{"mode":"curve","public_key":")" + key + "\"}}");
    };
    EXPECT_EQ(check_key(config, daemon_with(pair.public_key)).grade, Grade::kOk);
    const auto other = check_key(config, daemon_with("another"));
    EXPECT_EQ(other.grade, Grade::kFail);
    EXPECT_EQ(other.text, "the daemon runs with another, the configuration says " + pair.public_key);
    const auto nobody = reading_of(ExitCode::kStopped, "");
    EXPECT_EQ(check_key(config, nobody).grade, Grade::kFail);
    EXPECT_THAT(check_key(config, nobody).text, HasSubstr("No such file or directory"));
    ASSERT_TRUE(daemon::write_key_file(config.key_file, pair.secret_key, false).is_ok());
    EXPECT_EQ(check_key(config, nobody).grade, Grade::kOk);
    EXPECT_EQ(check_key(config, nobody).text, config.key_file + " is this node's, " + pair.public_key);
    std::filesystem::permissions(config.key_file, std::filesystem::perms(0644));
    EXPECT_THAT(check_key(config, nobody).text, HasSubstr("mode 0644 lets others"));
}
TEST(Doctor, Health_names_what_to_do) {
    EXPECT_EQ(check_health(reading_of(ExitCode::kOk, "")).text, "live, pid 4711, heartbeat 0.2 s ago");
    for (const auto code : {ExitCode::kHung, ExitCode::kDead, ExitCode::kStopped}) {
        EXPECT_EQ(check_health(reading_of(code, "")).grade, Grade::kFail);
        EXPECT_FALSE(check_health(reading_of(code, "")).advice.empty());
    }
}
TEST_F(CliTest, Doctor_tells_sockets_that_answer_from_those_that_do_not) {
    EXPECT_THAT(check_socket(folder() + "/none.sock").text, HasSubstr("No such file or directory"));
    std::ofstream(folder() + "/file") << "x";
    EXPECT_THAT(check_socket(folder() + "/file").text, HasSubstr("not a socket"));
    {
        const auto listener = shm::LocalListener::make({.path = socket(), .mode = 0600, .group = ""});
        ASSERT_TRUE(listener.is_ok()) << listener.error().to_string();
        const auto finding = check_socket(socket());
        EXPECT_EQ(finding.grade, Grade::kOk) << finding.text;
        EXPECT_THAT(finding.text, HasSubstr("answers (mode 0600, "));
    }
}

}  // namespace
}  // namespace gradsieve::cli
