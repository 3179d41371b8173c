#include "cli/gradient_file.hpp"

#include "tests/cli/cli_fixture.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <limits>
#include <numeric>

namespace gradsieve::cli {
namespace {

using ::testing::HasSubstr;

class GradientFile : public CliTest {
protected:
    std::string write(const std::vector<float>& values, std::size_t bytes_less = 0) {
        std::ofstream(path_, std::ios::binary | std::ios::trunc)
            .write(reinterpret_cast<const char*>(values.data()),
                   static_cast<std::streamsize>(4 * values.size() - bytes_less));
        return path_;
    }

    std::string path_ = folder() + "/gradients";
};

std::vector<float> counted(std::size_t numbers) {
    std::vector<float> values(numbers);
    std::iota(values.begin(), values.end(), 0.0F);
    return values;
}

TEST_F(GradientFile, Small_ones_are_taken_whole) {
    const auto found = read_gradients(write(counted(30)), 10, 1024);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(found->elements, 10U);
    EXPECT_EQ(found->values, counted(30));
}
TEST_F(GradientFile, Of_large_ones_blocks_are_taken_from_the_first_number_to_the_last) {
    constexpr std::size_t kElements = 10'000;
    const auto found = read_gradients(write(counted(2 * kElements)), kElements, 3 * 1024 + 500);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    ASSERT_EQ(found->elements, 3 * 1024U);
    ASSERT_EQ(found->values.size(), 6 * 1024U);
    for (std::size_t step = 0; step < 2; ++step)
        for (std::size_t block = 0; block < 3; ++block) {
            const auto first = static_cast<float>(step * kElements + block * (kElements - 1024) / 2);
            EXPECT_EQ(found->values[(3 * step + block) * 1024], first);
            EXPECT_EQ(found->values[(3 * step + block) * 1024 + 1023], first + 1023);
        }
    EXPECT_EQ(found->values.back(), 2 * kElements - 1);
}
TEST_F(GradientFile, One_that_is_no_whole_gradients_is_refused) {
    for (const auto& [values, less] : {std::pair{0U, 0U}, {15U, 0U}, {20U, 1U}}) {
        const auto status = read_gradients(write(counted(values), less), 10, 1024).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(status.text(),
                    HasSubstr(std::to_string(4 * values - less) + " bytes; allowed are whole gradients of 10"));
    }
}
TEST_F(GradientFile, Numbers_that_are_none_are_refused) {
    auto values = counted(10);
    values[7] = std::numeric_limits<float>::infinity();
    EXPECT_THAT(read_gradients(write(values), 10, 1024).status().text(),
                HasSubstr("has the number inf; allowed are finite"));
}
TEST_F(GradientFile, A_file_that_is_not_there_is_named) {
    const auto status = read_gradients(folder() + "/none", 10, 1024).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.text(), HasSubstr("/none': No such file"));
    EXPECT_EQ(read_gradients(folder(), 10, 1024).status().code(), StatusCode::kNotFound) << "a folder";
}

}  // namespace
}  // namespace gradsieve::cli
