#include "daemon/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/comm/threads.h"
#include "daemon/train/weight_source.h"
#include "daemon/weights/weights.h"
#include "tests/support/engine_runs.h"
#include "tests/support/rank_training.h"
#include "tests/support/small_regression.h"
#include "tests/support/status_matchers.h"
#include "tests/support/step_events.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tick_counter.h"

namespace gaccd {
namespace {

using tests::Distance;
using tests::MakePlan;
using tests::Train;
using tests::Trained;

Job SmallJob(std::int64_t target, std::int64_t micro) {
  Job job = tests::SmallRegression();
  job.batch.target = target;
  job.batch.micro = micro;
  job.optimizer = {.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}};
  job.epochs = 2;
  return job;
}

// The same samples in the same updates, so the same weights, however many ranks share the work and
// however they cut it.
TEST(Trainer, WeightsDoNotDependOnTopology) {
  const Trained one = Train(SmallJob(37, 37), {.ranks = 1});
  EXPECT_EQ(one.summary[0].updates, 14);  // 2 x (6 of 37 and one of 8)
  EXPECT_EQ(one.summary[0].samples, 460);
  for (const int ranks : {2, 3, 5, 8, 40}) {
    for (const std::int64_t micro : {1, 4, 37}) {
      const Trained many = Train(SmallJob(37, micro), {.ranks = ranks});
      EXPECT_EQ(many.summary[0].samples, 460);
      EXPECT_LE(Distance(many.weights[0], one.weights[0]), 1e-5)
          << ranks << " ranks, micro " << micro;
    }
  }
}

std::string EventsOfRankOne(const std::string& run_dir) {
  for (const auto& file : std::filesystem::recursive_directory_iterator(run_dir)) {
    if (file.path().filename() != "r00001.jsonl") continue;
    std::ifstream in(file.path());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  return {};
}

// An allocation that fails changes no sample, and is reported in the events of its rank.
TEST(Trainer, MicroBatchWithoutMemoryRunsInParts) {
  const Job job = SmallJob(37, 4);
  const Trained plain = Train(job, {});
  const TempFolder folder;
  int asked = 0;
  const Trained found =
      Train(job, {.run_dir = folder.path(), .refused_rank = 1, .refuses_memory = [&](std::int64_t) {
                    return ++asked == 6;
                  }});
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_OK(found.status[rank]);
    EXPECT_EQ(found.summary[rank].samples, 460);
    EXPECT_EQ(found.summary[rank].allocation_retries, 1);
    EXPECT_LE(Distance(found.weights[rank], plain.weights[rank]), 1e-6);
  }
  const std::string own = EventsOfRankOne(folder.path());
  for (const char* part :
       {R"("ev":"allocation_retry")", R"("step":2)", R"("micro_step":2)", R"("samples_before":3)",
        R"("samples":2)", R"("rank":1)", "memory for 3 samples was refused"}) {
    EXPECT_THAT(own, testing::HasSubstr(part));
  }
}

// What came before is reported where the run ends for it, and the other ranks do not wait.
TEST(Trainer, RankWithoutMemoryEndsRunWithAdvice) {
  const TempFolder folder;
  const tests::Training training{.run_dir = folder.path(),
                                 .refused_rank = 1,
                                 .refuses_memory = [](std::int64_t) { return true; }};
  Trained trained(training.ranks);
  const Status first = RunThreadRanks(training.ranks, {}, [&](Communicator& comm) {
    Status& mine = trained.status[static_cast<std::size_t>(comm.rank())];
    mine = tests::TrainOnRank(comm, SmallJob(37, 4), training,
                              tests::ChoiceForRank(training, comm.rank()), nullptr, &trained);
    return mine;
  });
  EXPECT_THAT(first, IsError(ErrorKind::kConfig, "update 1", "less memory was tried 3 times"));
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_THAT(trained.status[rank], HasKind(ErrorKind::kUnavailable));
  }
  EXPECT_THAT(EventsOfRankOne(folder.path()), testing::HasSubstr(R"("samples_before":2)"));
}

// The losses of two updates of the same weights with the same samples: only dropout differs.
std::vector<std::string> LossesWithDropout(std::uint64_t seed) {
  Job job = SmallJob(230, 60);
  job.model.layer.insert(job.model.layer.begin() + 2, {"drop", DropoutSpec{0.5}});
  job.data.shuffle = false;
  job.data.eval.reset();
  job.optimizer = {.lr = 0, .kind = SgdSpec{}};
  job.seed = seed;
  const TempFolder folder;
  const auto same_weights = [](int, Trainer& trainer) {
    return trainer.engine().ChangeParameters([](std::span<float> parameters) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i] = static_cast<float>(i % 7) - 3;
      }
      return Status::Ok();
    });
  };
  const Trained trained =
      Train(job, {.ranks = 2, .run_dir = folder.path(), .before = same_weights});
  EXPECT_TRUE(trained.status[0].ok()) << trained.status[0].message();
  return tests::StepValues(folder.path(), "loss");
}

TEST(Trainer, PlannedMemoryIncludesRingOfBatches) {
  const auto check = [](int, Trainer& trainer) {
    const auto ring = Prefetcher::RingBytes(trainer.data().train->spec(), 4);
    const std::int64_t more =
        trainer.memory().planned - trainer.memory().process - trainer.engine().memory().host_bytes;
    EXPECT_GE(more, static_cast<std::int64_t>(ring.value()));
    return Status::Ok();
  };
  EXPECT_OK(Train(SmallJob(37, 4), {.ranks = 1, .before = check}).status[0]);
}

TEST(Trainer, DropoutDependsOnUpdateAndSeed) {
  const std::vector<std::string> one = LossesWithDropout(1);
  const std::vector<std::string> two = LossesWithDropout(2);
  ASSERT_EQ(one.size(), 2U);
  EXPECT_NE(one[0], one[1]);
  EXPECT_NE(one[0], two[0]);
  EXPECT_EQ(LossesWithDropout(1), one);
}

TEST(Trainer, CarryUsesEverySampleOnce) {
  Job job = SmallJob(37, 4);
  job.batch.last_cycle = LastCycle::kCarry;
  const TrainingSummary carried = Train(job, {}).summary[0];
  EXPECT_EQ(carried.samples, 460);
  EXPECT_EQ(carried.updates, 13);  // ceil(460 / 37)
  job.batch.last_cycle = LastCycle::kDrop;
  EXPECT_EQ(Train(job, {}).summary[0].samples, 2 * 6 * 37);
}

TEST(Trainer, DivergenceStopsEveryRank) {
  Job job = SmallJob(37, 4);
  job.optimizer.lr = 1e30;
  for (const Status& status : Train(job, {}).status) {
    for (const char* part :
         {"diverged", "optimizer.lr is 1e+30", "clip_norm", "warmup", "--on-nonfinite"}) {
      EXPECT_THAT(status, IsError(ErrorKind::kNoRequeue, part));
    }
  }
}

TEST(Trainer, RefusesEvaluationDataOfAnotherKind) {
  Job job = SmallJob(37, 4);
  std::get<SyntheticSpec>(*job.data.eval).outputs = 3;
  const auto comm = MakeSingle();
  EXPECT_THAT(tests::OpenInputs(*comm, job, *MakePlan(job, 1)),
              IsError(ErrorKind::kConfig, "targets f32 [2], found"));
}

TEST(Trainer, BestEvaluationUsesJobMetric) {
  Job job = SmallJob(37, 4);
  job.evaluation.metric = "r2";
  const auto comm = MakeSingle();
  const Plan plan = *MakePlan(job, 1);
  EXPECT_THAT(tests::OpenInputs(*comm, job, plan),
              IsError(ErrorKind::kConfig, "evaluation.metric: expected one of loss, found r2"));
  job.metric = {MseSpec{}, R2Spec{}};
  EXPECT_TRUE(tests::OpenInputs(*comm, job, plan).ok());
}

Job ContrastiveJob() {
  Job job = SmallJob(37, 4);
  const auto tower = [](const char* input, std::int64_t in) {
    return TowerSpec{input, {{"fc", LinearSpec{in, 4, true}}}};
  };
  job.model = {.loss = ContrastiveSpec{},
               .architecture = DualEncoderSpec{
                   .a = tower("features", 10), .b = tower("targets", 2), .width = 3}};
  job.data.eval.reset();
  return job;
}

// A sample alone has no other to be compared with: loss and gradient are 0.
TEST(Trainer, RefusesContrastiveUpdateOfOneSample) {
  Job job = ContrastiveJob();
  const auto comm = MakeSingle();
  const auto open = [&](std::int64_t target) {
    job.batch.target = target;
    return tests::OpenInputs(*comm, job, *MakePlan(job, 1));
  };
  EXPECT_TRUE(open(37).ok()) << "6 of 37 and one of 8";
  EXPECT_THAT(open(1), IsError(ErrorKind::kConfig, "a larger target"));
  EXPECT_THAT(open(229), IsError(ErrorKind::kConfig, "--last-cycle=drop")) << "one is left";
  job.batch.last_cycle = LastCycle::kDrop;
  EXPECT_TRUE(open(229).ok());
}

// Measuring changes nothing of the training.
TEST(Trainer, MeasuresNoiseScaleEveryNUpdates) {
  Job job = SmallJob(37, 4);
  const Trained plain = Train(job, {.ranks = 3});
  job.noise_scale_every = 4;
  const TempFolder folder;
  const Trained measured = Train(job, {.ranks = 3, .run_dir = folder.path()});
  ASSERT_TRUE(measured.status[0].ok()) << measured.status[0].message();
  EXPECT_EQ(measured.weights, plain.weights);
  // 14 updates.
  EXPECT_EQ(tests::EventValues(folder.path(), "noise_scale", "step"),
            (std::vector<std::string>{"4", "8", "12"}));
  EXPECT_EQ(tests::EventValues(folder.path(), "noise_scale", "measured"),
            (std::vector<std::string>{"1", "2", "3"}));
  for (const std::string& variance :
       tests::EventValues(folder.path(), "noise_scale", "gradient_variance")) {
    EXPECT_GT(std::stod(variance), 0);
  }
}

TEST(Trainer, RefusesNoiseScaleOfContrastiveLoss) {
  Job job = ContrastiveJob();
  job.noise_scale_every = 1;
  const auto comm = MakeSingle();
  EXPECT_THAT(tests::OpenInputs(*comm, job, *MakePlan(job, 1)),
              IsError(ErrorKind::kConfig, "noise_scale_every: 1", "found a contrastive loss"));
}

// A variance needs two values of a channel: two samples, or an image of two pixels.
TEST(Trainer, RefusesBatchNormOfOneValuePerUpdate) {
  const auto open = [](const Shape& image, std::int64_t target) {
    Job job = SmallJob(37, 4);
    const std::vector<LayerSpec> head = {{"image", UnflattenSpec{image[0], image[1], image[2]}},
                                         {"bn", BatchNormSpec{.num_features = image[0]}},
                                         {"flatten", FlattenSpec{}},
                                         {"fc", LinearSpec{10, 2, true}}};
    job.model.layer = head;
    job.batch.target = target;
    const auto comm = MakeSingle();
    return tests::OpenInputs(*comm, job, *MakePlan(job, 1));
  };
  EXPECT_TRUE(open({10, 1, 1}, 37).ok()) << "6 of 37 and one of 8";
  EXPECT_THAT(open({10, 1, 1}, 1),
              IsError(ErrorKind::kConfig, "batch_norm of one value per channel",
                      "at least 2 samples", "a larger target"));
  EXPECT_THAT(open({10, 1, 1}, 229), IsError(ErrorKind::kConfig, "--last-cycle=drop"));
  EXPECT_TRUE(open({5, 1, 2}, 229).ok()) << "one image is left";
  EXPECT_TRUE(open({5, 1, 2}, 1).ok());
}

// Targets, of which so many samples have none that counts.
class PartlyUnlabelled final : public Dataset {
 public:
  PartlyUnlabelled(std::int64_t size, std::int64_t unlabelled)
      : size_(size), unlabelled_(unlabelled) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }
  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    return {.unlabelled =
                std::ranges::count_if(indices, [&](std::int64_t i) { return i < unlabelled_; })};
  }
  void Gather(std::span<const std::int64_t>, const BatchView&) const override {}

 private:
  std::int64_t size_;
  std::int64_t unlabelled_;
  SampleSpec spec_ = TargetSample({10}, 2);
};

TEST(Trainer, RefusesDataWithoutLabelsBeforeTraining) {
  const Job job = SmallJob(37, 4);
  const auto comm = MakeSingle();
  const auto open = [&](std::int64_t train, std::int64_t eval) {
    return TrainingInputs::Make(*comm, job, *MakePlan(job, 1),
                                {.train = std::make_unique<PartlyUnlabelled>(100, train),
                                 .eval = std::make_unique<PartlyUnlabelled>(41, eval)});
  };
  const auto trainer = ValueOrThrow(open(99, 40));
  EXPECT_EQ(trainer.labels.unlabelled, 99);
  EXPECT_THAT(open(99, 41), IsError(ErrorKind::kData, "evaluation data has no label"));
  EXPECT_THAT(open(100, 40), IsError(ErrorKind::kData, "training data has no label"));
}

TEST(Trainer, LoadsWeightsThatWereSaved) {
  const TempFolder folder;
  const std::string path = folder.Path("weights");
  const auto comm = MakeSingle();
  std::vector<std::vector<float>> parameters;
  for (const std::uint64_t seed : {1U, 2U}) {
    Job job = SmallJob(37, 4);
    job.seed = seed;
    const auto trainer =
        Trainer::Make(*comm, tests::OpenInputs(*comm, job, *MakePlan(job, 1)).value());
    ASSERT_TRUE(trainer.ok()) << trainer.status().message();
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

TEST(Trainer, RankZeroSendsHeartbeatsWhileLoadingWeights) {
  const TempFolder folder;
  const std::string path = folder.Path("weights");
  const Job job = SmallJob(37, 4);
  const auto single = MakeSingle();
  TickCounter comm(*single);
  const auto trainer = ValueOrThrow(
      Trainer::Make(comm, ValueOrThrow(tests::OpenInputs(comm, job, *MakePlan(job, 1)))));
  ASSERT_OK(SaveParameters(path, trainer->model().layout(), trainer->Parameters().value()));
  const int before = comm.ticks();
  LoadedWeights loaded;
  ASSERT_OK(
      LoadWeightsTogether(comm, trainer->engine(), trainer->model(), job, {.path = path}, &loaded)
          .status);
  EXPECT_EQ(comm.ticks() - before, 3) << "one while the file is read";
}

// The last layer is new, and no rank but the last one trains it.
TEST(Trainer, LoadsWeightsIntoPipelineWithNewParameters) {
  const TempFolder folder;
  const std::string path = folder.Path("weights");
  const auto loaded = [&](int stages) {
    Job job = SmallJob(37, 4);
    job.seed = 2;
    job.pipeline.stages = stages;
    std::vector<float> parameters;
    const Status run = RunThreadRanks(stages, {}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(job, stages));
      GACCD_ASSIGN_OR_RETURN(auto inputs, tests::OpenInputs(comm, job, plan));
      GACCD_ASSIGN_OR_RETURN(const auto trainer, Trainer::Make(comm, std::move(inputs)));
      if (stages == 1) {
        const std::vector<float> ones(static_cast<std::size_t>(trainer->model().layout().size()),
                                      1.0F);
        GACCD_RETURN_IF_ERROR(SaveParameters(path, trainer->model().layout(), ones));
      }
      LoadedWeights report;
      GACCD_RETURN_IF_ERROR(
          LoadWeightsTogether(
              comm, trainer->engine(), trainer->model(), job,
              {.path = path, .rules = {.new_weights = {"fc2.*"}, .unused = {"fc2.*"}}}, &report)
              .status);
      GACCD_ASSIGN_OR_RETURN(auto mine, trainer->Parameters());
      if (comm.rank() == stages - 1) parameters = std::move(mine);
      return Status::Ok();
    });
    EXPECT_OK(run);
    return parameters;
  };
  const std::vector<float> whole = loaded(1);
  EXPECT_GT(std::ranges::count_if(whole, [](float w) { return w != 0 && w != 1; }), 30);
  EXPECT_EQ(loaded(2), whole);
}

TEST(Trainer, RefusesDataSmallerThanBatch) {
  const Job job = SmallJob(231, 4);
  const auto comm = MakeSingle();
  EXPECT_THAT(tests::OpenInputs(*comm, job, *MakePlan(job, 1)),
              IsError(ErrorKind::kConfig, "230", "231"));
}

TEST(Agree, ReturnsErrorOfLowestRankOnAllRanks) {
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
    EXPECT_EQ(agreement.reporting_rank, 2);
    EXPECT_THAT(agreement.status, IsError(ErrorKind::kData, "rank 2 on node1: bad file 2"));
  }
}

TEST(Agree, ReturnsOkIfNoRankFailed) {
  const Status run =
      RunThreadRanks(3, {}, [](Communicator& comm) { return AgreeOn(comm, Status::Ok()).status; });
  EXPECT_TRUE(run.ok()) << run.message();
}

}  // namespace
}  // namespace gaccd
