// Snapshot files: what is written is read back, everything else is refused by name.
#include "daemon/snapshot_file.hpp"

#include "tests/shm/shm_test_support.hpp"
#include "tests/shm/state_testing.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace gradsieve::daemon {
namespace {

using testing::HasSubstr;

class SnapshotFile : public testing::Test {
protected:
    SnapshotFile() {
        state.set_ranks(std::vector<Rank>{2, 65});
        float value = 0.5F;
        for (std::size_t tensor = 0; tensor < 2; ++tensor) {
            for (const auto& array : state.table().tensors[tensor].arrays)
                for (std::size_t element = 0; element < array.bytes / sizeof(float); ++element)
                    state.values(array, 1)[element] = value += 0.25F;
            state.finish(tensor, 1, 7, 0.125);
        }
        state.commit(0, 7);
    }
    std::string write() {
        const auto committed = committed_group(state, 0, state.committed(0));
        const auto status = write_snapshot(folder(), committed.head, committed.arrays);
        EXPECT_TRUE(status.is_ok()) << status.to_string();
        return folder() + "/" + snapshot_name({"resnet", "seven"}, 0, 7);
    }
    [[nodiscard]] std::string folder() const { return folder_ / "state"; }
    static Bytes bytes_of(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        const auto view = as_bytes(text);
        return {view.begin(), view.end()};
    }
    static void put(const std::string& path, ByteView bytes) {
        std::ofstream(path, std::ios::binary | std::ios::trunc)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    /// Head and values; the first error.
    static Status read(const std::string& path) {
        const auto head = read_snapshot_head(path);
        if (!head.is_ok()) return head.error();
        std::vector<std::vector<float>> values;
        SnapshotArrays arrays;
        for (const auto& tensor : head->table.tensors)
            for (const auto& array : tensor.arrays) values.emplace_back(array.bytes / sizeof(float), -1.0F);
        for (auto& array : values) arrays.emplace_back(array);
        return read_snapshot_arrays(path, *head, arrays);
    }

    shm::StateSegment state = shm::StateSegment::make("test", shm::small_table()).value();
    shm::TempFolder folder_;
};

TEST_F(SnapshotFile, Comes_back_with_its_step_ranks_scales_and_values) {
    const auto path = write();
    const auto head = read_snapshot_head(path);
    ASSERT_TRUE(head.is_ok()) << head.error().to_string();
    EXPECT_EQ(head->step, 7U);
    EXPECT_EQ(head->group, 0U);
    EXPECT_EQ(head->ranks, (std::vector<Rank>{2, 65}));
    EXPECT_EQ(head->scales, (std::vector<double>{0.125, 0.125}));
    EXPECT_EQ(head->table.job_name, "resnet");
    EXPECT_EQ(head->table.groups, std::vector<std::string>{"g"});
    ASSERT_EQ(head->table.tensors.size(), 2U) << "the other group's tensor is not in it";
    std::vector<float> first(300, -1), second(300, -1), third(2000, -1);
    const SnapshotArrays arrays{first, second, third};
    ASSERT_TRUE(read_snapshot_arrays(path, *head, arrays).is_ok());
    EXPECT_EQ(first[0], 0.75F);
    EXPECT_EQ(first[299], 0.5F + 300 * 0.25F);
    EXPECT_EQ(second[0], 0.5F + 301 * 0.25F);
    EXPECT_EQ(third[1999], 0.5F + 2600 * 0.25F);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder()), {}), 1) << "nothing beside it";
}
TEST_F(SnapshotFile, Every_truncation_is_refused_naming_the_file) {
    const auto path = write();
    const auto whole = bytes_of(path);
    for (std::size_t count = 0; count < whole.size(); count += count < 400 ? 1 : 499) {
        put(path, ByteView(whole).first(count));
        const auto status = read(path);
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << count;
        EXPECT_THAT(status.text(), HasSubstr(path)) << count;
    }
    auto longer = whole;
    longer.push_back(std::byte{0});
    put(path, longer);
    EXPECT_THAT(read(path).text(), HasSubstr("by its head; it is not used"));
}
TEST_F(SnapshotFile, Every_flipped_byte_is_refused) {
    const auto path = write();
    const auto whole = bytes_of(path);
    for (std::size_t at = 0; at < whole.size(); at += at < 400 ? 1 : 397) {
        auto bytes = whole;
        bytes[at] ^= std::byte{0x10};
        put(path, bytes);
        EXPECT_FALSE(read(path).is_ok()) << at;
    }
    auto bytes = whole;
    bytes[8] = std::byte{9};
    put(path, bytes);
    EXPECT_EQ(read(path).code(), StatusCode::kVersionMismatch);
    EXPECT_THAT(read(path).text(), HasSubstr("format 9.1: this version reads 1.1"));
}
TEST_F(SnapshotFile, A_folder_that_cannot_be_is_an_error_that_says_where_to_look) {
    const auto committed = committed_group(state, 0, state.committed(0));
    put(folder_ / "file", {});
    const auto status = write_snapshot(folder_ / "file", committed.head, committed.arrays);
    EXPECT_FALSE(status.is_ok());
    EXPECT_THAT(status.text(), HasSubstr("see daemon.state_directory"));
    EXPECT_EQ(read_snapshot_head(folder_ / "nothing").status().code(), StatusCode::kNotFound);
}
TEST_F(SnapshotFile, A_link_in_its_place_is_not_followed) {
    const auto path = write();
    std::filesystem::rename(path, folder_ / "elsewhere");
    std::filesystem::create_symlink(folder_ / "elsewhere", path);
    EXPECT_FALSE(read(path).is_ok());
}
TEST_F(SnapshotFile, The_newest_stand_first_and_only_they_stay) {
    for (const Step step : {20U, 7U, 100U}) {
        auto committed = committed_group(state, 0, state.committed(0));
        committed.head.step = step;
        ASSERT_TRUE(write_snapshot(folder(), committed.head, committed.arrays).is_ok());
    }
    put(folder() + "/" + snapshot_name({"resnet", "seven"}, 0, 500), Bytes(10));
    put(folder() + "/." + snapshot_name({"resnet", "seven"}, 0, 600), Bytes(10));
    auto found = find_snapshots(folder(), {"resnet", "seven"});
    ASSERT_EQ(found.size(), 4U);
    EXPECT_FALSE(found[0].head.is_ok());
    EXPECT_EQ(found[1].head->step, 100U);
    EXPECT_EQ(found[3].head->step, 7U);
    EXPECT_TRUE(find_snapshots(folder(), {"resnet", "eight"}).empty());
    EXPECT_TRUE(find_snapshots(folder_ / "nowhere").empty());
    remove_snapshots(folder(), {"resnet", "seven"}, 2);
    remove_snapshot_leftovers(folder());
    found = find_snapshots(folder());
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[1].head->step, 20U);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder()), {}), 2);
}

}  // namespace
}  // namespace gradsieve::daemon
