#include "shm/memory_limit.hpp"

#include "tests/shm/shm_test_support.hpp"

#include <fstream>

namespace gradsieve::shm {
namespace {

class MemoryLimits : public testing::Test {
protected:
    MemoryLimits() {
        write("proc/meminfo", "MemTotal: 99 kB\nMemAvailable:    1000 kB\nSwapFree: 24 kB\n");
        write("proc/self/cgroup", "4:memory:/v1\n0::/system.slice/gradsieved.service\n");
    }
    void write(const std::string& name, const std::string& text) const {
        const std::filesystem::path path = folder_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    [[nodiscard]] MemoryLimit limit() const { return memory_limit_under(folder_ / "proc", folder_ / "cgroup"); }

    TempFolder folder_;
};

TEST_F(MemoryLimits, Without_a_cgroup_limit_the_machine_decides) {
    write("cgroup/system.slice/memory.max", "max\n");
    EXPECT_EQ(limit().available_bytes, 1024U * 1024U);
    EXPECT_NE(limit().reason.find("memory of this machine"), std::string::npos);
}

TEST_F(MemoryLimits, Tightest_cgroup_up_to_the_root_decides_and_is_named) {
    write("cgroup/system.slice/gradsieved.service/memory.max", "900000\n");
    write("cgroup/system.slice/gradsieved.service/memory.current", "100000\n");
    write("cgroup/system.slice/memory.max", "700000\n");
    write("cgroup/system.slice/memory.current", "200000\n");
    EXPECT_EQ(limit().available_bytes, 500'000U);
    EXPECT_NE(limit().reason.find("memory.max of cgroup /system.slice (raise MemoryMax="), std::string::npos)
        << limit().reason;
}

TEST_F(MemoryLimits, Page_cache_that_gives_way_does_not_count_as_used) {
    write("cgroup/system.slice/gradsieved.service/memory.max", "900000\n");
    write("cgroup/system.slice/gradsieved.service/memory.current", "800000\n");
    write("cgroup/system.slice/gradsieved.service/memory.stat",
          "anon 1\nfile 700000\nshmem 500000\ninactive_file 150000\nactive_file 50000\n");
    EXPECT_EQ(limit().available_bytes, 300'000U);
}

TEST_F(MemoryLimits, Cgroup_that_is_over_its_limit_leaves_nothing) {
    write("cgroup/system.slice/gradsieved.service/memory.max", "1000\n");
    write("cgroup/system.slice/gradsieved.service/memory.current", "5000\n");
    EXPECT_EQ(limit().available_bytes, 0U);
}

TEST_F(MemoryLimits, Unreadable_or_nonsensical_files_are_no_limit) {
    write("proc/meminfo", "rubbish\nMemAvailable:\n");
    write("cgroup/system.slice/gradsieved.service/memory.max", "12 monkeys\n");
    write("cgroup/system.slice/gradsieved.service/memory.current", "none\n");
    EXPECT_GT(limit().available_bytes, ByteCount{1} << 40U);
}

TEST(MemoryLimit, This_machine_has_some_memory_left) {
    EXPECT_GT(memory_limit().available_bytes, 1'000'000U);
    EXPECT_LT(memory_limit().available_bytes, ByteCount{1} << 44U);
}

}  // namespace
}  // namespace gradsieve::shm
