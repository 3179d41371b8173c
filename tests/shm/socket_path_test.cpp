#include "shm/local_socket.hpp"
#include "shm/socket_address.hpp"
#include "tests/shm/shm_test_support.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace gradsieve::shm {
namespace {

/// Sets a variable for one test and puts the old value back.
class Variable {
public:
    Variable(std::string name, const char* value) : name_(std::move(name)) {
        if (const char* old = std::getenv(name_.c_str()); old != nullptr) old_ = old, was_set_ = true;
        set(value);
    }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { set(was_set_ ? old_.c_str() : nullptr); }

private:
    void set(const char* value) const {
        if (value != nullptr) {
            ::setenv(name_.c_str(), value, 1);
        } else {
            ::unsetenv(name_.c_str());
        }
    }
    std::string name_;
    std::string old_;
    bool was_set_ = false;
};

constexpr const char* kSystemPath = "/run/gradsieve/gradsieved.sock";

TEST(SocketPath, Named_socket_comes_first_whether_it_exists_or_not) {
    const Variable named("GRADSIEVE_SOCKET", "/somewhere/else.sock");
    EXPECT_EQ(default_socket_path(), "/somewhere/else.sock");
}

/// A host on which exactly `present` exists.
SocketHints host_with(std::vector<std::string> present, unsigned user_id, std::string runtime_folder) {
    return {"", std::move(runtime_folder), user_id, [present = std::move(present)](const std::string& path) {
                return std::find(present.begin(), present.end(), path) != present.end();
            }};
}

TEST(SocketPath, Own_daemon_comes_before_the_systems) {
    const std::string own = "/elsewhere/gradsieve/gradsieved.sock";
    EXPECT_EQ(find_socket_path(host_with({own, kSystemPath}, 1000, "/elsewhere")), own);
    EXPECT_EQ(find_socket_path(host_with({kSystemPath}, 1000, "/elsewhere")), kSystemPath);
}
TEST(SocketPath, Without_the_variable_the_users_runtime_folder_is_looked_into) {
    const std::string own = "/run/user/1000/gradsieve/gradsieved.sock";
    EXPECT_EQ(find_socket_path(host_with({own, kSystemPath}, 1000, "")), own);
    EXPECT_EQ(find_socket_path(host_with({own, kSystemPath}, 1000, "relative")), own) << "as if it were not set";
    EXPECT_EQ(find_socket_path(host_with({own, kSystemPath}, 1000, "/elsewhere")), kSystemPath) << "the variable wins";
    EXPECT_EQ(find_socket_path(host_with({own, kSystemPath}, 1001, "")), kSystemPath) << "another user's is not ours";
}
TEST(SocketPath, Roots_daemon_is_the_systems) {
    EXPECT_EQ(find_socket_path(host_with({"/run/user/0/gradsieve/gradsieved.sock", kSystemPath}, 0, "")), kSystemPath);
}
TEST(SocketPath, Where_nothing_is_the_systems_socket_is_named) {
    EXPECT_EQ(find_socket_path(host_with({}, 1000, "/elsewhere")), kSystemPath);
    EXPECT_EQ(find_socket_path(host_with({}, 0, "")), kSystemPath);
}
TEST(SocketPath, Own_daemon_is_found_in_this_processs_environment) {
    TempFolder folder;
    const Variable unnamed("GRADSIEVE_SOCKET", nullptr);
    const Variable runtime("XDG_RUNTIME_DIR", (folder / "run").c_str());
    EXPECT_EQ(default_socket_path(), kSystemPath) << "nothing is there";
    std::filesystem::create_directories(folder / "run/gradsieve");
    std::ofstream(folder / "run/gradsieve/gradsieved.sock").flush();
    EXPECT_EQ(default_socket_path(), folder / "run/gradsieve/gradsieved.sock");
}

TEST(SocketPath, Status_page_lies_beside_the_socket) {
    EXPECT_EQ(status_page_path("/run/gradsieve/gradsieved.sock"), "/run/gradsieve/status");
    EXPECT_EQ(status_page_path("d.sock"), "status");
    EXPECT_EQ(status_page_path("/d.sock"), "/status");
}

TEST(SocketPath, Address_holds_107_bytes_and_not_one_more) {
    EXPECT_TRUE(socket_address(std::string(107, 'x')).is_ok());
    EXPECT_EQ(socket_address(std::string(108, 'x')).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(socket_address("").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gradsieve::shm
