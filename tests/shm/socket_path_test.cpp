#include "shm/local_socket.hpp"
#include "shm/socket_address.hpp"
#include "tests/shm/shm_test_support.hpp"

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

TEST(SocketPath, Own_daemon_is_found_where_there_is_no_system_one) {
    if (std::filesystem::exists(kSystemPath)) GTEST_SKIP() << "a system daemon has its socket here";
    TempFolder folder;
    const Variable unnamed("GRADSIEVE_SOCKET", nullptr);
    const Variable runtime("XDG_RUNTIME_DIR", (folder / "run").c_str());
    EXPECT_EQ(default_socket_path(), kSystemPath) << "nothing is there: the usual place is the one to name";
    std::filesystem::create_directories(folder / "run/gradsieve");
    std::ofstream(folder / "run/gradsieve/gradsieved.sock").flush();
    EXPECT_EQ(default_socket_path(), folder / "run/gradsieve/gradsieved.sock");
}

TEST(SocketPath, Without_any_hint_it_is_the_system_socket) {
    const Variable unnamed("GRADSIEVE_SOCKET", "");
    const Variable runtime("XDG_RUNTIME_DIR", nullptr);
    EXPECT_EQ(default_socket_path(), kSystemPath);
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
