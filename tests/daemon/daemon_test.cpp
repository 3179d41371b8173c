// The daemon as one object, with its threads: started, reloaded and stopped in this process, looked at through its
// socket and status page.
#include "daemon/daemon.hpp"

#include "daemon/config_key_file.hpp"
#include "tests/daemon/daemon_testing.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

namespace gradsieve::daemon::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A TCP port of the loopback, held by nobody but, as long as it lives, this object.
class HeldPort {
public:
    HeldPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof(address);
        EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
        EXPECT_EQ(::listen(socket_.get(), 1), 0);
        EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
        number_ = ntohs(address.sin_port);
    }
    [[nodiscard]] std::uint16_t number() const noexcept { return number_; }
    std::uint16_t release() {
        socket_.reset();
        return number_;
    }

private:
    UniqueFd socket_;
    std::uint16_t number_ = 0;
};

/// One daemon with a folder of its own.
class DaemonTest : public testing::Test {
protected:
    [[nodiscard]] Config config_in(const std::string& name) const {
        Config config;
        EXPECT_EQ(::mkdir((folder_ / name).c_str(), 0700), 0);
        config.socket_path = folder_ / (name + "/gradsieved.sock");
        config.threads = 1;
        config.heartbeat = std::chrono::milliseconds(100);
        config.security = kSecurityPlain;
        return config;
    }
    /// The test fails if it does not start.
    std::unique_ptr<Daemon> start(const Config& config, LogLines& lines) {
        auto started = Daemon::start(config, HandedDescriptors{}, lines.log());
        EXPECT_TRUE(started.is_ok()) << started.status().to_string();
        return started.is_ok() ? std::move(*started) : nullptr;
    }
    static shm::StatusSnapshot page_of(const Config& config) {
        return shm::read_status_page(shm::status_page_path(config.socket_path)).value();
    }
    static json document_of(const Config& config) { return json::parse(page_of(config).document); }

    shm::TempFolder folder_;
    LogLines lines_;
};

TEST_F(DaemonTest, Live_from_start_to_stop_and_its_socket_is_gone_afterwards) {
    const auto config = config_in("a");
    auto daemon = start(config, lines_);
    ASSERT_TRUE(daemon);
    EXPECT_EQ(page_of(config).health, shm::DaemonHealth::kLive) << "complete before start returns";
    EXPECT_EQ(document_of(config).at("daemon").at("state"), "running");
    EXPECT_THAT(daemon->summary(),
                AllOf(HasSubstr("node alone"), HasSubstr(config.socket_path), HasSubstr("no peers")));
    const auto tick = daemon->tick();
    EXPECT_TRUE(wait_until([&] { return daemon->tick() > tick + 2; })) << "the conductor's thread runs";
    EXPECT_TRUE(shm::LocalConnection::connect(config.socket_path, shm::soon()).is_ok());
    daemon->stop();
    EXPECT_EQ(page_of(config).health, shm::DaemonHealth::kStopped);
    daemon->stop();  // once more does nothing
    daemon.reset();
    EXPECT_NE(::access(config.socket_path.c_str(), F_OK), 0);
}
TEST_F(DaemonTest, Socket_of_another_daemon_is_refused_naming_its_process) {
    const auto config = config_in("a");
    const auto first = start(config, lines_);
    const auto second = Daemon::start(config, HandedDescriptors{}, lines_.log());
    ASSERT_FALSE(second.is_ok());
    EXPECT_EQ(second.error().code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(second.error().text(), AllOf(HasSubstr(config.socket_path), HasSubstr(std::to_string(::getpid()))));
    EXPECT_EQ(page_of(config).health, shm::DaemonHealth::kLive) << "the first one goes on";
}
TEST_F(DaemonTest, Handed_listener_is_served_and_left_in_place) {
    auto config = config_in("a");
    auto listener = shm::LocalListener::make({.path = config.socket_path}).value();
    auto started =
        Daemon::start(config, HandedDescriptors{.listener = shm::duplicate(listener.fd()), .kept = {}}, lines_.log());
    ASSERT_TRUE(started.is_ok()) << started.status().to_string();
    auto caller = shm::LocalConnection::connect(config.socket_path, shm::soon()).value();
    ASSERT_TRUE(caller.send(Bytes(10), {}).is_ok());
    EXPECT_TRUE(caller.receive(shm::soon()).is_ok()) << "an answer, if only a refusal";
    started->reset();
    EXPECT_EQ(::access(config.socket_path.c_str(), F_OK), 0) << "the service manager keeps it across restarts";
}
TEST_F(DaemonTest, Processors_that_do_not_exist_are_refused) {
    auto config = config_in("a");
    config.cpus = "1023";
    const auto started = Daemon::start(config, HandedDescriptors{}, lines_.log());
    ASSERT_FALSE(started.is_ok());
    EXPECT_THAT(started.error().to_string(),
                AllOf(HasSubstr("invalid-argument: daemon.cpus = \"1023\""), HasSubstr("CPUs that exist")));
}
TEST_F(DaemonTest, Port_that_is_held_is_refused_naming_the_holder) {
    auto config = config_in("a");
    const HeldPort held;
    HeldPort other;
    config.nodes = {{"a", "127.0.0.1", held.number()}, {"b", "127.0.0.1", other.release()}};
    const auto started = Daemon::start(config, HandedDescriptors{}, lines_.log());
    ASSERT_FALSE(started.is_ok());
    EXPECT_EQ(started.error().code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(started.error().text(),
                AllOf(HasSubstr(std::to_string(held.number())), HasSubstr(std::to_string(::getpid()))));
}
TEST_F(DaemonTest, Two_of_them_find_each_other_and_notice_when_one_stops) {
    auto a = config_in("a");
    auto b = config_in("b");
    HeldPort port_a;
    HeldPort port_b;
    a.nodes = b.nodes = {{"a", "127.0.0.1", port_a.release()}, {"b", "127.0.0.1", port_b.release()}};
    b.self = 1;
    const auto first = start(a, lines_);
    auto second = start(b, lines_);
    EXPECT_THAT(first->summary(), AllOf(HasSubstr("node a"), HasSubstr("peers at 127.0.0.1:")));
    const auto state = [](const Config& config, std::size_t peer) {
        return document_of(config).at("peers").at(peer).at("state").get<std::string>();
    };
    ASSERT_TRUE(wait_until([&] { return state(a, 1) == "up" && state(b, 0) == "up"; }));
    second.reset();
    EXPECT_TRUE(wait_until([&] { return state(a, 1) == "closed"; })) << document_of(a).dump(1);
    EXPECT_TRUE(lines_.has("PEER=b"));
}
TEST_F(DaemonTest, Plain_text_is_warned_of_and_a_single_node_has_nothing_to_warn_of) {
    auto config = config_in("a");
    HeldPort own;
    HeldPort other;
    {
        const auto alone = start(config, lines_);
        EXPECT_EQ(document_of(config).at("security").at("mode"), "none");
        EXPECT_EQ(document_of(config).at("security").at("warning"), "");
        EXPECT_FALSE(lines_.has("plain text"));
    }
    config.nodes = {{"a", "127.0.0.1", own.release()}, {"b", "127.0.0.1", other.release()}};
    const auto daemon = start(config, lines_);
    EXPECT_EQ(document_of(config).at("security").at("mode"), "plain");
    EXPECT_EQ(document_of(config).at("security").at("warning"), kPlainTextWarning);
    EXPECT_TRUE(lines_.has(std::string("warning ") + kPlainTextWarning));
}
TEST_F(DaemonTest, Without_its_key_file_an_encrypted_node_does_not_start) {
    auto config = config_in("a");
    const auto pair = transport::make_key_pair().value();
    config.security = kSecurityCurve;
    config.key_file = folder_ / "a/node.key";
    config.nodes = {{"a", "127.0.0.1", 7077, pair.public_key}, {"b", "127.0.0.1", 7078, std::string(40, '0')}};
    const auto started = Daemon::start(config, HandedDescriptors{}, lines_.log());
    ASSERT_FALSE(started.is_ok());
    EXPECT_THAT(started.error().to_string(), AllOf(HasSubstr("not-found: key file"), HasSubstr("gradsieve keygen")));
}
TEST_F(DaemonTest, Keys_of_other_nodes_are_taken_up_by_a_reload_and_an_unknown_one_is_shown) {
    auto a = config_in("a");
    auto b = config_in("b");
    HeldPort port_a;
    HeldPort port_b;
    const auto key_a = transport::make_key_pair().value();
    const auto key_b = transport::make_key_pair().value();
    a.security = b.security = kSecurityCurve;
    a.key_file = folder_ / "a/node.key";
    b.key_file = folder_ / "b/node.key";
    ASSERT_TRUE(write_key_file(a.key_file, key_a.secret_key, false).is_ok());
    ASSERT_TRUE(write_key_file(b.key_file, key_b.secret_key, false).is_ok());
    a.nodes = b.nodes = {{"a", "127.0.0.1", port_a.release(), key_a.public_key},
                         {"b", "127.0.0.1", port_b.release(), key_b.public_key}};
    b.self = 1;
    auto stale = a;  // a does not know yet that b has a new key
    stale.nodes[1].public_key = transport::make_key_pair().value().public_key;
    const auto first = start(stale, lines_);
    LogLines lines_b;
    const auto second = start(b, lines_b);
    EXPECT_EQ(document_of(a).at("security").at("mode"), "curve");
    EXPECT_EQ(document_of(a).at("security").at("public_key"), key_a.public_key);
    ASSERT_TRUE(wait_until([&] { return document_of(a).at("security").at("keys_refused") > 3; }));
    EXPECT_THAT(document_of(a).at("security").at("last_refusal").get<std::string>(),
                HasSubstr("key " + key_b.public_key + " from 127.0.0.1 refused"));
    ASSERT_TRUE(wait_until([&] { return document_of(b).at("peers").at(0).at("handshake") != ""; }));
    EXPECT_THAT(document_of(b).at("peers").at(0).at("handshake").get<std::string>(), HasSubstr("key refused by a ("));
    EXPECT_TRUE(lines_b.has("PEER=a"));
    first->reload(a);
    EXPECT_TRUE(wait_until([&] {
        return document_of(a).at("peers").at(1).at("state") == "up" &&
               document_of(b).at("peers").at(0).at("state") == "up";
    })) << document_of(a).dump(1);
    EXPECT_TRUE(wait_until([&] { return document_of(b).at("peers").at(0).at("handshake") == ""; }));
    auto other_own = a;
    other_own.nodes[0].public_key = transport::make_key_pair().value().public_key;
    first->reload(other_own);
    ASSERT_TRUE(wait_until([&] { return lines_.has("error new node list not applied: key file"); }));
    EXPECT_EQ(document_of(a).at("peers").at(1).at("state"), "up") << "the old one goes on";
}
TEST_F(DaemonTest, Reload_applies_limits_and_level_and_names_what_needs_a_restart) {
    const auto config = config_in("a");
    const auto daemon = start(config, lines_);
    auto fresh = config;
    fresh.memory_limit_bytes = ByteCount{777} << 20U;
    fresh.log_level = "error";
    fresh.threads = 2;
    daemon->reload(fresh);
    EXPECT_TRUE(
        wait_until([&] { return document_of(config).at("daemon").at("memory_limit_bytes") == ByteCount{777} << 20U; }));
    EXPECT_TRUE(wait_until([&] { return !lines_.log().is_enabled(LogLevel::kWarning); }));
    EXPECT_TRUE(lines_.has("warning daemon.threads has changed: it is applied at the next restart"));
    EXPECT_EQ(document_of(config).at("daemon").at("threads"), 1);
}
TEST_F(DaemonTest, Reload_takes_up_another_list_of_nodes_and_says_if_it_cannot) {
    auto config = config_in("a");
    HeldPort own;
    const HeldPort first;
    const HeldPort second;
    config.nodes = {{"a", "127.0.0.1", own.release()}, {"b", "127.0.0.1", first.number()}};
    const auto daemon = start(config, lines_);
    EXPECT_EQ(document_of(config).at("peers").size(), 2U);
    auto broken = config;
    broken.nodes.push_back({"c", "127.0.0.1", first.number()});  // b has that already
    daemon->reload(broken);
    ASSERT_TRUE(wait_until([&] { return document_of(config).at("peers").empty(); }));
    ASSERT_TRUE(wait_until([&] { return lines_.has("error new node list: "); }));
    EXPECT_TRUE(lines_.has("this node has no peers until the configuration is mended and reloaded"));
    auto mended = config;
    mended.nodes.push_back({"c", "127.0.0.1", second.number()});
    daemon->reload(mended);
    EXPECT_TRUE(wait_until([&] {
        const auto peers = document_of(config).at("peers");
        return peers.size() == 3 && peers[2].at("name") == "c";
    })) << document_of(config).dump(1);
    auto moved = config;
    moved.nodes[0].port = second.number();
    daemon->reload(moved);
    EXPECT_TRUE(lines_.has("warning node has changed: it is applied at the next restart")) << "our own port";
}

}  // namespace
}  // namespace gradsieve::daemon::test
