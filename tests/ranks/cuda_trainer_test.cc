// The trainer with engines on GPUs, over the stand-ins: the same run as on CPUs, told in the same
// order although its figures come one update later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>

#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/device/cpu/bf16_of_cpu.h"
#include "daemon/train/trainer.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/data/file_util.h"
#include "tests/unit/train/engine_runs.h"
#include "tests/unit/train/fp16_golden.h"
#include "tests/unit/train/small_regression.h"

namespace gaccd::tests {
namespace {

using ::testing::HasSubstr;

// A value within an f32 error of the middle between two fp16 is rounded to either, and training
// goes on from there.
constexpr double kOtherRounding = 2e-4;

Job SmallJob() {
  Job job = SmallRegression();
  job.batch.target = 37;
  job.batch.micro = 4;
  job.optimizer = {.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}};
  job.schedule.warmup_updates = 5;
  job.clip_norm = 2;
  job.epochs = 2;
  return job;
}

struct Trained {
  Status status;
  TrainingSummary summary;
  std::vector<float> parameters;  // of rank 0
  MemoryUse memory;
};

Status TrainRank(Communicator& comm, const Job& job, const std::string& run_dir,
                 const TrainGuards& guards, const EngineChoice& choice, Communicator* device_comm,
                 Trained* trained) {
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make({.nodes = 1,
                                                      .gpus_per_node = comm.size(),
                                                      .micro_batch = job.batch.micro,
                                                      .target_batch = *job.batch.target}));
  GACCD_ASSIGN_OR_RETURN(auto trainer, Trainer::Open(comm, job, plan));
  trainer->SetGuards(guards);
  GACCD_RETURN_IF_ERROR(trainer->Prepare(choice, device_comm));
  GACCD_ASSIGN_OR_RETURN(auto reporter,
                         RunReporter::Start(comm, {.run_dir = run_dir, .quiet = true}));
  TrainingSummary mine;
  const Status status = trainer->Run(*reporter, &mine);
  reporter->Finish(status);
  if (comm.rank() == 0) {
    trained->summary = mine;
    trained->memory = trainer->memory();
    GACCD_ASSIGN_OR_RETURN(trained->parameters, trainer->Parameters());
  }
  return status;
}

Trained TrainOnCpus(const Job& job, int ranks, const std::string& run_dir = "",
                    const TrainGuards& guards = {}) {
  Trained trained;
  trained.status = RunThreadRanks(ranks, {}, [&](Communicator& comm) {
    return TrainRank(comm, job, run_dir, guards, {}, nullptr, &trained);
  });
  return trained;
}

Trained TrainOnGpus(const Job& job, int ranks, const std::string& run_dir = "",
                    const TrainGuards& guards = {}) {
  ResetGpus(ranks);
  Trained trained;
  trained.status = RunNcclRanks(ranks, {}, [&](Communicator& nccl, Communicator& over) {
    return TrainRank(
        over, job, run_dir, guards,
        {.device = Device::kCuda, .gpu = over.rank(), .cublaslt = &standin::StandInCublasLt()},
        &nccl, &trained);
  });
  for (int device = -1; device < ranks; ++device) EXPECT_EQ(standin::LiveBytes(device), 0);
  return trained;
}

TEST(CudaTrainer, TrainsWhatCpusTrain) {
  for (const int ranks : {1, 3}) {
    const Trained expected = TrainOnCpus(SmallJob(), ranks);
    const Trained found = TrainOnGpus(SmallJob(), ranks);
    ASSERT_TRUE(found.status.ok()) << found.status.message();
    EXPECT_EQ(found.summary.updates, 14);  // 2 x (6 of 37 and one of 8)
    EXPECT_EQ(found.summary.samples, 460);
    EXPECT_LE(Distance(found.parameters, expected.parameters), 1e-5);
    EXPECT_GT(found.memory.device, 0);
    EXPECT_EQ(expected.memory.device, 0);
  }
}

TEST(CudaTrainer, Bf16IsTakenOnBoth) {
  Job job = SmallJob();
  job.precision = Precision::kBF16;
  const Trained gpus = TrainOnGpus(job, 2);
  ASSERT_TRUE(gpus.status.ok()) << gpus.status.message();
  if (Bf16OfCpu() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has " << Name(Bf16OfCpu());
  const Trained cpus = TrainOnCpus(job, 2);
  ASSERT_TRUE(cpus.status.ok()) << cpus.status.message();
  // On GPUs also activations are rounded.
  EXPECT_LE(Distance(gpus.parameters, cpus.parameters), 2e-3);
}

TEST(CudaTrainer, Tf32AndFp16AreTakenOnGpusOnly) {
  Job tf32 = SmallJob();
  tf32.tf32 = true;
  Job fp16 = SmallJob();
  fp16.precision = Precision::kFP16;
  for (const auto& [job, words] : {std::pair(tf32, "TF32"), std::pair(fp16, "fp16")}) {
    EXPECT_TRUE(TrainOnGpus(job, 1).status.ok());
    const Status refused = TrainOnCpus(job, 1).status;
    EXPECT_THAT(refused, HasKind(ErrorKind::kConfig));
    EXPECT_THAT(refused, HasMessage(HasSubstr(words)));
  }
}

// What the events say of every update and evaluation, without times.
std::vector<std::map<std::string, double>> EventsOf(const std::string& run_dir) {
  std::vector<std::map<std::string, double>> events;
  for (const auto& file : std::filesystem::recursive_directory_iterator(run_dir)) {
    if (file.path().filename() != "events.jsonl") continue;
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      const bool step = line.find(R"("ev":"step")") != std::string::npos;
      if (!step && line.find(R"("ev":"eval")") == std::string::npos) continue;
      auto& event = events.emplace_back();
      event["is_step"] = step ? 1 : 0;
      for (const char* key : {"epoch", "step", "samples", "target", "samples_total", "lr", "loss",
                              "grad_norm", "loss_scale", "growth_tracker"}) {
        std::smatch found;
        const std::regex pattern(StrCat("\"", key, R"re(":([-+0-9.e]+))re"));
        if (std::regex_search(line, found, pattern)) event[key] = std::stod(found[1]);
      }
    }
  }
  return events;
}

// The scale grows over its limit again and again: of 36 updates 10 are skipped. On 3 ragged ranks,
// too, where the samples that overflow are seldom on all of them.
TEST(CudaTrainer, Fp16TrainsWhatPyTorchAndItsGradScalerTrain) {
  const auto job = LoadJob(GACCD_GOLDEN_DIR "/fp16.txtpb");
  ASSERT_TRUE(job.ok()) << job.status().message();
  const std::vector<Fp16Step> golden = ReadFp16Steps(GACCD_GOLDEN_DIR "/fp16.txt");
  for (const int ranks : {1, 3}) {
    const TempFolder folder;
    const Trained trained = TrainOnGpus(*job, ranks, folder.path(), {.digest_every = 1});
    ASSERT_TRUE(trained.status.ok()) << trained.status.message();
    auto found = EventsOf(folder.path());
    ASSERT_EQ(found.size(), golden.size());
    double worst = 0;
    for (std::size_t u = 0; u < found.size(); ++u) {
      SCOPED_TRACE(StrCat("update ", u + 1, " on ", ranks, " ranks"));
      const Fp16Step& expected = golden[u];
      EXPECT_EQ(found[u]["samples_total"], expected.samples_total);
      EXPECT_NEAR(found[u]["lr"], expected.lr, 1e-11);
      EXPECT_EQ(found[u]["loss_scale"], expected.loss_scale);
      EXPECT_EQ(found[u]["growth_tracker"], expected.growth_tracker);
      EXPECT_EQ(found[u].contains("grad_norm") ? 0 : 1, expected.skipped);
      EXPECT_NEAR(found[u]["loss"] / expected.loss, 1, kOtherRounding);
      worst = std::max(worst, std::abs(found[u]["loss"] / expected.loss - 1));
      if (expected.skipped == 1) continue;
      EXPECT_NEAR(found[u]["grad_norm"] / expected.grad_norm, 1, kOtherRounding);
      worst = std::max(worst, std::abs(found[u]["grad_norm"] / expected.grad_norm - 1));
    }
    std::printf("  %d ranks: off by %.2g\n", ranks, worst);
    EXPECT_EQ(trained.summary.skipped, 10);
  }
}

TEST(CudaTrainer, TellsTheUpdatesInOrderWithTheirOwnResults) {
  const auto folder =
      std::filesystem::temp_directory_path() / StrCat("cuda_trainer_test.", ::getpid());
  const std::string on_cpu = folder / "cpu";
  const std::string on_gpu = folder / "gpu";
  ASSERT_TRUE(TrainOnCpus(SmallJob(), 1, on_cpu).status.ok());
  ASSERT_TRUE(TrainOnGpus(SmallJob(), 1, on_gpu).status.ok());
  const auto expected = EventsOf(on_cpu);
  const auto found = EventsOf(on_gpu);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(expected.size(), 16U);  // 14 updates and an evaluation after each epoch
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size());
    for (const auto& [key, value] : expected[i]) {
      const double tolerance = key == "loss" || key == "grad_norm" ? 1e-4 * value : 0;
      EXPECT_NEAR(found[i].at(key), value, tolerance) << "event " << i << ", " << key;
    }
  }
}

TEST(CudaTrainer, DivergenceNamesTheUpdateOnEveryRank) {
  Job job = SmallJob();
  job.optimizer.lr = 1e30;
  job.schedule.warmup_updates = 0;
  job.clip_norm = 0;
  const Trained expected = TrainOnCpus(job, 2);
  const Trained found = TrainOnGpus(job, 2);
  for (const Trained* trained : {&expected, &found}) {
    ASSERT_FALSE(trained->status.ok());
    EXPECT_THAT(trained->status, HasKind(ErrorKind::kNoRequeue));
    EXPECT_THAT(trained->status, HasMessage(HasSubstr("update 2: training diverged")));
    EXPECT_EQ(trained->summary.updates, 1);
  }
  EXPECT_LE(Distance(found.parameters, expected.parameters), 1e-5);
}

// 99 samples, of which one has features that overflow in the gradient: rank 1 has it in update 2,
// in the last of its micro-batches of 4, 4 and 3. Or one has huge targets: it is in the first.
struct Huge {
  float feature = 1e30F;
  int features = 10;  // so many of them
  float target = 1;
};
class CudaTrainerGuards : public ::testing::Test {
 protected:
  Job JobWith(const OptimizerSpec& optimizer, const Huge& huge = {}) {
    Job job = SmallJob();
    std::vector<float> features;
    std::vector<float> targets;
    for (int s = 0; s < 99; ++s) {
      for (int f = 0; f < 10; ++f) {
        features.push_back((s == 53 && f < huge.features ? huge.feature : 1) *
                           std::sin(static_cast<float>(10 * s + f)));
      }
      for (int t = 0; t < 2; ++t) {
        targets.push_back((s == 44 ? huge.target : 1) * std::cos(static_cast<float>(3 * s + t)));
      }
    }
    job.data.train = NpySpec{.features = Write("features", features, 10),
                             .targets = Write("targets", targets, 2)};
    job.data.eval.reset();
    job.data.shuffle = false;
    job.batch.target = 33;
    job.epochs = 1;
    job.optimizer = optimizer;
    return job;
  }

  std::string Write(const std::string& name, const std::vector<float>& values, int width) {
    return folder_.Write(name, NpyHeader(NpyDictionary("<f4", StrCat("(99, ", width, ")"))) +
                                   Raw(std::span<const float>(values)));
  }

  TempFolder folder_;
};

TEST_F(CudaTrainerGuards, OutlivesWhatIsNotFiniteAsCpusDo) {
  for (const OnNonfinite policy : {OnNonfinite::kSkipUpdate, OnNonfinite::kDropMicroBatch}) {
    for (const OptimizerSpec& optimizer :
         {OptimizerSpec{.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}},
          OptimizerSpec{.lr = 0.01, .kind = AdamWSpec{}}}) {
      SCOPED_TRACE(Name(policy));
      const TrainGuards guards{.on_nonfinite = policy, .digest_every = 1};
      const Job job = JobWith(optimizer);
      const Trained expected = TrainOnCpus(job, 3, "", guards);
      const Trained found = TrainOnGpus(job, 3, "", guards);
      ASSERT_TRUE(expected.status.ok()) << expected.status.message();
      ASSERT_TRUE(found.status.ok()) << found.status.message();
      const bool drops = policy == OnNonfinite::kDropMicroBatch;
      for (const Trained* trained : {&expected, &found}) {
        EXPECT_EQ(trained->summary.updates, 3);
        EXPECT_EQ(trained->summary.skipped, drops ? 0 : 1);
        EXPECT_EQ(trained->summary.samples, drops ? 96 : 66);
      }
      EXPECT_LE(Distance(found.parameters, expected.parameters), 1e-5);
    }
  }
}

// Of three ranks one overflows in its first micro-step, with a loss of 4e7, and then no more.
TEST_F(CudaTrainerGuards, Fp16SkipsWhatOverflowsOnOneRank) {
  for (const OptimizerSpec& optimizer :
       {OptimizerSpec{.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}},
        OptimizerSpec{.lr = 0.01, .kind = AdamWSpec{}}}) {
    const Job f32 = JobWith(optimizer);
    const Trained expected = TrainOnCpus(f32, 3, "", {.on_nonfinite = OnNonfinite::kSkipUpdate});
    ASSERT_TRUE(expected.status.ok()) << expected.status.message();
    Job job = JobWith(optimizer, {.feature = 1, .target = 1e5F});
    job.precision = Precision::kFP16;
    const Trained found = TrainOnGpus(job, 3, folder_.path(), {.digest_every = 1});
    ASSERT_TRUE(found.status.ok()) << found.status.message();
    EXPECT_EQ(found.summary.updates, 3);
    EXPECT_EQ(found.summary.skipped, 1);
    EXPECT_LE(Distance(found.parameters, expected.parameters), 2e-3);
    const auto events = EventsOf(folder_.path());
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[1].at("loss_scale"), 65536);
    EXPECT_EQ(events[2].at("loss_scale"), 32768);
    std::filesystem::remove_all(StrCat(folder_.path(), "/attempts"));
  }
}

TEST_F(CudaTrainerGuards, Fp16EndsBelowTheLeastScale) {
  Job job = JobWith({.lr = 0.05, .kind = SgdSpec{}}, {.feature = 1, .target = 1e10F});
  job.precision = Precision::kFP16;
  job.loss_scale = {.init_scale = 4, .growth_interval = 3, .least_scale = 2};
  job.epochs = 3;  // updates 2, 5 and 8
  const Trained trained = TrainOnGpus(job, 3);
  EXPECT_THAT(trained.status, HasKind(ErrorKind::kNoRequeue));
  EXPECT_THAT(trained.status, HasMessage(HasSubstr("update 5: training diverged")));
  EXPECT_THAT(trained.status, HasMessage(HasSubstr("loss_scale.least_scale, 2, found 1;")));
  EXPECT_THAT(trained.status, HasMessage(HasSubstr("rank 1 on node0: micro-batch 1 of 3")));
  EXPECT_EQ(trained.summary.updates, 4);
}

// No scale mends a loss that is not finite.
TEST_F(CudaTrainerGuards, Fp16StopsAtALossThatIsNotFinite) {
  Job job = JobWith({.lr = 0.05, .kind = SgdSpec{}}, {.features = 1});
  job.precision = Precision::kFP16;
  const Trained trained = TrainOnGpus(job, 3);
  EXPECT_THAT(trained.status, HasKind(ErrorKind::kNoRequeue));
  EXPECT_THAT(trained.status, HasMessage(HasSubstr("update 2: training diverged: the loss is")));
  EXPECT_THAT(trained.status, HasMessage(HasSubstr("rank 1 on node0: micro-batch 3 of 3")));
}

// Update 3 is on its way already when update 2 is found to be bad.
TEST_F(CudaTrainerGuards, StopNamesTheOffender) {
  const Job job = JobWith({.lr = 0.05, .kind = SgdSpec{}});
  const Trained expected = TrainOnCpus(job, 3);
  const Trained found = TrainOnGpus(job, 3);
  for (const Trained* trained : {&expected, &found}) {
    ASSERT_FALSE(trained->status.ok());
    EXPECT_THAT(trained->status, HasKind(ErrorKind::kNoRequeue));
    EXPECT_THAT(trained->status, HasMessage(HasSubstr("update 2: training diverged")));
    EXPECT_THAT(trained->status, HasMessage(HasSubstr("rank 1 on node0: micro-batch 3 of 3: the "
                                                      "gradient of fc1.weight is not finite; "
                                                      "samples 52, 53, 54")));
    EXPECT_EQ(trained->summary.updates, 1);
  }
  EXPECT_LE(Distance(found.parameters, expected.parameters), 1e-5);
}

}  // namespace
}  // namespace gaccd::tests
