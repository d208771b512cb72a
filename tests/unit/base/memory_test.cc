#include "collectives/base/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.h"

namespace gaccd {

namespace {

std::int64_t ReadProcessKilobytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != name) {
  }
  std::int64_t kilobytes = 0;
  status >> kilobytes;
  return kilobytes;
}

// A machine with 8 GB available, whose files are in a folder.
class SharedMemoryTest : public ::testing::Test {
 protected:
  SharedMemoryTest() { Write("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n"); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = dir_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // A group of version 2.
  void Group(const std::string& group, const std::string& most, const std::string& used,
             const std::string& stat = "anon 1\n") {
    const std::string folder = "/sys/fs/cgroup" + group;
    Write(folder + "/memory.max", most + "\n");
    Write(folder + "/memory.current", used + "\n");
    Write(folder + "/memory.stat", stat);
  }
  [[nodiscard]] SharedMemory Find() const { return *FreeSharedMemory(dir_.path()); }

 private:
  TempFolder dir_;
};

TEST_F(SharedMemoryTest, UsesMachineWithoutGroups) {
  EXPECT_EQ(Find().free_bytes, 8'192'000'000U);
  EXPECT_EQ(Find().limit, "this machine");
}

TEST_F(SharedMemoryTest, UsesTightestEnclosingGroup) {
  Write("/proc/self/cgroup", "0::/slurm/job_7/step_0/task_1\n");
  Group("/slurm/job_7/step_0/task_1", "max", "400");
  Group("/slurm/job_7/step_0", "9000000", "1000000");
  Group("/slurm/job_7", "5000000", "1500000");
  Group("/slurm", "max", "2000000");
  EXPECT_EQ(Find().free_bytes, 3'500'000U);
  EXPECT_EQ(Find().limit, "the cgroup /slurm/job_7");
}

// The kernel takes the pages of files back before a group runs out.
TEST_F(SharedMemoryTest, FilePagesCountAsFree) {
  Write("/proc/self/cgroup", "0::/job\n");
  Group("/job", "5000000", "5000000", "anon 100\ninactive_file 1500000\nactive_file 500000\n");
  EXPECT_EQ(Find().free_bytes, 2'000'000U);
}

TEST_F(SharedMemoryTest, ReadsVersion1Groups) {
  Write("/proc/self/cgroup", "5:cpuset,memory:/slurm/job_7\n3:cpu:/\n0::/\n");
  const std::string folder = "/sys/fs/cgroup/memory/slurm/job_7/";
  Write(folder + "memory.limit_in_bytes", "5000000\n");
  Write(folder + "memory.usage_in_bytes", "3000000\n");
  Write(folder + "memory.stat", "cache 9\ntotal_inactive_file 100000\ntotal_active_file 20000\n");
  EXPECT_EQ(Find().free_bytes, 2'120'000U);
  EXPECT_EQ(Find().limit, "the cgroup /slurm/job_7");
}

// In a container the path of the host leads nowhere, and the top is its own group.
TEST_F(SharedMemoryTest, UsesContainerLimit) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/abc\n");
  Group("", "6000000", "1000000");
  EXPECT_EQ(Find().free_bytes, 5'000'000U);
}

TEST_F(SharedMemoryTest, FullGroupHasNoFreeMemory) {
  Write("/proc/self/cgroup", "0::/job\n");
  Group("/job", "5000000", "6000000");
  EXPECT_EQ(Find().free_bytes, 0U);
}

TEST(NoMemory, CanBeToldFromOtherErrors) {
  const Status failed = NoMemory("gradients", 8).WithContext("rank 3");
  EXPECT_THAT(failed, IsError(ErrorKind::kConfig, "rank 3: no memory for gradients: wanted 8"));
  EXPECT_TRUE(failed.lacks_memory());
  EXPECT_TRUE(Status(failed).lacks_memory());  // a copy
  EXPECT_FALSE(Status(ErrorKind::kConfig, "no memory for").lacks_memory());
  EXPECT_FALSE(Status::Ok().lacks_memory());
}

TEST(SharedMemory, IsUnknownWithoutMeminfo) {
  const TempFolder dir;
  EXPECT_FALSE(FreeSharedMemory(dir.path()).has_value());
}

// Otherwise up to two huge pages of a buffer would be small ones.
TEST(HostBuffer, StartsAtHugePageIfItHoldsOne) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  for (const std::size_t bytes : {kHuge, kHuge + 1, 5 * kHuge - 4096}) {
    const auto mapped = [] { return ReadProcessKilobytes("VmSize:"); };
    const std::int64_t before = mapped();
    const HostBuffer buffer = *HostBuffer::Allocate(bytes, "test");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kHuge, 0U) << bytes;
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(mapped() - before, static_cast<std::int64_t>((bytes + 4095) / 4096 * 4)) << bytes;
    std::fill_n(buffer.data(), bytes, std::byte{1});
  }
}

}  // namespace

}  // namespace gaccd
