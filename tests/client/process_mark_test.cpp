#include "client/process_mark.hpp"

#include "forked.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

namespace gradsieve::client {
namespace {

using test::exit_code_of_child;

TEST(ProcessMark, Same_process_is_ok) {
    const ProcessMark mark;
    EXPECT_TRUE(mark.is_same_process());
    EXPECT_TRUE(mark.check().is_ok());
}
TEST(ProcessMark, Child_and_grandchild_are_told_apart) {
    const ProcessMark mark;
    EXPECT_EQ(exit_code_of_child([&] { return mark.is_same_process() ? 1 : 7; }), 7);
    EXPECT_EQ(exit_code_of_child([&] { return exit_code_of_child([&] { return mark.is_same_process() ? 1 : 7; }); }),
              7);
    EXPECT_TRUE(mark.is_same_process()) << "the parent is untouched";
}
TEST(ProcessMark, Text_names_the_owner_and_says_what_to_do) {
    const ProcessMark mark;
    const auto owner = std::to_string(::getpid());
    EXPECT_EQ(exit_code_of_child([&] {
                  const auto status = mark.check();
                  const bool is_right =
                      status.code() == StatusCode::kFailedPrecondition &&
                      status.text().find("belongs to process " + owner) != std::string::npos &&
                      status.text().find("open a job in the forked process itself") != std::string::npos;
                  return is_right ? 7 : 1;
              }),
              7);
}
TEST(ProcessMark, Mark_made_in_a_child_is_the_childs) {
    EXPECT_EQ(exit_code_of_child([] { return ProcessMark().is_same_process() ? 7 : 1; }), 7);
}

}  // namespace
}  // namespace gradsieve::client
