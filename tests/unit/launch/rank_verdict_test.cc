#include "daemon/launch/rank_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/unit/launch/rank_reports.h"

namespace gaccd {
namespace {

RankVerdict Judge(const std::vector<RankReport>& reports, const VerdictOptions& options = {}) {
  return JudgeRanks(reports, options);
}

void ExpectGood(const std::vector<RankReport>& reports, const VerdictOptions& options = {}) {
  const RankVerdict verdict = Judge(reports, options);
  EXPECT_THAT(verdict.errors, IsEmpty());
  EXPECT_THAT(verdict.warnings, IsEmpty());
}

TEST(RankVerdict, AcceptsGoodRanks) {
  ExpectGood(MakeReports(30, 8, 8));
  ExpectGood(MakeReports(30, 8, 0));
  ExpectGood(MakeReports(1, 1, 1));
}

TEST(RankVerdict, OtherBuilds) {
  auto reports = MakeReports(3, 2, 0);
  reports[4].gaccd = reports[5].gaccd = "0.1.0 (77c7dfe0)";
  EXPECT_THAT(Judge(reports).errors,
              ElementsAre("gaccd differs: 0.1.0 (8486e3ea), build aaaaaaaaaaaa on ranks 0-3 on "
                          "n[1-2], 0.1.0 (77c7dfe0), build aaaaaaaaaaaa on ranks 4-5 on n3"));
  reports = MakeReports(3, 2, 0);
  reports[1].build_id = "bbbbbbbbbbbbbbbb";  // the same revision, built twice
  EXPECT_THAT(Judge(reports).errors, ElementsAre(StartsWith("gaccd differs: ")));
}

TEST(RankVerdict, OtherLibraries) {
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
      const RankVerdict verdict = Judge(reports);
      if (gpus == 0 && test.only_on_gpus) {
        EXPECT_THAT(verdict.errors, IsEmpty()) << "no rank uses it";
      } else {
        ASSERT_EQ(verdict.errors.size(), 1U);
        EXPECT_THAT(verdict.errors[0], StartsWith(std::string(test.name) + " differs: "));
        EXPECT_THAT(verdict.errors[0], ::testing::EndsWith("0.9 on rank 3 on n2"));
      }
      if (test.only_on_gpus) {
        EXPECT_THAT(Judge(reports, {.gpus_matter = false}).errors, IsEmpty());
      }
    }
  }
}

TEST(RankVerdict, WarnsOfSlowAttention) {
  for (const int gpus : {0, 2}) {
    auto reports = MakeReports(2, 2, gpus);
    for (RankReport& report : reports) report.attention_problem = "no libnvrtc.so.13";
    const RankVerdict verdict = Judge(reports);
    EXPECT_THAT(verdict.errors, IsEmpty());
    if (gpus == 0) {
      EXPECT_THAT(verdict.warnings, IsEmpty());
    } else {
      EXPECT_THAT(
          verdict.warnings,
          ElementsAre("ranks 0-3 on n[1-2]: attention by gaccd's own kernel, some 20 "
                      "times slower: no libnvrtc.so.13; convolutions are slower, too; other "
                      "models lose nothing"));
    }
  }
}

TEST(RankVerdict, WithAndWithoutGpu) {
  auto reports = MakeReports(2, 4, 4);
  auto without = MakeReports(3, 4, 0);
  reports.insert(reports.end(), without.begin() + 8, without.end());
  const RankVerdict verdict = Judge(reports);
  EXPECT_THAT(verdict.errors,
              ElementsAre("ranks with and without a usable GPU: expected all or none of 12, found "
                          "8; ranks 8-11 on n3: no NVIDIA driver"));
  EXPECT_THAT(Judge(reports, {.gpus_matter = false}).errors, IsEmpty());
}

TEST(RankVerdict, UnusableGpuDoesNotCount) {
  auto reports = MakeReports(2, 2, 2);
  reports[3].gpu_problem = "cannot load libnccl.so.2";
  EXPECT_THAT(Judge(reports).errors,
              ElementsAre("ranks with and without a usable GPU: expected all or none of 4, found "
                          "3; rank 3 on n2: cannot load libnccl.so.2"));
  for (RankReport& report : reports) report.gpu_problem = "cannot load libnccl.so.2";
  const RankVerdict verdict = Judge(reports);
  EXPECT_THAT(verdict.errors, IsEmpty());
  EXPECT_THAT(
      verdict.warnings,
      ElementsAre("the GPUs will not be used; ranks 0-3 on n[1-2]: cannot load libnccl.so.2"));
}

TEST(RankVerdict, FewerGpusThanTasks) {
  EXPECT_THAT(Judge(MakeReports(2, 8, 4)).errors,
              ElementsAre("fewer GPUs than tasks on n1: expected 8, found 4",
                          "fewer GPUs than tasks on n2: expected 8, found 4"));
  EXPECT_THAT(Judge(MakeReports(1, 2, 1)).errors,
              ElementsAre("fewer GPUs than tasks on n1: expected 2, found 1"));
  ExpectGood(MakeReports(1, 2, 1), {.allow_gpu_sharing = true});
}

TEST(RankVerdict, TwoRanksOnOneGpu) {
  auto reports = MakeReports(2, 4, 4);
  reports[6].uuid = reports[5].uuid;
  EXPECT_THAT(Judge(reports).errors,
              ElementsAre("ranks 5-6 on n2 have one GPU, GPU-2-1: expected one for each, or "
                          "--allow-gpu-sharing"));
  ExpectGood(reports, {.allow_gpu_sharing = true});
  // Each task sees one GPU of its own, but SLURM gave two of them the same.
  for (RankReport& report : reports) report.gpus = 1;
  EXPECT_EQ(Judge(reports).errors.size(), 1U);
}

TEST(RankVerdict, OtherModelsAndDriversAreWarnings) {
  auto reports = MakeReports(2, 2, 2);
  reports[2].gpu = reports[3].gpu = "NVIDIA A100";
  reports[2].driver = reports[3].driver = "12.8.0";
  const RankVerdict verdict = Judge(reports);
  EXPECT_THAT(verdict.errors, IsEmpty());
  EXPECT_THAT(verdict.warnings, ElementsAre(StartsWith("CUDA driver differs: "),
                                            StartsWith("model of GPU differs: ")));
}

TEST(RankVerdict, OneVisibleGpuOfMany) {
  auto reports = MakeReports(1, 4, 4);
  for (RankReport& report : reports) {
    report.gpus = 1;
    report.slurm_gpus_on_node = "4";
  }
  RankVerdict verdict = Judge(reports);
  EXPECT_THAT(verdict.errors, IsEmpty());
  EXPECT_THAT(verdict.warnings,
              ElementsAre(StartsWith("ranks 0-3 on n1: sees one GPU of the 4 that SLURM gave")));
  for (RankReport& report : reports) report.slurm_gpus_on_node = "gpu:h200:4";  // not a number
  EXPECT_THAT(Judge(reports).warnings, IsEmpty());
  auto all = MakeReports(1, 4, 4);
  for (RankReport& report : all) report.slurm_gpus_on_node = "4";
  ExpectGood(all);
}

TEST(RankVerdict, MoreGpusThanRanks) {
  const RankVerdict verdict = Judge(MakeReports(2, 1, 8));
  EXPECT_THAT(verdict.errors, IsEmpty());
  EXPECT_THAT(verdict.warnings,
              ElementsAre(StartsWith("ranks 0-1 on n[1-2]: 8 GPUs for 1 rank of this node")));
  ExpectGood(MakeReports(2, 1, 8), {.gpus_matter = false});
  auto reports = MakeReports(1, 1, 2);
  reports[0].gpu_problem = "the driver is too old";
  EXPECT_THAT(Judge(reports).warnings, ElementsAre(StartsWith("the GPUs will not be used")));
}

TEST(RankVerdict, FewerCoresThanAsked) {
  auto reports = MakeReports(1, 2, 0);
  for (RankReport& report : reports) report.slurm_cpus_per_task = "4";
  ExpectGood(reports);
  reports[1].cpu_count = 1;
  EXPECT_THAT(
      Judge(reports).warnings,
      ElementsAre(StartsWith("rank 1 on n1: may run on 1 core, expected SLURM_CPUS_PER_TASK=4")));
}

TEST(RankVerdict, ChecksLockedMemoryWithNetwork) {
  auto reports = MakeReports(1, 2, 2);
  for (RankReport& report : reports) report.memlock_bytes = 8 << 20;
  ExpectGood(reports);  // one node
  reports = MakeReports(2, 2, 2);
  reports[2].memlock_bytes = 8 << 20;
  EXPECT_THAT(Judge(reports).warnings,
              ElementsAre(StartsWith("rank 2 on n2: may lock 8388608 bytes")));
}

TEST(RankVerdict, ReportsEverythingAtOnce) {
  auto reports = MakeReports(2, 4, 2);
  reports[7].nccl = "2.27.0";
  reports[6].gpu_problem = "the driver is too old";
  EXPECT_EQ(Judge(reports).errors.size(), 4U);  // NCCL, mixture, both nodes short of GPUs
}

}  // namespace
}  // namespace gaccd
