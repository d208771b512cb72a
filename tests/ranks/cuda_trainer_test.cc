// The trainer with engines on GPUs, over the stand-ins: the same run as on CPUs, told in the same
// order although its figures come one update later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/bf16_of_cpu.h"
#include "daemon/train/trainer.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/data/file_util.h"
#include "tests/unit/train/engine_runs.h"
#include "tests/unit/train/small_regression.h"

namespace gaccd::tests {
namespace {

using ::testing::HasSubstr;

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

TEST(CudaTrainer, Tf32IsTakenOnGpusOnly) {
  Job job = SmallJob();
  job.tf32 = true;
  EXPECT_TRUE(TrainOnGpus(job, 1).status.ok());
  const Status refused = TrainOnCpus(job, 1).status;
  EXPECT_THAT(refused, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(refused, HasMessage(HasSubstr("TF32")));
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
      for (const char* key :
           {"epoch", "step", "samples", "target", "samples_total", "lr", "loss", "grad_norm"}) {
        std::smatch found;
        const std::regex pattern(StrCat("\"", key, R"re(":([-+0-9.e]+))re"));
        if (std::regex_search(line, found, pattern)) event[key] = std::stod(found[1]);
      }
    }
  }
  return events;
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
// in the last of its micro-batches of 4, 4 and 3.
class CudaTrainerGuards : public ::testing::Test {
 protected:
  Job JobWith(const OptimizerSpec& optimizer) {
    Job job = SmallJob();
    std::vector<float> features;
    std::vector<float> targets;
    for (int s = 0; s < 99; ++s) {
      for (int f = 0; f < 10; ++f) {
        features.push_back((s == 53 ? 1e30F : 1) * std::sin(static_cast<float>(10 * s + f)));
      }
      for (int t = 0; t < 2; ++t) targets.push_back(std::cos(static_cast<float>(3 * s + t)));
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
