#include "daemon/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/bootstrap/agree.h"
#include "collectives/comm/threads.h"
#include "daemon/train/weight_source.h"
#include "daemon/train/weights.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/train/small_regression.h"

namespace gaccd {
namespace {

Job SmallJob(std::int64_t target, std::int64_t micro) {
  Job job = tests::SmallRegression();
  job.batch.target = target;
  job.batch.micro = micro;
  job.optimizer = {.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}};
  job.epochs = 2;
  return job;
}

Result<Plan> PlanOf(const Job& job, int ranks) {
  return Plan::Make({.nodes = 1,
                     .gpus_per_node = ranks,
                     .micro_batch = job.batch.micro,
                     .target_batch = *job.batch.target});
}

struct Trained {
  TrainingSummary summary;
  std::vector<float> weights;  // of rank 0, through the saved file
};

Status TrainRank(Communicator& comm, const Job& job, TrainingSummary* summary,
                 std::vector<float>* parameters) {
  GACCD_ASSIGN_OR_RETURN(const Plan plan, PlanOf(job, comm.size()));
  GACCD_ASSIGN_OR_RETURN(auto trainer, Trainer::Open(comm, job, plan));
  GACCD_RETURN_IF_ERROR(trainer->Prepare());
  GACCD_ASSIGN_OR_RETURN(auto reporter, RunReporter::Start(comm, {.quiet = true}));
  TrainingSummary mine;
  GACCD_RETURN_IF_ERROR(trainer->Run(*reporter, &mine));
  reporter->Finish(Status::Ok());
  if (comm.rank() == 0) {
    *summary = mine;
    GACCD_ASSIGN_OR_RETURN(*parameters, trainer->Parameters());
  }
  return Status::Ok();
}

Trained Train(const Job& job, int ranks) {
  Trained trained;
  const Status status = RunThreadRanks(ranks, {}, [&](Communicator& comm) {
    return TrainRank(comm, job, &trained.summary, &trained.weights);
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return trained;
}

double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// The same samples in the same updates, so the same weights, however many ranks share the work and
// however they cut it.
TEST(Trainer, WeightsDoNotDependOnTheTopology) {
  const Trained one = Train(SmallJob(37, 37), 1);
  EXPECT_EQ(one.summary.updates, 14);  // 2 x (6 of 37 and one of 8)
  EXPECT_EQ(one.summary.samples, 460);
  for (const int ranks : {2, 3, 5, 8, 40}) {
    for (const std::int64_t micro : {1, 4, 37}) {
      const Trained many = Train(SmallJob(37, micro), ranks);
      EXPECT_EQ(many.summary.samples, 460);
      EXPECT_LE(Difference(many.weights, one.weights), 1e-5) << ranks << " ranks, micro " << micro;
    }
  }
}

TEST(Trainer, CarryUsesEverySampleOnceToo) {
  Job job = SmallJob(37, 4);
  job.batch.last_cycle = LastCycle::kCarry;
  EXPECT_EQ(Train(job, 3).summary.samples, 460);
  EXPECT_EQ(Train(job, 3).summary.updates, 13);  // ceil(460 / 37)
  job.batch.last_cycle = LastCycle::kDrop;
  EXPECT_EQ(Train(job, 3).summary.samples, 2 * 6 * 37);
}

TEST(Trainer, DivergenceStopsTheRunOnEveryRank) {
  Job job = SmallJob(37, 4);
  job.optimizer.lr = 1e30;
  TrainingSummary summary;
  std::vector<float> parameters;
  const Status status = RunThreadRanks(
      3, {}, [&](Communicator& comm) { return TrainRank(comm, job, &summary, &parameters); });
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kNoRequeue));
  EXPECT_THAT(status, HasMessage(::testing::HasSubstr("diverged")));
  for (const char* remedy : {"optimizer.lr is 1e+30", "clip_norm", "warmup", "--on-nonfinite"}) {
    EXPECT_THAT(status, HasMessage(::testing::HasSubstr(remedy)));
  }
}

TEST(Trainer, RefusesEvaluationDataOfAnotherKind) {
  Job job = SmallJob(37, 4);
  std::get<SyntheticSpec>(*job.data.eval).outputs = 3;
  const auto comm = MakeSingle();
  const auto trainer = Trainer::Open(*comm, job, *PlanOf(job, 1));
  ASSERT_FALSE(trainer.ok());
  EXPECT_THAT(trainer, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(trainer, HasMessage(::testing::HasSubstr("targets f32 [2], found")));
}

TEST(Trainer, TheBestEvaluationIsToldByAMetricOfTheJob) {
  Job job = SmallJob(37, 4);
  job.evaluation.metric = "r2";
  const auto comm = MakeSingle();
  const Plan plan = *PlanOf(job, 1);
  EXPECT_THAT(Trainer::Open(*comm, job, plan),
              IsError(ErrorKind::kConfig, "evaluation.metric: expected one of loss, found r2"));
  job.metric = {MseSpec{}, R2Spec{}};
  EXPECT_TRUE(Trainer::Open(*comm, job, plan).ok());
}

// A sample alone has nothing to be told from: loss and gradient are 0.
TEST(Trainer, RefusesAContrastiveUpdateOfOneSample) {
  Job job = SmallJob(37, 4);
  const auto tower = [](const char* input, std::int64_t in) {
    return TowerSpec{input, {{"fc", LinearSpec{in, 4, true}}}};
  };
  job.model = {.loss = ContrastiveSpec{},
               .architecture = DualEncoderSpec{
                   .a = tower("features", 10), .b = tower("targets", 2), .width = 3}};
  job.data.eval.reset();
  const auto comm = MakeSingle();
  const auto open = [&](std::int64_t target) {
    job.batch.target = target;
    return Trainer::Open(*comm, job, *PlanOf(job, 1));
  };
  EXPECT_TRUE(open(37).ok()) << "6 of 37 and one of 8";
  EXPECT_THAT(open(1), IsError(ErrorKind::kConfig, "a larger target"));
  EXPECT_THAT(open(229), IsError(ErrorKind::kConfig, "--last-cycle=drop")) << "one is left";
  job.batch.last_cycle = LastCycle::kDrop;
  EXPECT_TRUE(open(229).ok());
}

// Targets, of which so many samples have none that counts.
class PartlyUnlabelled final : public Dataset {
 public:
  PartlyUnlabelled(std::int64_t size, std::int64_t unlabelled)
      : size_(size), unlabelled_(unlabelled) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] std::int64_t CountUnlabelled(std::span<const std::int64_t> indices) const override {
    return std::ranges::count_if(indices, [&](std::int64_t i) { return i < unlabelled_; });
  }
  void Gather(std::span<const std::int64_t>, const BatchView&) const override {}

 private:
  std::int64_t size_;
  std::int64_t unlabelled_;
  SampleSpec spec_ = TargetSample({10}, 2);
};

TEST(Trainer, RefusesDataWithoutAnyLabelBeforeItTrains) {
  const Job job = SmallJob(37, 4);
  const auto comm = MakeSingle();
  const auto open = [&](std::int64_t train, std::int64_t eval) {
    return Trainer::Open(*comm, job, *PlanOf(job, 1),
                         {.train = std::make_unique<PartlyUnlabelled>(100, train),
                          .eval = std::make_unique<PartlyUnlabelled>(41, eval)});
  };
  const auto trainer = open(99, 40);
  ASSERT_TRUE(trainer.ok()) << trainer.status().message();
  EXPECT_EQ((*trainer)->unlabelled(), 99);
  EXPECT_THAT(open(99, 41), IsError(ErrorKind::kData, "evaluation data has no label"));
  EXPECT_THAT(open(100, 40), IsError(ErrorKind::kData, "training data has no label"));
}

TEST(Trainer, LoadsWeightsThatWereSaved) {
  const std::string path = ::testing::TempDir() + "trainer_test.safetensors";
  const auto comm = MakeSingle();
  std::vector<std::vector<float>> parameters;
  for (const std::uint64_t seed : {1U, 2U}) {
    Job job = SmallJob(37, 4);
    job.seed = seed;
    const auto trainer = Trainer::Open(*comm, job, *PlanOf(job, 1));
    ASSERT_TRUE(trainer.ok()) << trainer.status().message();
    ASSERT_TRUE((*trainer)->Prepare().ok());
    parameters.push_back((*trainer)->Parameters().value());
    LoadedWeights loaded;
    const Status moved = seed == 1
                             ? SaveParameters(path, (*trainer)->model().layout(), parameters.back())
                             : LoadWeightsTogether(*comm, (*trainer)->engine(), (*trainer)->model(),
                                                   job, {.path = path}, &loaded)
                                   .status;
    ASSERT_TRUE(moved.ok()) << moved.message();
    parameters.push_back((*trainer)->Parameters().value());
  }
  EXPECT_EQ(parameters[1], parameters[0]);
  EXPECT_NE(parameters[2], parameters[0]);
  EXPECT_EQ(parameters[3], parameters[0]);
}

TEST(Trainer, RefusesDataSmallerThanTheBatch) {
  const Job job = SmallJob(231, 4);
  const auto comm = MakeSingle();
  const auto trainer = Trainer::Open(*comm, job, *PlanOf(job, 1));
  ASSERT_FALSE(trainer.ok());
  EXPECT_THAT(trainer, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(trainer, HasMessage(::testing::HasSubstr("230")));
  EXPECT_THAT(trainer, HasMessage(::testing::HasSubstr("231")));
}

TEST(Agree, AllGetTheErrorOfTheLowestRank) {
  std::mutex mutex;
  std::vector<Agreement> agreements;
  const Status run = RunThreadRanks(4, {.comm = {}, .ranks_per_node = 2}, [&](Communicator& comm) {
    Status mine;
    if (comm.rank() >= 2) mine = {ErrorKind::kData, "bad file " + std::to_string(comm.rank())};
    Agreement agreement = AgreeOn(comm, mine);
    const std::lock_guard lock(mutex);
    agreements.push_back(std::move(agreement));
    return Status::Ok();
  });
  ASSERT_TRUE(run.ok()) << run.message();
  ASSERT_EQ(agreements.size(), 4U);
  for (const Agreement& agreement : agreements) {
    EXPECT_EQ(agreement.speaker, 2);
    EXPECT_THAT(agreement.status, HasKind(ErrorKind::kData));
    EXPECT_THAT(agreement.status, HasMessage("rank 2 on node1: bad file 2"));
  }
}

TEST(Agree, NobodyFailed) {
  const Status run =
      RunThreadRanks(3, {}, [](Communicator& comm) { return AgreeOn(comm, Status::Ok()).status; });
  EXPECT_TRUE(run.ok()) << run.message();
}

}  // namespace
}  // namespace gaccd
