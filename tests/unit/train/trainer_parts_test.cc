// The parts of a Trainer, each by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <semaphore>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/consistency.h"
#include "daemon/train/control_words.h"
#include "daemon/train/nonfinite.h"
#include "daemon/train/nonfinite_handler.h"
#include "daemon/train/update.h"
#include "tests/support/slow_data.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/train/fake_engine.h"

namespace gaccd {
namespace {

using tests::EmptyDataset;
using tests::FakeEngine;

constexpr std::int64_t kSamples = 41;

Plan PlanFor(int ranks) {
  return *Plan::Make({.nodes = 1, .gpus_per_node = ranks, .micro_batch = 4, .target_batch = 20});
}

// 2 epochs of updates of 20, 20 and 1 samples.
UpdateSchedule Schedule() {
  return *UpdateSchedule::Make({.dataset_size = kSamples, .batch = 20, .epochs = 2});
}

BatchFeed MakeFeed(const Dataset& data, int ranks, int rank) {
  return *BatchFeed::Make(data, SampleOrder(7, kSamples, true), Schedule(), PlanFor(ranks), rank);
}

// The numbers of the samples of so many micro-batches.
std::vector<std::int64_t> Take(Prefetcher& batches, std::int64_t steps,
                               std::set<std::int64_t>* sizes = nullptr) {
  std::vector<std::int64_t> ids;
  for (std::int64_t step = 0; step < steps; ++step) {
    const BatchView* batch = batches.Next();
    ids.insert(ids.end(), batch->ids, batch->ids + batch->samples);
    if (sizes != nullptr && batch->samples > 0) sizes->insert(batch->samples);
  }
  return ids;
}

TEST(BatchFeedTest, ReadsEveryUpdateTwiceForTwoPasses) {
  const EmptyDataset data(kSamples);
  BatchFeed feed = *BatchFeed::Make(data, SampleOrder(7, kSamples, true), Schedule(), PlanFor(2), 1,
                                    TwoPassContrastive);
  BatchFeed once = MakeFeed(data, 2, 1);
  FakeEngine<> engine;
  ASSERT_TRUE(feed.Start(engine, 0).ok());
  ASSERT_TRUE(once.Start(engine, 0).ok());
  const UpdateSchedule schedule = Schedule();
  for (std::int64_t index = 0; index < schedule.updates(); ++index) {
    const std::int64_t steps = feed.ProgramFor(schedule.At(index)).micro_batches;
    const std::vector<std::int64_t> ids = Take(once.batches(), steps);
    EXPECT_EQ(Take(feed.batches(), steps), ids) << "update " << index;
    EXPECT_EQ(Take(feed.batches(), steps), ids) << "update " << index << ", second pass";
  }
}

// Of 4 samples each rank takes one; of the last 3 the fast rank takes all, in 3 micro-steps.
TEST(BatchFeedTest, SmallerUpdateMayHaveMoreMicroStepsIfSpeedsDiffer) {
  const EmptyDataset data(7);
  const Plan plan = *Plan::Make({.nodes = 1,
                                 .gpus_per_node = 4,
                                 .micro_batch = 1,
                                 .target_batch = 4,
                                 .speeds = {4, 1, 1, 1}});
  EXPECT_EQ(plan.accum_steps(), 1);
  const auto schedule = UpdateSchedule::Make({.dataset_size = 7, .batch = 4, .epochs = 1});
  const auto feed = BatchFeed::Make(data, SampleOrder(7, 7, true), *schedule, plan, 0);
  EXPECT_EQ(feed->max_micro_steps(), 3);
}

TEST(BatchFeedTest, OtherLoadsMayHaveSeveralMicroSteps) {
  const EmptyDataset data(8);
  const Plan plan =
      *Plan::Make({.nodes = 1, .gpus_per_node = 2, .micro_batch = 4, .target_batch = 8});
  const auto schedule = UpdateSchedule::Make({.dataset_size = 8, .batch = 8, .epochs = 1});
  auto feed = BatchFeed::Make(data, SampleOrder(7, 8, true), *schedule, plan, 0);
  EXPECT_EQ(feed->max_micro_steps(), 1);
  feed->PrepareForOtherLoads();
  EXPECT_EQ(feed->max_micro_steps(), 2);
}

TEST(BatchFeedTest, TakesEverySampleOncePerEpoch) {
  const EmptyDataset data(kSamples);
  const UpdateSchedule schedule = Schedule();
  std::map<std::int64_t, int> taken;
  for (int rank = 0; rank < 3; ++rank) {
    FakeEngine<> engine;
    BatchFeed feed = MakeFeed(data, 3, rank);
    ASSERT_TRUE(feed.Start(engine, 0).ok());
    std::set<std::int64_t> sizes;
    std::vector<std::vector<std::int64_t>> first;
    for (std::int64_t u = 0; u < schedule.updates(); ++u) {
      const Update update = schedule.At(u);
      const std::int64_t steps = feed.PlanFor(update).accum_steps();
      first.push_back(Take(feed.batches(), steps, &sizes));
      for (const std::int64_t id : first.back()) ++taken[id];
      const auto replay = ValueOrThrow(feed.Replay(engine, update));
      EXPECT_EQ(replay.steps, steps);
      EXPECT_EQ(Take(*replay.batches, steps), first.back()) << "update " << u;
    }
    EXPECT_EQ(feed.BatchSizes(), sizes) << "rank " << rank;
    ASSERT_TRUE(feed.Start(engine, 4).ok());
    EXPECT_EQ(Take(feed.batches(), feed.PlanFor(schedule.At(4)).accum_steps()), first[4]);
  }
  EXPECT_EQ(taken.size(), std::size_t{kSamples});
  for (const auto& [id, times] : taken) EXPECT_EQ(times, 2) << "sample " << id;
}

// Every micro-batch is read when the update has said that it waits for it; should it not say so,
// after a while.
TEST(RunUpdateTest, ReportsWaitForData) {
  const EmptyDataset data(kSamples);
  std::counting_semaphore<> waits{0};
  bool held = true;
  const tests::HeldData slow(
      data, [&] { held = held && waits.try_acquire_for(std::chrono::seconds(10)); });
  BatchFeed feed = MakeFeed(slow, 1, 0);
  FakeEngine<> engine;
  ASSERT_TRUE(feed.Start(engine, 0).ok());
  using heartbeat::Phase;
  std::vector<std::pair<Phase, std::int64_t>> found;
  std::vector<std::pair<Phase, std::int64_t>> expected;
  for (std::int64_t step = 0; step < 5; ++step) {
    for (const Phase phase : {Phase::kCompute, Phase::kLoad, Phase::kCompute}) {
      expected.emplace_back(phase, step);
    }
  }
  expected.emplace_back(Phase::kReduce, 5);
  const UpdateHooks hooks{.on_progress = [&](Phase phase, std::int64_t position) {
    found.emplace_back(phase, position);
    if (phase == Phase::kLoad) waits.release();
  }};
  EXPECT_OK(RunUpdate(engine, feed.batches(), feed.ProgramFor(Schedule().At(0)), {}, hooks));
  EXPECT_EQ(found, expected);
  waits.release(kSamples);  // the thread is to end
}

// The samples that could not be read are zeros: nothing is trained on them.
TEST(RunUpdateTest, UnreadableSampleEndsUpdate) {
  const EmptyDataset data(kSamples, {ErrorKind::kData, "damaged JPEG image"});
  BatchFeed feed = MakeFeed(data, 1, 0);
  FakeEngine<> engine;
  ASSERT_OK(feed.Start(engine, 0));
  EXPECT_THAT(RunUpdate(engine, feed.batches(), feed.ProgramFor(Schedule().At(0)), {}),
              IsError(ErrorKind::kData, "damaged JPEG image"));
  EXPECT_EQ(engine->page.sums.samples, 0);
}

TEST(ReplicaCheckTest, IsDueEveryNUpdatesAndAtEnd) {
  const auto comm = MakeSingle();
  const ReplicaCheck check(*comm, 4, 10);
  const ReplicaCheck never(*comm, 0, 10);
  for (std::int64_t step = 1; step <= 10; ++step) {
    EXPECT_EQ(check.Due(step), step == 4 || step == 8 || step == 10) << step;
    EXPECT_FALSE(never.Due(step));
  }
}

TEST(ReplicaCheckTest, AllRanksDetectDifferentDigest) {
  class Other : public tests::FakeBackend {
   public:
    Status CopyOut(std::string_view, EngineBuffer, std::int64_t, std::span<float> to) override {
      std::ranges::fill(to, parameter);
      return Status::Ok();
    }
    float parameter = 5;
  };
  for (const bool equal : {true, false}) {
    ExpectOk(RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
      FakeEngine<Other> engine;
      if (comm.rank() == 2 && !equal) engine->parameter = 6;
      bool differ = false;
      const auto text = ReplicaCheck(comm, 1, 9).Compare(engine, 3, &differ);
      EXPECT_EQ(text.ok(), equal);
      EXPECT_EQ(differ, !equal);
      if (equal) {
        EXPECT_EQ(*text, Hex((*engine).Digest().value()));
      } else {
        EXPECT_THAT(text,
                    IsError(ErrorKind::kInternal, StartsWith("after update 3: "), "rank 2 on "));
      }
      return Status::Ok();
    }));
  }
}

// Times are reported one update late.
TEST(ControlWordsTest, RecordNamesSlowRank) {
  ExpectOk(RunThreadRanks(3, {}, [](Communicator& comm) -> Status {
    ControlWords words(comm);
    for (int update = 1; update <= 2; ++update) {
      words.Pack(nullptr, 1, 0);
      std::vector<double> sums(words.words().begin(), words.words().end());
      const MutableBuffer view = View(std::span<double>(sums));
      GACCD_RETURN_IF_ERROR(comm.AllReduceSum(view, view));
      const double compute_s = comm.rank() == 1 ? 3 : 1;
      StepRecord record;
      words.Unpack({}, {.dur_s = 3, .fwd_bwd_s = compute_s, .control_words = sums}, nullptr,
                   nullptr, nullptr, &record);
      EXPECT_EQ(record.straggler.has_value(), update == 2);
      if (!record.straggler) continue;
      EXPECT_EQ(record.straggler->rank, 1);
      EXPECT_EQ(record.straggler->phase, "compute");
      EXPECT_EQ(record.straggler->ratio, 3);
      EXPECT_EQ(record.wait_s, comm.rank() == 1 ? 0 : 2);
    }
    return Status::Ok();
  }));
}

// The rank says what a micro-step takes; 90 of these 100 were computed by the attempt before.
TEST(ControlWordsTest, PaceExcludesRestoredMicroSteps) {
  const auto comm = MakeSingle();
  ControlWords words(*comm);
  StopAgreement stops(*comm, {.checkpoints = true});
  StepRecord record;
  words.Pack(&stops, 100, 0);
  const std::vector<double> sums(words.words().begin(), words.words().end());
  words.Unpack({.micro_steps = 100, .restored = 90}, {.dur_s = 0.5, .control_words = sums}, nullptr,
               &stops, nullptr, &record);
  words.Pack(&stops, 100, 0);
  EXPECT_DOUBLE_EQ(DecodeStopWords(words.words().first(kStopWordCount)).pace_s, 0.05);
}

// No rank leaves the others waiting.
TEST(ShareOffendersTest, FailureOfOneRankEndsSearchOnAllRanks) {
  EXPECT_OK(RunThreadRanks(3, {}, [](Communicator& comm) -> Status {
    Result<std::vector<Offender>> mine = std::vector<Offender>();
    if (comm.rank() == 0) mine->push_back({.where = "loss", .samples = {3}, .bad_inputs = {}});
    if (comm.rank() == 1) mine = Status(ErrorKind::kData, "the samples ended too early");
    const auto shared = ShareOffenders(comm, mine, 4, 2, true);
    EXPECT_THAT(shared.status(),
                IsError(ErrorKind::kData, "rank 1 on ", "the samples ended too early"));
    EXPECT_THAT(shared.status().message(), testing::Not(HasSubstr("loss"))) << "of another rank";
    return Status::Ok();
  }));
}

// The loss of a micro-batch with sample 3 is not finite. If `unlabelled`, no other sample has a
// label.
class PoisonedBackend final : public tests::FakeBackend {
 public:
  Status MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t first,
                   const float* row_gradients) override {
    ++micro_steps;
    const std::int64_t* const end = batch.ids + batch.samples;
    if (std::find(batch.ids, end, 3) != end) page.sums.loss = std::nan("");
    const Status status = FakeBackend::MicroStep(batch, place, first, row_gradients);
    if (unlabelled) page.sums.divisor = 0;
    return status;
  }
  int micro_steps = 0;
  bool unlabelled = false;
};

// One rank, update 1: samples 0 to 19, 4 at once.
struct Alone {
  explicit Alone(OnNonfinite policy, LossScale* scale = nullptr)
      : handler({*comm, engine, tests::ModelOfFakes().layout(), feed, notes, {}, scale, job},
                policy) {}
  Job job;
  std::unique_ptr<Communicator> comm = MakeSingle();
  EmptyDataset data{kSamples};
  FakeEngine<PoisonedBackend> engine;
  ProgressNotifier notes;
  BatchFeed feed =
      *BatchFeed::Make(data, SampleOrder(7, kSamples, false), Schedule(), PlanFor(1), 0);
  UpdateInFlight first{.update = Schedule().At(0), .micro_steps = 5};
  NonfiniteHandler handler;
};

// Sample 3 is in the first of five micro-batches.
TEST(FindOffendersTest, GradientAtTheLimitIsTooLarge) {
  Alone a(OnNonfinite::kStop);
  const FlatLayout& layout = tests::ModelOfFakes().layout();
  const FlatEntry& last = layout.entries().back();
  const float largest =
      tests::FakeBackend::ElementValue(EngineBuffer::kGradients, last.offset + last.elements - 1);
  const auto find = [&](float limit, bool loss_only = false) {
    const UpdateReplay replay = ValueOrThrow(a.feed.Replay(a.engine, a.first.update));
    return ValueOrThrow(FindOffenders(a.engine, layout, replay, limit, loss_only));
  };
  EXPECT_EQ(find(std::nextafter(largest, INFINITY)).size(), 1U);
  const std::vector<Offender> found = find(largest);
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found.back().where, last.name);
  EXPECT_TRUE(found.back().too_large);
  EXPECT_EQ(find(largest, /*loss_only=*/true).size(), 1U) << "that of sample 3";
}

TEST(NonfiniteHandlerTest, SkipsUpdatesUpToLimit) {
  Alone a(OnNonfinite::kSkipUpdate);
  for (const int finite_after : {3, 0}) {
    UpdateResult result{.divisor = 20, .finite = false};
    const auto most = finite_after > 0 ? finite_after : NonfiniteHandler::kMaxInARow;
    for (std::int64_t i = 0; i < most; ++i) {
      EXPECT_OK(a.handler.HandleResult(a.first, &result));
      EXPECT_FALSE(result.finite);
    }
    result.finite = finite_after > 0;
    const Status status = a.handler.HandleResult(a.first, &result);
    EXPECT_EQ(status.ok(), finite_after > 0);
    if (status.ok()) continue;
    EXPECT_THAT(status, IsError(ErrorKind::kNoRequeue, "11 updates in a row were not finite"));
  }
}

TEST(NonfiniteHandlerTest, RepeatsUpdateWithoutOffenders) {
  Alone a(OnNonfinite::kDropMicroBatch);
  a.first.loss_scale = 4;
  UpdateResult result;
  // In any number of updates: each has trained.
  for (std::int64_t i = 0; i <= NonfiniteHandler::kMaxInARow; ++i) {
    result = {.samples = 20, .divisor = 20, .finite = false};
    EXPECT_OK(a.handler.HandleResult(a.first, &result)) << i;
    EXPECT_TRUE(result.finite);
    EXPECT_EQ(result.samples, 16);
  }
  EXPECT_EQ(a.engine->page.inputs.effective_batch, 16) << "the divisor of what is left";
  EXPECT_EQ(a.engine->page.inputs.planned_divisor, 16.0 / 4) << "with the loss scale of the update";

  a.engine->squares = NAN;
  result = {.samples = 20, .divisor = 20, .finite = false};
  EXPECT_THAT(a.handler.HandleResult(a.first, &result),
              IsError(ErrorKind::kNoRequeue, "also without the 4 samples"));
}

// Without the offenders each sample weighs more, so that the gradient may overflow in fp16.
TEST(NonfiniteHandlerTest, OverflowWithoutOffendersHalvesLossScale) {
  LossScale scale({.init_scale = 4, .growth_interval = 2, .least_scale = 1});
  Alone a(OnNonfinite::kDropMicroBatch, &scale);
  a.engine->squares = NAN;
  UpdateResult result{.samples = 20, .divisor = 20, .loss = NAN, .finite = false};
  EXPECT_OK(a.handler.HandleResult(a.first, &result));
  EXPECT_FALSE(result.finite);
  EXPECT_EQ(scale.scale(), 2);
}

TEST(NonfiniteHandlerTest, SkipsUpdateWhoseRemainingSamplesHaveNoLabel) {
  Alone a(OnNonfinite::kDropMicroBatch);
  a.engine->unlabelled = true;
  UpdateResult result{.samples = 20, .divisor = 4, .loss = NAN, .finite = false};
  EXPECT_OK(a.handler.HandleResult(a.first, &result));
  EXPECT_FALSE(result.finite);
  EXPECT_EQ(result.samples, 16);
  EXPECT_EQ(result.divisor, 0);
}

// Nobody is looked for, and nothing is repeated. It is no sign of a training that diverges.
TEST(NonfiniteHandlerTest, SkipsUpdatesWithoutLabelsForAnyPolicy) {
  for (const OnNonfinite policy :
       {OnNonfinite::kStop, OnNonfinite::kSkipUpdate, OnNonfinite::kDropMicroBatch}) {
    Alone a(policy);
    std::vector<std::string> warnings;
    SetLogHook([&](const LogLine& line) { warnings.emplace_back(line.message); });
    for (std::int64_t i = 0; i < 2 * NonfiniteHandler::kMaxInARow; ++i) {
      UpdateResult result{.samples = 20, .divisor = 0, .loss = NAN, .finite = false};
      EXPECT_OK(a.handler.HandleResult(a.first, &result));
      EXPECT_FALSE(result.finite);
    }
    SetLogHook({});
    EXPECT_EQ(a.engine->micro_steps, 0);
    ASSERT_EQ(warnings.size(), 5U) << "of the updates 1, 2, 4, 8 and 16";
    EXPECT_THAT(warnings[0], HasSubstr("update 1 is skipped: none of its 20 samples"));
    EXPECT_THAT(warnings[4], HasSubstr("so far: 16"));
  }
}

// The loss does not depend on the scale: a sample that is bad in every epoch does not end the run.
TEST(NonfiniteHandlerTest, NonFiniteLossKeepsLossScale) {
  LossScale scale({.init_scale = 4, .growth_interval = 2, .least_scale = 1});
  Alone a(OnNonfinite::kSkipUpdate, &scale);
  for (int epoch = 0; epoch < 4; ++epoch) {
    UpdateResult result{.samples = 20, .divisor = 20, .loss = NAN, .finite = false};
    EXPECT_OK(a.handler.HandleResult(a.first, &result));
    EXPECT_EQ(scale.scale(), 4);
  }
  UpdateResult overflow{.samples = 20, .divisor = 20, .loss = 1, .finite = false};
  EXPECT_OK(a.handler.HandleResult(a.first, &overflow));
  EXPECT_EQ(scale.scale(), 2);
  EXPECT_FALSE(overflow.finite);
}

TEST(NonfiniteHandlerTest, OverflowedParameterEndsRunForAnyPolicy) {
  for (const OnNonfinite policy :
       {OnNonfinite::kStop, OnNonfinite::kSkipUpdate, OnNonfinite::kDropMicroBatch}) {
    LossScale scale({.init_scale = 4, .growth_interval = 2, .least_scale = 1});
    Alone a(policy, &scale);
    EXPECT_OK(a.feed.Start(a.engine, 0));
    EXPECT_OK(a.handler.CheckParameters());
    a.engine->page.parameters_not_finite = 1;
    EXPECT_OK(RunUpdate(a.engine, a.feed.batches(), a.feed.ProgramFor(a.first.update), {}));
    EXPECT_OK((*a.engine).PopResult(true));
    EXPECT_THAT(a.handler.CheckParameters(),
                IsError(ErrorKind::kNoRequeue, "the optimiser has made", "not finite"));
    UpdateResult result{.samples = 20, .divisor = 20, .loss = 1, .finite = false};
    EXPECT_THAT(a.handler.HandleResult(a.first, &result),
                IsError(ErrorKind::kNoRequeue, "the optimiser has made"));
    EXPECT_EQ(scale.scale(), 4);
  }
}

TEST(NonfiniteHandlerTest, ReportsAdvice) {
  Job job;
  job.optimizer.lr = 0.5;
  const std::string remedy = Remedy(job, OnNonfinite::kStop, false);
  EXPECT_THAT(remedy, HasSubstr("optimizer.lr is 0.5"));
  EXPECT_THAT(remedy, HasSubstr("clip_norm"));
  EXPECT_THAT(remedy, HasSubstr("--on-nonfinite=skip-update"));
  job.clip_norm = 1;
  EXPECT_THAT(Remedy(job, OnNonfinite::kSkipUpdate, false), Not(HasSubstr("clip_norm")));
  EXPECT_THAT(Remedy(job, OnNonfinite::kSkipUpdate, false), Not(HasSubstr("--on-nonfinite")));
  EXPECT_THAT(Remedy(job, OnNonfinite::kSkipUpdate, true), Not(HasSubstr("optimizer.lr")));
}

TEST(NonfiniteHandlerTest, ExplainsOnlyNonFiniteUpdates) {
  Alone a(OnNonfinite::kStop);
  EXPECT_THAT(a.handler.Explain(a.first, {ErrorKind::kInternal, "audit"}), HasMessage("audit"));
  EXPECT_EQ(a.engine->micro_steps, 0);
  const Status status = a.handler.Explain(a.first, {ErrorKind::kNoRequeue, "diverged"});
  EXPECT_EQ(a.engine->micro_steps, 5);
  EXPECT_THAT(status, IsError(ErrorKind::kNoRequeue, StartsWith("diverged; "),
                              "micro-batch 1 of 5: the loss is not finite; samples 0, "
                              "1, 2, 3"));
}

}  // namespace
}  // namespace gaccd
