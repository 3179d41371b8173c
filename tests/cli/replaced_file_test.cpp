#include "cli/replaced_file.hpp"

#include "tests/cli/cli_fixture.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

namespace gradsieve::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string text_in(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}
std::size_t files_in(const std::string& folder) {
    const std::filesystem::directory_iterator all(folder);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_F(CliTest, Replaced_file_has_the_old_text_until_the_new_one_is_whole) {
    const auto path = folder() + "/f.json";
    std::ofstream(path) << "old";
    auto file = ReplacedFile::make(path);
    ASSERT_TRUE(file.is_ok()) << file.error().text();
    EXPECT_EQ(text_in(path), "old");
    ASSERT_TRUE(file->put("new").is_ok());
    EXPECT_EQ(text_in(path), "new");
    EXPECT_EQ(files_in(folder()), 1U);
}
TEST_F(CliTest, Replaced_file_that_is_given_up_leaves_nothing) {
    {
        auto file = ReplacedFile::make(folder() + "/f.json");
        ASSERT_TRUE(file.is_ok());
        const auto moved = std::move(*file);
        EXPECT_EQ(files_in(folder()), 1U);
    }
    EXPECT_EQ(files_in(folder()), 0U);
}
TEST_F(CliTest, Replaced_file_says_what_keeps_it_from_being_written) {
    const auto nowhere = ReplacedFile::make(folder() + "/none/f.json");
    EXPECT_EQ(nowhere.status().text(),
              "--output " + folder() +
                  "/none/f.json: open: No such file or directory: it must be a file in a "
                  "folder that this user may write to; create the folder, or run as its owner");
    std::filesystem::create_directory(folder() + "/folder");
    auto onto_folder = ReplacedFile::make(folder() + "/folder");
    ASSERT_TRUE(onto_folder.is_ok());
    EXPECT_THAT(onto_folder->put("x").text(), AllOf(HasSubstr("--output "), HasSubstr("rename")));
}

}  // namespace
}  // namespace gradsieve::cli
