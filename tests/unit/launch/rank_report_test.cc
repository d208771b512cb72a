#include "daemon/launch/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/unit/launch/rank_reports.h"

namespace gaccd {
namespace {

std::ptrdiff_t Lines(const std::string& text) { return std::ranges::count(text, '\n'); }

TEST(NumberList, RunsAndSteps) {
  EXPECT_EQ(NumberList({}), "");
  EXPECT_EQ(NumberList({3}), "3");
  EXPECT_EQ(NumberList({0, 1}), "0-1");
  EXPECT_EQ(NumberList({0, 1, 2, 3, 16}), "0-3,16");
  EXPECT_EQ(NumberList({0, 8, 16, 24}), "0-24:8");
  EXPECT_EQ(NumberList({0, 8}), "0,8");
  EXPECT_EQ(NumberList({0, 2, 3, 4}), "0,2-4");
  EXPECT_EQ(NumberList({1, 2, 3, 10, 12, 14, 20}), "1-3,10-14:2,20");
}

TEST(RankReport, RoundTrips) {
  RankReport report = MakeReports(2, 2, 2)[3];
  report.gpu_problem = "a = b; \"quoted\"";
  report.cuda_visible_devices = "0,1";
  const RankReport back = DecodeReport(EncodeReport(report));
  EXPECT_EQ(ReportJson(back), ReportJson(report));
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.memlock_bytes, -1);
  report.gpu_problem = "two\nlines=2";
  EXPECT_EQ(DecodeReport(EncodeReport(report)).gpu_problem, "two lines=2");
  report.host = "n1\x1b[2J\xC2\x9B";
  EXPECT_EQ(DecodeReport(EncodeReport(report)).host, "n1\\x1b[2J\\x9b");
}

// The ranks may run different builds of gaccd: that is what is to be found out.
TEST(RankReport, SkipsUnknownFields) {
  const RankReport report = DecodeReport("rank=5\nflux=9\nhost=n2\nno equals sign\n=\ngpus=x");
  EXPECT_EQ(report.rank, 5);
  EXPECT_EQ(report.host, "n2");
  EXPECT_EQ(report.gpus, 0);
  EXPECT_EQ(report.memlock_bytes, -1);
  EXPECT_EQ(DecodeReport("").rank, 0);
}

TEST(RankReport, DescribesThisProcess) {
  const auto comm = MakeSingle();
  const Environment environment = [](const std::string& name) -> std::optional<std::string> {
    return name == "SLURM_CPUS_PER_TASK" ? "3" : std::optional<std::string>();
  };
  const GpuProbe probe{.gpus = {{.device = 0, .name = "G", .uuid = "GPU-7", .pci = "0000:1b:00.0"}},
                       .problem = ""};
  const RankReport report = MakeRankReport(*comm, probe, environment);
  EXPECT_EQ(report.uuid, "GPU-7");
  EXPECT_EQ(report.gpus, 1);
  EXPECT_GE(report.cpu_count, 1);
  EXPECT_NE(report.cpus, "");
  EXPECT_NE(report.host, "");
  EXPECT_EQ(report.slurm_cpus_per_task, "3");
  EXPECT_EQ(report.slurm_gpus_on_node, "");
  EXPECT_THAT(report.mpi, HasSubstr("compiled with"));
}

TEST(RankReport, LoadsGpuLibrariesOnRequest) {
  const auto comm = MakeSingle();
  const RankReport loaded = MakeRankReport(*comm, {}, ProcessEnvironment());
  RankReport report = MakeRankReport(*comm, {}, ProcessEnvironment(), false);
  EXPECT_EQ(report.cublaslt + report.cudnn + report.nccl + report.cuda + report.driver, "");
  CopyGpuLibraries(loaded, report);
  EXPECT_EQ(EncodeReport(report), EncodeReport(loaded));
}

TEST(RankTable, OneLinePerRank) {
  const std::string text = RankTableText(MakeReports(2, 2, 2));
  EXPECT_THAT(text, HasSubstr("4 ranks on 2 nodes; the same on all:\n"));
  EXPECT_THAT(text, HasSubstr("  NCCL           2.28.9\n"));
  EXPECT_THAT(text, HasSubstr("  rank  host  local  UUID     PCI           cores\n"));
  EXPECT_THAT(text, HasSubstr("  3     n2    1      GPU-2-1  0000:01:00.0  4-7\n"));
  EXPECT_THAT(text, Not(HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(RankTable, CpuRanksHaveNoGpuColumns) {
  const std::string text = RankTableText(MakeReports(1, 2, 0));
  EXPECT_THAT(text, HasSubstr("  GPU            no NVIDIA driver\n"));
  EXPECT_THAT(text, HasSubstr("  rank  host  local  cores\n"));
  EXPECT_THAT(text, Not(HasSubstr("PCI")));
}

TEST(RankTable, UnusableGpuHasReason) {
  auto reports = MakeReports(1, 2, 2);
  reports[1].gpu_problem = "cannot load libcublasLt.so.13";
  EXPECT_THAT(RankTableText(reports),
              HasSubstr("NVIDIA H200, not usable: cannot load libcublasLt.so.13"));
}

// 240 ranks of equal nodes: one line for every local rank.
TEST(RankTable, MergesEqualNodes) {
  auto reports = MakeReports(30, 8, 8);
  const std::string text = RankTableText(reports);
  EXPECT_THAT(text, HasSubstr("240 ranks on 30 nodes; the same on all:\n"));
  EXPECT_THAT(text, HasSubstr("  0-232:8  n[1-30]  0      30 GPUs  0000:00:00.0  0-3\n"));
  EXPECT_THAT(text, HasSubstr("  7-239:8  n[1-30]  7      30 GPUs  0000:07:00.0  28-31\n"));
  EXPECT_LE(Lines(text), 24);
  // What differs on one rank is alone.
  reports[100].driver = "12.8.0";
  const std::string other = RankTableText(reports);
  EXPECT_EQ(Lines(other), Lines(text));  // one line more here, `driver` less above
  EXPECT_THAT(other, HasSubstr("  100 "));
  EXPECT_THAT(other, HasSubstr("12.8.0"));
}

TEST(RankTable, MergesEqualRanksOfEqualNodes) {
  auto reports = MakeReports(30, 8, 0);
  for (RankReport& report : reports) report.cpus = "0-31";
  EXPECT_THAT(RankTableText(reports), HasSubstr("  0-239  n[1-30]  0-7\n"));
}

}  // namespace
}  // namespace gaccd
