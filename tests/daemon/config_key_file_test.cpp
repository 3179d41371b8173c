// The file with the secret key: who may read it, what it may hold, and that its secret is in no text.
#include "daemon/config_key_file.hpp"

#include "tests/daemon/config_fixture.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

struct KeyFileTest : ConfigTest {
    const transport::KeyPair pair = transport::make_key_pair().value();
    const std::string path = (folder / "node.key").string();

    [[nodiscard]] std::string error_of_read(const std::string& text, mode_t mode = 0600) const {
        static_cast<void>(write_file(text, "node.key"));
        EXPECT_EQ(::chmod(path.c_str(), mode), 0);
        return error_of_file();
    }
    [[nodiscard]] std::string error_of_file() const {
        const auto read = read_key_file(path);
        const auto error = read.is_ok() ? "read" : read.error().to_string();
        EXPECT_EQ(error.find(pair.secret_key.text()), std::string::npos) << "a secret in a text";
        return error;
    }
    [[nodiscard]] std::string secret() const { return std::string(pair.secret_key.text()); }
    [[nodiscard]] std::string content() const {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    [[nodiscard]] mode_t mode_of(const std::string& file) const {
        struct stat facts {};
        EXPECT_EQ(::stat(file.c_str(), &facts), 0) << file;
        return facts.st_mode & 07777U;
    }
};

TEST_F(KeyFileTest, Written_file_is_the_owners_alone_and_reads_back) {
    for (const mode_t mask : {0022U, 0077U, 0777U}) {
        std::filesystem::remove(path);
        const auto before = ::umask(mask);
        const auto written = write_key_file(path, pair.secret_key, false);
        ::umask(before);
        ASSERT_TRUE(written.is_ok()) << written.to_string();
        EXPECT_EQ(mode_of(path), 0600U) << mask;
        EXPECT_EQ(content(), secret() + "\n");
        EXPECT_EQ(read_key_file(path).value().text(), pair.secret_key.text());
    }
}
TEST_F(KeyFileTest, Nothing_is_overwritten_unless_asked) {
    ASSERT_TRUE(write_key_file(path, pair.secret_key, false).is_ok());
    const auto other = transport::make_key_pair().value();
    const auto again = write_key_file(path, other.secret_key, false);
    EXPECT_EQ(again.code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(again.text(), "key file " + path +
                                ": File exists: it is written anew into a folder that this user may write to; give "
                                "another name, or replace it with --force");
    EXPECT_EQ(content(), secret() + "\n");
    ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
    ASSERT_TRUE(write_key_file(path, other.secret_key, true).is_ok());
    EXPECT_EQ(read_key_file(path).value().text(), other.secret_key.text());
    EXPECT_EQ(mode_of(path), 0600U);
    EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}
TEST_F(KeyFileTest, A_link_is_not_written_through) {
    std::filesystem::create_symlink(folder / "elsewhere", path);
    EXPECT_EQ(write_key_file(path, pair.secret_key, false).code(), StatusCode::kAlreadyExists);
    EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere"));
}
TEST_F(KeyFileTest, Places_that_cannot_be_written_say_so) {
    EXPECT_THAT(write_key_file((folder / "none" / "node.key").string(), pair.secret_key, false).to_string(),
                AllOf(HasSubstr("not-found: "), HasSubstr("make the folder first")));
    std::filesystem::create_directory(path);
    EXPECT_FALSE(write_key_file(path, pair.secret_key, true).is_ok()) << "a folder is in the way";
    EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}
TEST_F(KeyFileTest, Anybody_else_who_could_read_or_write_it_is_a_refusal) {
    for (const mode_t mode : {0600U, 0400U}) EXPECT_EQ(error_of_read(secret() + "\n", mode), "read");
    for (const mode_t mode : {0640U, 0604U, 0620U, 0602U, 0610U, 0666U}) {
        char octal[8];
        std::snprintf(octal, sizeof octal, "%04o", mode);
        EXPECT_EQ(error_of_read(secret() + "\n", mode),
                  "permission-denied: key file " + path + ": mode " + octal +
                      " lets others than its owner in: allowed is 0600 or 0400; chmod 600 " + path +
                      ", and make a new key if somebody may have read it");
    }
}
TEST_F(KeyFileTest, A_file_of_another_user_is_a_refusal) {
    if (::geteuid() != 0) GTEST_SKIP() << "skipped: only root can give a file away";
    static_cast<void>(write_file(secret() + "\n", "node.key"));
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    EXPECT_THAT(error_of_file(), HasSubstr("it belongs to user 65534, who could read it: allowed are this user (0)"));
}
TEST_F(KeyFileTest, The_service_managers_credentials_may_show_an_access_lists_mask) {
    ASSERT_EQ(::setenv("CREDENTIALS_DIRECTORY", folder.c_str(), 1), 0);
    EXPECT_EQ(error_of_read(secret(), 0440), "read");
    EXPECT_THAT(error_of_read(secret(), 0444), HasSubstr("mode 0444 lets others"));
    EXPECT_THAT(error_of_read(secret(), 0460), HasSubstr("mode 0460 lets others"));
    ASSERT_EQ(::unsetenv("CREDENTIALS_DIRECTORY"), 0);
    EXPECT_THAT(error_of_read(secret(), 0440), HasSubstr("mode 0440 lets others"));
}
TEST_F(KeyFileTest, Only_one_key_and_a_line_end_are_a_key_file) {
    for (const auto& good : {secret(), secret() + "\n", secret() + "\r\n"}) EXPECT_EQ(error_of_read(good), "read");
    for (const auto& bad : {std::string(), std::string("\n"), secret().substr(1), secret() + "x", " " + secret(),
                            secret() + "\n" + secret(), std::string(100'000, '0'), std::string(40, '#')})
        EXPECT_EQ(error_of_read(bad), "invalid-argument: key file " + path + ": " + std::to_string(bad.size()) +
                                          " bytes that are no key: allowed is one line of 40 characters of Z85; make "
                                          "it with 'gradsieve keygen'");
}
TEST_F(KeyFileTest, What_is_missing_or_no_file_is_named) {
    EXPECT_EQ(error_of_file(), "not-found: key file " + path +
                                   ": No such file or directory: needed is this node's secret key, readable by the "
                                   "daemon alone; make it with 'gradsieve keygen', or correct key_file in [network]");
    std::filesystem::create_directory(path);
    EXPECT_THAT(error_of_file(), HasSubstr("not a regular file"));
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(error_of_file(), HasSubstr("not a regular file")) << "and nobody waited for a writer";
}
TEST_F(KeyFileTest, The_file_has_to_be_the_one_of_this_node) {
    const auto other = transport::make_key_pair().value();
    Config config;
    config.key_file = path;
    config.nodes = {{"a", "192.0.2.7", 7077, pair.public_key}, {"b", "192.0.2.8", 7077, other.public_key}};
    EXPECT_TRUE(is_encrypted(config));
    ASSERT_TRUE(write_key_file(path, pair.secret_key, true).is_ok());
    EXPECT_EQ(load_node_key(config).value().text(), pair.secret_key.text());
    config.self = 1;
    EXPECT_EQ(
        load_node_key(config).status().to_string(),
        "mismatch: key file " + path + ": its public half is " + pair.public_key +
            ", that of node 'a': allowed is that of this node 'b', " + other.public_key +
            "; enter the first as public_key of its [[node]] on all nodes, or use the key file that belongs to it");
    config.nodes[0].public_key = std::string(40, '0');
    EXPECT_THAT(load_node_key(config).status().text(), HasSubstr(", no node's: "));
    config.nodes[1].public_key = secret();
    const auto mixed_up = load_node_key(config).status().to_string();
    EXPECT_THAT(mixed_up, HasSubstr("it holds the same as public_key of node 'b'"));
    EXPECT_EQ(mixed_up.find(secret()), std::string::npos);
}
TEST_F(KeyFileTest, Plain_text_and_single_nodes_are_not_encrypted) {
    Config config;
    EXPECT_FALSE(is_encrypted(config));
    config.nodes = {{"a", "192.0.2.7"}};
    EXPECT_FALSE(is_encrypted(config));
    config.nodes.push_back({"b", "192.0.2.8"});
    EXPECT_TRUE(is_encrypted(config));
    config.security = kSecurityPlain;
    EXPECT_FALSE(is_encrypted(config));
}

}  // namespace
}  // namespace gradsieve::daemon
