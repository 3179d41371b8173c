// gradsieve keygen: what it writes, what it prints, and what it leaves alone.
#include "cli/commands.hpp"
#include "daemon/config_key_file.hpp"
#include "tests/cli/cli_fixture.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

namespace gradsieve::cli {
namespace {

using testing::HasSubstr;

class KeygenTest : public CliTest {
protected:
    struct Ran {
        ExitCode code;
        std::string out, error;
    };
    static Ran run(const std::vector<std::string>& arguments) {
        std::ostringstream out;
        std::ostringstream error;
        Console console{out, error, {100, 0, false, true}, false};
        const auto code = run_command_line(arguments, console);
        return {code, out.str(), error.str()};
    }
    static std::string secret_in(const std::string& path) {
        return std::string(daemon::read_key_file(path).value().text());
    }
};

TEST_F(KeygenTest, Secret_goes_into_a_private_file_and_only_the_public_half_is_printed) {
    for (const auto& out : {folder(), folder() + "/mine"}) {
        const auto path = out == folder() ? out + "/node.key" : out;
        const auto ran = run({"keygen", "--out", out});
        ASSERT_EQ(ran.code, ExitCode::kOk) << ran.error;
        ASSERT_EQ(ran.out.size(), transport::kKeyTextBytes + 1);
        const auto secret = secret_in(path);
        EXPECT_EQ(ran.out, transport::public_key_of(transport::SecretKey(secret)).value() + "\n");
        EXPECT_EQ(ran.error, "gradsieve: the secret key is in " + path +
                                 ", for its owner alone; enter the public one above as public_key of this node's "
                                 "[[node]] on all nodes\n");
        EXPECT_EQ((ran.out + ran.error).find(secret), std::string::npos);
        struct stat facts {};
        ASSERT_EQ(::stat(path.c_str(), &facts), 0);
        EXPECT_EQ(facts.st_mode & 07777U, 0600U);
        EXPECT_EQ(facts.st_uid, ::geteuid());
    }
}
TEST_F(KeygenTest, A_key_that_is_there_stays_unless_forced) {
    const auto first = run({"keygen", "--out", folder()});
    const auto again = run({"keygen", "--out", folder()});
    EXPECT_EQ(again.code, ExitCode::kFailed);
    EXPECT_EQ(again.out, "");
    EXPECT_THAT(again.error, HasSubstr("File exists"));
    EXPECT_THAT(again.error, HasSubstr("--force"));
    EXPECT_EQ(run({"keygen", "--show", "--out", folder()}).out, first.out);
    const auto forced = run({"keygen", "--force", "--out", folder()});
    EXPECT_EQ(forced.code, ExitCode::kOk) << forced.error;
    EXPECT_NE(forced.out, first.out);
    EXPECT_EQ(run({"keygen", "--show", "--out", folder() + "/node.key"}).out, forced.out);
}
TEST_F(KeygenTest, Show_makes_nothing_and_names_what_is_wrong) {
    const auto missing = run({"keygen", "--show", "--out", folder()});
    EXPECT_EQ(missing.code, ExitCode::kFailed);
    EXPECT_THAT(missing.error, HasSubstr("key file " + folder() + "/node.key: No such file or directory"));
    EXPECT_FALSE(std::filesystem::exists(folder() + "/node.key"));
    EXPECT_EQ(run({"keygen", "--show", "--force", "--out", folder()}).code, ExitCode::kFailed);
}
TEST_F(KeygenTest, Left_out_it_lies_where_this_users_daemon_looks) {
    ASSERT_EQ(::setenv("STATE_DIRECTORY", (folder() + "/new/state").c_str(), 1), 0);
    const auto made = run({"keygen"});
    const auto shown = run({"keygen", "--show"});
    ASSERT_EQ(::unsetenv("STATE_DIRECTORY"), 0);
    ASSERT_EQ(made.code, ExitCode::kOk) << made.error;
    EXPECT_EQ(shown.out, made.out);
    EXPECT_TRUE(std::filesystem::exists(folder() + "/new/state/node.key"));
}
TEST_F(KeygenTest, Folder_that_is_not_there_or_anothers_is_told) {
    const auto ran = run({"keygen", "--out", folder() + "/none/node.key"});
    EXPECT_EQ(ran.code, ExitCode::kFailed);
    EXPECT_THAT(ran.error, HasSubstr("make the folder first"));
    if (::geteuid() != 0) GTEST_SKIP() << "skipped: only root can give a folder away";
    std::filesystem::create_directory(folder() + "/theirs");
    ASSERT_EQ(::chown((folder() + "/theirs").c_str(), 65534, 65534), 0);
    EXPECT_THAT(run({"keygen", "--out", folder() + "/theirs"}).error,
                HasSubstr("chown --reference=" + folder() + "/theirs " + folder() + "/theirs/node.key"));
}

}  // namespace
}  // namespace gradsieve::cli
