// The trainer with engines on GPUs, over the stand-ins: the same run as on CPUs, reported in the
// same order although its figures come one update later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/train/memory_choice.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/sanitized.h"
#include "tests/support/engine_runs.h"
#include "tests/support/file_util.h"
#include "tests/support/fp16_golden.h"
#include "tests/support/rank_training.h"
#include "tests/support/slow_data.h"
#include "tests/support/small_regression.h"
#include "tests/support/status_matchers.h"
#include "tests/support/step_events.h"
#include "tests/support/temp_folder.h"

namespace gaccd::tests {
namespace {

// A value within an f32 error of the middle between two fp16 is rounded to either, and training
// continues from there.
constexpr double kOtherRounding = 2e-4;

Job ClippedJob() {
  Job job = SmallRegression();
  job.batch.target = 37;
  job.batch.micro = 4;
  job.optimizer = {.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}};
  job.schedule.warmup_updates = 5;
  job.clip_norm = 2;
  job.epochs = 2;
  return job;
}

Trained TrainOnGpus(const Job& job, const Training& training) {
  Trained trained(training.ranks);
  ExpectOk(RunOnGpus(training.ranks,
                     [&](Communicator& over, const EngineChoice& choice, Communicator* nccl) {
                       trained.status[static_cast<std::size_t>(over.rank())] =
                           TrainOnRank(over, job, training, choice, nccl, &trained);
                       return Status::Ok();
                     }));
  for (int device = -1; device < training.ranks; ++device) EXPECT_EQ(standin::LiveBytes(device), 0);
  return trained;
}

// What the events say of every update and evaluation, without times.
std::vector<std::map<std::string, double>> ReadEvents(const std::string& run_dir) {
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
        const auto value = EventValue(line, key);
        if (value && *value != "null") event[key] = std::stod(*value);
      }
    }
  }
  return events;
}

TEST(CudaTrainer, EqualsCpus) {
  for (const int ranks : {1, 3}) {
    const Trained expected = Train(ClippedJob(), {.ranks = ranks});
    const Trained found = TrainOnGpus(ClippedJob(), {.ranks = ranks});
    ASSERT_TRUE(found.status[0].ok()) << found.status[0].message();
    EXPECT_EQ(found.summary[0].updates, 14);  // 2 x (6 of 37 and one of 8)
    EXPECT_EQ(found.summary[0].samples, 460);
    EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-5);
    EXPECT_GT(found.memory[0].device, 0);
    EXPECT_EQ(expected.memory[0].device, 0);
  }
}

// On a GPU with so many bytes; 0: not even one sample at once fits.
std::int64_t ChosenOnGpus(const Job& job, std::size_t memory_bytes) {
  constexpr int kGpus = 2;
  standin::Reset({.devices = kGpus, .memory_bytes = memory_bytes});
  std::vector<std::int64_t> chosen(kGpus);
  ExpectOk(RunNcclRanks(kGpus, {}, [&](Communicator& nccl, Communicator& over) -> Status {
    const PlanRequest request{.gpus_per_node = kGpus, .target_batch = *job.batch.target};
    const EngineChoice choice = Cuda(over.rank());
    GACCD_ASSIGN_OR_RETURN(const Plan whole, InOneMicroStep(request));
    GACCD_ASSIGN_OR_RETURN(TrainingInputs inputs, OpenInputs(over, job, whole));
    const PlannedTraining training{
        .job = job, .model = inputs.model, .data = inputs.data, .schedule = inputs.schedule};
    const auto found = ChooseForTraining(
        over, nccl, training, request,
        {.replica = {}, .optimizer = job.optimizer, .numerics = GetNumerics(job), .choice = choice},
        std::nullopt);
    if (!found.ok()) {
      EXPECT_THAT(found, HasKind(ErrorKind::kConfig));
      return Status::Ok();
    }
    const Plan& plan = found->choice.plan();
    chosen[static_cast<std::size_t>(over.rank())] = plan.request().micro_batch;
    GACCD_ASSIGN_OR_RETURN(TrainingInputs of_plan,
                           TrainingInputs::Make(over, job, plan, std::move(inputs.data)));
    return Trainer::Make(over, std::move(of_plan), {{}, choice, &nccl, {}}).status();
  }));
  EXPECT_EQ(chosen[0], chosen[1]);
  return chosen[0];
}

// --micro-batch=auto never chooses what then does not fit on the GPU.
TEST(CudaTrainer, MicroBatchFitsFreeMemory) {
  Job job = ClippedJob();
  job.batch.target = 200;
  job.model.layer[0].kind = LinearSpec{10, 32'768, true};
  job.model.layer[2].kind = LinearSpec{32'768, 2, true};
  std::set<std::int64_t> chosen;
  for (std::size_t mebibytes = 264; mebibytes <= 360; mebibytes += tests::kSanitized ? 96 : 8) {
    const std::int64_t micro_batch = ChosenOnGpus(job, mebibytes << 20);
    EXPECT_GE(micro_batch, chosen.empty() ? 0 : *chosen.rbegin()) << mebibytes;
    chosen.insert(micro_batch);
  }
  EXPECT_EQ(*chosen.begin(), 0);
  EXPECT_EQ(*chosen.rbegin(), 100);
  EXPECT_GE(chosen.size(), tests::kSanitized ? 2U : 5U);
}

// Loads by speed, of which a rank may have none; its engine is prepared for these alone.
TEST(CudaTrainer, LoadsBySpeedEqualCpus) {
  const TempFolder folder;
  const std::vector<std::vector<double>> lists{{1, 0.3, 0.6}, {1, 1e-6, 1}};
  for (const std::vector<double>& speeds : lists) {
    Training training{.ranks = 3, .speeds = speeds};
    training.run_dir = folder.path() + "/cpu";
    const Trained expected = Train(ClippedJob(), training);
    training.run_dir = folder.path() + "/gpu";
    const Trained found = TrainOnGpus(ClippedJob(), training);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(found.status[rank].ok()) << found.status[rank].message();
      EXPECT_EQ(found.weights[rank], found.weights[0]);
    }
    EXPECT_EQ(found.summary[0].samples, 460);
    EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-5);
    auto on_cpu = ReadEvents(folder.path() + "/cpu");
    auto on_gpu = ReadEvents(folder.path() + "/gpu");
    ASSERT_EQ(on_gpu.size(), on_cpu.size());
    for (std::size_t i = 0; i < on_cpu.size(); ++i) {
      EXPECT_EQ(on_gpu[i]["samples"], on_cpu[i]["samples"]);
      if (on_cpu[i]["is_step"] == 0) continue;
      EXPECT_NEAR(on_gpu[i]["loss"] / on_cpu[i]["loss"], 1, 1e-5) << "event " << i;
    }
    std::filesystem::remove_all(folder.path() + "/cpu");
    std::filesystem::remove_all(folder.path() + "/gpu");
  }
}

// Rank 2 reads slowly, also compared with the stand-in of the GPU on a busy machine.
TEST(CudaTrainer, MeasuredLoadsEqualCpus) {
  Job job = ClippedJob();
  job.data.eval.reset();
  job.epochs = 0;
  job.max_updates = 40;
  const Trained expected = Train(job, {.ranks = 3});
  const TempFolder folder;
  std::atomic<std::int64_t> reads = 0;
  const auto slow = [&](int rank) {
    return std::make_unique<SlowData>(std::move(OpenTrainingData(job)->train),
                                      (rank == 2 ? 2 : 1) * tests::ReadTime(rank == 2), &reads);
  };
  const Trained found = TrainOnGpus(job, {.ranks = 3,
                                          .guards = {.digest_every = 1},
                                          .run_dir = folder.path(),
                                          .loads = {.always = true},
                                          .data = slow});
  for (const Status& status : found.status) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(EventValues(folder.path(), "rebalance", "step").empty());
  EXPECT_EQ(found.summary[0].samples, expected.summary[0].samples);
  EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-5);
}

TEST(CudaTrainer, AcceptsBf16OnCpuAndGpu) {
  Job job = ClippedJob();
  job.precision = Precision::kBF16;
  const Trained gpus = TrainOnGpus(job, {.ranks = 2});
  ASSERT_TRUE(gpus.status[0].ok()) << gpus.status[0].message();
  if (DetectCpuBf16() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  const Trained cpus = Train(job, {.ranks = 2});
  ASSERT_TRUE(cpus.status[0].ok()) << cpus.status[0].message();
  // On GPUs also activations are rounded.
  EXPECT_LE(Distance(gpus.weights[0], cpus.weights[0]), 2e-3);
}

TEST(CudaTrainer, AcceptsTf32AndFp16OnGpusOnly) {
  Job tf32 = ClippedJob();
  tf32.tf32 = true;
  Job fp16 = ClippedJob();
  fp16.precision = Precision::kFP16;
  for (const auto& [job, words] : {std::pair(tf32, "TF32"), std::pair(fp16, "fp16")}) {
    EXPECT_TRUE(TrainOnGpus(job, {.ranks = 1}).status[0].ok());
    EXPECT_THAT(Train(job, {.ranks = 1}).status[0], IsError(ErrorKind::kConfig, words));
  }
}

// Nothing after the last update waits for the device: no evaluation, no digest, no checkpoint.
TEST(CudaTrainer, ReportsLastUpdate) {
  Job job = ClippedJob();
  job.data.eval.reset();
  const Trained trained = TrainOnGpus(job, {.ranks = 2});
  ASSERT_TRUE(trained.status[0].ok()) << trained.status[0].message();
  EXPECT_EQ(trained.summary[0].updates, 14);
}

// The scale grows over its limit again and again: of 36 updates 10 are skipped. On 3 ragged ranks,
// too, where the samples that overflow are seldom on all of them.
TEST(CudaTrainer, Fp16EqualsPyTorchGradScaler) {
  const auto job = ValueOrThrow(LoadJob(GACCD_GOLDEN_DIR "/fp16.txtpb"));
  const std::vector<Fp16Step> golden = ReadFp16Steps(GACCD_GOLDEN_DIR "/fp16.txt");
  for (const int ranks : {1, 3}) {
    const TempFolder folder;
    const Trained trained =
        TrainOnGpus(job, {.ranks = ranks, .guards = {.digest_every = 1}, .run_dir = folder.path()});
    ASSERT_TRUE(trained.status[0].ok()) << trained.status[0].message();
    auto found = ReadEvents(folder.path());
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
    EXPECT_EQ(trained.summary[0].skipped, 10);
  }
}

TEST(CudaTrainer, ReportsUpdatesInOrderWithTheirResults) {
  const auto folder =
      std::filesystem::temp_directory_path() / StrCat("cuda_trainer_test.", ::getpid());
  const std::string on_cpu = folder / "cpu";
  const std::string on_gpu = folder / "gpu";
  ASSERT_TRUE(Train(ClippedJob(), {.ranks = 1, .run_dir = on_cpu}).status[0].ok());
  ASSERT_TRUE(TrainOnGpus(ClippedJob(), {.ranks = 1, .run_dir = on_gpu}).status[0].ok());
  const auto expected = ReadEvents(on_cpu);
  const auto found = ReadEvents(on_gpu);
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

TEST(CudaTrainer, ReportsDivergedUpdateOnEveryRank) {
  Job job = ClippedJob();
  job.optimizer.lr = 1e30;
  job.schedule.warmup_updates = 0;
  job.clip_norm = 0;
  const Trained expected = Train(job, {.ranks = 2});
  const Trained found = TrainOnGpus(job, {.ranks = 2});
  for (const Trained* trained : {&expected, &found}) {
    EXPECT_THAT(trained->status[0], IsError(ErrorKind::kNoRequeue, "update 2: training diverged"));
    EXPECT_EQ(trained->summary[0].updates, 1);
  }
  EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-5);
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
    Job job = ClippedJob();
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
    job.data.train = NpySpec{.features = folder_.Write("features", NpyFloats(features, 10)),
                             .targets = folder_.Write("targets", NpyFloats(targets, 2))};
    job.data.eval.reset();
    job.data.shuffle = false;
    job.batch.target = 33;
    job.epochs = 1;
    job.optimizer = optimizer;
    return job;
  }

  TempFolder folder_;
};

TEST_F(CudaTrainerGuards, HandlesNonFiniteValuesLikeCpus) {
  for (const OnNonfinite policy : {OnNonfinite::kSkipUpdate, OnNonfinite::kDropMicroBatch}) {
    for (const OptimizerSpec& optimizer :
         {OptimizerSpec{.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}},
          OptimizerSpec{.lr = 0.01, .kind = AdamWSpec{}}}) {
      SCOPED_TRACE(Name(policy));
      const TrainGuards guards{.on_nonfinite = policy, .digest_every = 1};
      const Job job = JobWith(optimizer);
      const Trained expected = Train(job, {.guards = guards});
      const Trained found = TrainOnGpus(job, {.guards = guards});
      ASSERT_TRUE(expected.status[0].ok()) << expected.status[0].message();
      ASSERT_TRUE(found.status[0].ok()) << found.status[0].message();
      const bool drops = policy == OnNonfinite::kDropMicroBatch;
      for (const Trained* trained : {&expected, &found}) {
        EXPECT_EQ(trained->summary[0].updates, 3);
        EXPECT_EQ(trained->summary[0].skipped, drops ? 0 : 1);
        EXPECT_EQ(trained->summary[0].samples, drops ? 96 : 66);
      }
      EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-5);
    }
  }
}

// Of three ranks one overflows in its first micro-step, with a loss of 4e7, and then no more.
TEST_F(CudaTrainerGuards, Fp16SkipsUpdateThatOverflowsOnOneRank) {
  for (const OptimizerSpec& optimizer :
       {OptimizerSpec{.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}},
        OptimizerSpec{.lr = 0.01, .kind = AdamWSpec{}}}) {
    const Job f32 = JobWith(optimizer);
    const Trained expected = Train(f32, {.guards = {.on_nonfinite = OnNonfinite::kSkipUpdate}});
    ASSERT_TRUE(expected.status[0].ok()) << expected.status[0].message();
    Job job = JobWith(optimizer, {.feature = 1, .target = 1e5F});
    job.precision = Precision::kFP16;
    const Trained found =
        TrainOnGpus(job, {.guards = {.digest_every = 1}, .run_dir = folder_.path()});
    ASSERT_TRUE(found.status[0].ok()) << found.status[0].message();
    EXPECT_EQ(found.summary[0].updates, 3);
    EXPECT_EQ(found.summary[0].skipped, 1);
    EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 2e-3);
    const auto events = ReadEvents(folder_.path());
    ASSERT_EQ(events.size(), 3U);
    EXPECT_EQ(events[1].at("loss_scale"), 65536);
    EXPECT_EQ(events[2].at("loss_scale"), 32768);
    std::filesystem::remove_all(StrCat(folder_.path(), "/attempts"));
  }
}

TEST_F(CudaTrainerGuards, Fp16EndsBelowMinScale) {
  Job job = JobWith({.lr = 0.05, .kind = SgdSpec{}}, {.feature = 1, .target = 1e10F});
  job.precision = Precision::kFP16;
  job.loss_scale = {.init_scale = 4, .growth_interval = 3, .least_scale = 2};
  job.epochs = 3;  // updates 2, 5 and 8
  const Trained trained = TrainOnGpus(job, {});
  EXPECT_THAT(trained.status[0], IsError(ErrorKind::kNoRequeue, "update 5: training diverged",
                                         "loss_scale.least_scale, 2, found 1;",
                                         "rank 1 on node0: micro-batch 1 of 3"));
  EXPECT_EQ(trained.summary[0].updates, 4);
}

// No scale repairs a loss that is not finite.
TEST_F(CudaTrainerGuards, Fp16StopsAtNonFiniteLoss) {
  Job job = JobWith({.lr = 0.05, .kind = SgdSpec{}}, {.features = 1});
  job.precision = Precision::kFP16;
  const Trained trained = TrainOnGpus(job, {});
  EXPECT_THAT(trained.status[0],
              IsError(ErrorKind::kNoRequeue, "update 2: training diverged: the loss is",
                      "rank 1 on node0: micro-batch 3 of 3"));
}

// In the last update no other shows it; with several, the next one is on its way already.
TEST_F(CudaTrainerGuards, UpdateThatOverflowsParametersEndsRun) {
  for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer}) {
    for (const std::int64_t target : {99, 33}) {
      Job job = JobWith({.lr = 1e40, .kind = SgdSpec{}}, {.feature = 1});
      job.batch.target = target;
      job.shard = shard;
      for (const Status& status : TrainOnGpus(job, {}).status) {
        EXPECT_THAT(status,
                    IsError(ErrorKind::kNoRequeue, target == 99 ? "after update 1" : "update 2",
                            "training diverged: the optimiser has made fc1.weight not finite"));
      }
    }
  }
}

// Update 3 is on its way already when update 2 is found to be bad.
TEST_F(CudaTrainerGuards, StopNamesOffender) {
  const Job job = JobWith({.lr = 0.05, .kind = SgdSpec{}});
  const Trained expected = Train(job, {});
  const Trained found = TrainOnGpus(job, {});
  for (const Trained* trained : {&expected, &found}) {
    EXPECT_THAT(trained->status[0], IsError(ErrorKind::kNoRequeue, "update 2: training diverged",
                                            "rank 1 on node0: micro-batch 3 of 3: the "
                                            "gradient of fc1.weight is not finite; "
                                            "samples 52, 53, 54"));
    EXPECT_EQ(trained->summary[0].updates, 1);
  }
  EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-5);
}

}  // namespace
}  // namespace gaccd::tests
