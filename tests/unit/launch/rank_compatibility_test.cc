#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/launch/rank_report.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/launch/rank_reports.h"

namespace gaccd {
namespace {

RankCompatibility Compatibility(const std::vector<RankReport>& reports,
                                const RankCheckOptions& options = {}) {
  return CheckRanks(reports, options);
}

void ExpectGood(const std::vector<RankReport>& reports, const RankCheckOptions& options = {}) {
  const RankCompatibility result = Compatibility(reports, options);
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.warnings, IsEmpty());
}

TEST(RankCompatibility, AcceptsGoodRanks) {
  ExpectGood(MakeReports(30, 8, 8));
  ExpectGood(MakeReports(30, 8, 0));
  ExpectGood(MakeReports(1, 1, 1));
}

TEST(RankCompatibility, OtherBuilds) {
  auto reports = MakeReports(3, 2, 0);
  reports[4].gaccd = reports[5].gaccd = "0.1.0 (77c7dfe0)";
  EXPECT_THAT(Compatibility(reports).errors,
              ElementsAre("gaccd differs: 0.1.0 (8486e3ea), build aaaaaaaaaaaa on ranks 0-3 on "
                          "n[1-2], 0.1.0 (77c7dfe0), build aaaaaaaaaaaa on ranks 4-5 on n3"));
  reports = MakeReports(3, 2, 0);
  reports[1].build_id = "bbbbbbbbbbbbbbbb";  // the same revision, built twice
  EXPECT_THAT(Compatibility(reports).errors, ElementsAre(StartsWith("gaccd differs: ")));
}

TEST(RankCompatibility, OtherLibraries) {
  struct Case {
    std::string RankReport::*field;
    const char* name;
    bool only_on_gpus;
  };
  for (const Case& test :
       {Case{&RankReport::mpi, "MPI", false}, Case{&RankReport::onednn, "oneDNN", false},
        Case{&RankReport::cuda, "CUDA runtime", true},
        Case{&RankReport::cublaslt, "cuBLASLt", true}, Case{&RankReport::cudnn, "cuDNN", true},
        Case{&RankReport::nccl, "NCCL", true}}) {
    SCOPED_TRACE(test.name);
    for (const int gpus : {0, 2}) {
      auto reports = MakeReports(2, 2, gpus);
      reports[3].*test.field = "0.9";
      const RankCompatibility result = Compatibility(reports);
      if (gpus == 0 && test.only_on_gpus) {
        EXPECT_THAT(result.errors, IsEmpty()) << "no rank uses it";
      } else {
        ASSERT_EQ(result.errors.size(), 1U);
        EXPECT_THAT(result.errors[0], StartsWith(std::string(test.name) + " differs: "));
        EXPECT_THAT(result.errors[0], ::testing::EndsWith("0.9 on rank 3 on n2"));
      }
      if (test.only_on_gpus) {
        EXPECT_THAT(Compatibility(reports, {.gpus_matter = false}).errors, IsEmpty());
      }
    }
  }
}

TEST(RankCompatibility, WarnsOfSlowAttention) {
  for (const int gpus : {0, 2}) {
    auto reports = MakeReports(2, 2, gpus);
    for (RankReport& report : reports) report.attention_problem = "no libnvrtc.so.13";
    const RankCompatibility result = Compatibility(reports);
    EXPECT_THAT(result.errors, IsEmpty());
    if (gpus == 0) {
      EXPECT_THAT(result.warnings, IsEmpty());
    } else {
      EXPECT_THAT(
          result.warnings,
          ElementsAre("ranks 0-3 on n[1-2]: attention by gaccd's own kernel, some 20 "
                      "times slower: no libnvrtc.so.13; convolutions are slower, too; other "
                      "models lose nothing"));
    }
  }
}

TEST(RankCompatibility, WithAndWithoutGpu) {
  auto reports = MakeReports(2, 4, 4);
  auto without = MakeReports(3, 4, 0);
  reports.insert(reports.end(), without.begin() + 8, without.end());
  const RankCompatibility result = Compatibility(reports);
  EXPECT_THAT(result.errors,
              ElementsAre("ranks with and without a usable GPU: expected all or none of 12, found "
                          "8; ranks 8-11 on n3: no NVIDIA driver"));
  EXPECT_THAT(Compatibility(reports, {.gpus_matter = false}).errors, IsEmpty());
}

TEST(RankCompatibility, UnusableGpuDoesNotCount) {
  auto reports = MakeReports(2, 2, 2);
  reports[3].gpu_problem = "cannot load libnccl.so.2";
  EXPECT_THAT(Compatibility(reports).errors,
              ElementsAre("ranks with and without a usable GPU: expected all or none of 4, found "
                          "3; rank 3 on n2: cannot load libnccl.so.2"));
  for (RankReport& report : reports) report.gpu_problem = "cannot load libnccl.so.2";
  const RankCompatibility result = Compatibility(reports);
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(
      result.warnings,
      ElementsAre("the GPUs will not be used; ranks 0-3 on n[1-2]: cannot load libnccl.so.2"));
}

TEST(RankCompatibility, FewerGpusThanTasks) {
  EXPECT_THAT(Compatibility(MakeReports(2, 8, 4)).errors,
              ElementsAre("fewer GPUs than tasks on n1: expected 8, found 4",
                          "fewer GPUs than tasks on n2: expected 8, found 4"));
  EXPECT_THAT(Compatibility(MakeReports(1, 2, 1)).errors,
              ElementsAre("fewer GPUs than tasks on n1: expected 2, found 1"));
  ExpectGood(MakeReports(1, 2, 1), {.allow_gpu_sharing = true});
}

TEST(RankCompatibility, TwoRanksOnOneGpu) {
  auto reports = MakeReports(2, 4, 4);
  reports[6].uuid = reports[5].uuid;
  EXPECT_THAT(Compatibility(reports).errors,
              ElementsAre("ranks 5-6 on n2 have one GPU, GPU-2-1: expected one for each, or "
                          "--allow-gpu-sharing"));
  ExpectGood(reports, {.allow_gpu_sharing = true});
  // Each task sees one GPU of its own, but SLURM gave two of them the same.
  for (RankReport& report : reports) report.gpus = 1;
  EXPECT_EQ(Compatibility(reports).errors.size(), 1U);
}

TEST(RankCompatibility, OtherModelsAndDriversAreWarnings) {
  auto reports = MakeReports(2, 2, 2);
  reports[2].gpu = reports[3].gpu = "NVIDIA A100";
  reports[2].driver = reports[3].driver = "12.8.0";
  const RankCompatibility result = Compatibility(reports);
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.warnings, ElementsAre(StartsWith("CUDA driver differs: "),
                                           StartsWith("model of GPU differs: ")));
}

TEST(RankCompatibility, OneVisibleGpuOfMany) {
  auto reports = MakeReports(1, 4, 4);
  for (RankReport& report : reports) {
    report.gpus = 1;
    report.slurm_gpus_on_node = "4";
  }
  RankCompatibility result = Compatibility(reports);
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.warnings,
              ElementsAre(StartsWith("ranks 0-3 on n1: sees one GPU of the 4 that SLURM gave")));
  for (RankReport& report : reports) report.slurm_gpus_on_node = "gpu:h200:4";  // not a number
  EXPECT_THAT(Compatibility(reports).warnings, IsEmpty());
  auto all = MakeReports(1, 4, 4);
  for (RankReport& report : all) report.slurm_gpus_on_node = "4";
  ExpectGood(all);
}

TEST(RankCompatibility, MoreGpusThanRanks) {
  const RankCompatibility result = Compatibility(MakeReports(2, 1, 8));
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.warnings,
              ElementsAre(StartsWith("ranks 0-1 on n[1-2]: 8 GPUs for 1 rank of this node")));
  ExpectGood(MakeReports(2, 1, 8), {.gpus_matter = false});
  auto reports = MakeReports(1, 1, 2);
  reports[0].gpu_problem = "the driver is too old";
  EXPECT_THAT(Compatibility(reports).warnings,
              ElementsAre(StartsWith("the GPUs will not be used")));
}

TEST(RankCompatibility, FewerCoresThanAsked) {
  auto reports = MakeReports(1, 2, 0);
  for (RankReport& report : reports) report.slurm_cpus_per_task = "4";
  ExpectGood(reports);
  reports[1].cpu_count = 1;
  EXPECT_THAT(
      Compatibility(reports).warnings,
      ElementsAre(StartsWith("rank 1 on n1: may run on 1 core, expected SLURM_CPUS_PER_TASK=4")));
}

TEST(RankCompatibility, ChecksLockedMemoryWithNetwork) {
  auto reports = MakeReports(1, 2, 2);
  for (RankReport& report : reports) report.memlock_bytes = 8 << 20;
  ExpectGood(reports);  // one node
  reports = MakeReports(2, 2, 2);
  reports[2].memlock_bytes = 8 << 20;
  EXPECT_THAT(Compatibility(reports).warnings,
              ElementsAre(StartsWith("rank 2 on n2: may lock 8388608 bytes")));
}

TEST(RankCompatibility, ReportsEverythingAtOnce) {
  auto reports = MakeReports(2, 4, 2);
  reports[7].nccl = "2.27.0";
  reports[6].gpu_problem = "the driver is too old";
  EXPECT_EQ(Compatibility(reports).errors.size(), 4U);  // NCCL, mixture, both nodes short of GPUs
}

}  // namespace
}  // namespace gaccd
