#include "daemon/eval/evaluator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/comm/threads.h"
#include "tests/support/slow_data.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tick_counter.h"
#include "tests/unit/train/fake_engine.h"

namespace gaccd {
namespace {

constexpr std::int64_t kEvaluated = 41;

// The loss of a sample is its number, and it has so many tokens modulo 3; the labels of
// those below 10 are the answers.
class CountingBackend final : public tests::FakeBackend {
 public:
  Result<Evaluation> Evaluate(const BatchView& batch) override {
    sizes.insert(batch.samples);
    Evaluation found{.samples = batch.samples + extra};
    for (std::int64_t i = 0; i < batch.samples; ++i) {
      found.loss_sum += static_cast<double>(batch.ids[i]);
      found.divisor += static_cast<double>(batch.ids[i] % 3);
      found.ranks.push_back(batch.ids[i] < 10 ? 0 : 1);
      found.best.push_back(0);
    }
    return found;
  }
  std::set<std::int64_t> sizes;
  std::int64_t extra = 0;
};

TEST(EvaluatorTest, IsExactOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 7, 50}) {
    for (const std::int64_t batch : {1, 4, 41}) {
      std::mutex mutex;
      const Status status = RunThreadRanks(ranks, {}, [&](Communicator& comm) -> Status {
        const tests::EmptyDataset data(kEvaluated);
        Evaluator evaluator(comm, data, batch, "tokens", DefaultMetrics(data.spec()));
        tests::FakeEngine<CountingBackend> engine;
        GACCD_ASSIGN_OR_RETURN(const auto record,
                               evaluator.Evaluate(engine, {.epoch = 2, .step = 14}, nullptr, {}));
        const std::scoped_lock lock(mutex);
        EXPECT_EQ(record->epoch, 2);
        EXPECT_EQ(record->step, 14);
        EXPECT_EQ(record->samples, kEvaluated);
        EXPECT_EQ(record->divisor, 40);  // 0 1 2 0 1 2 ... 0 1
        EXPECT_EQ(record->loss, 820.0 / 40);
        EXPECT_EQ(record->metrics.size(), 1U);
        EXPECT_EQ(record->metrics.front().name, "accuracy");
        EXPECT_EQ(record->metrics.front().value, 10.0 / 41);
        EXPECT_EQ(record->unit, "tokens");
        EXPECT_EQ(engine->sizes, evaluator.BatchSizes()) << ranks << " ranks, batch " << batch;
        return Status::Ok();
      });
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(EvaluatorTest, IsDueAfterEveryEpoch) {
  // 2 epochs of 7 updates.
  const auto schedule = UpdateSchedule::Make({.dataset_size = 70, .batch = 10, .epochs = 2});
  for (std::int64_t step = 0; step <= 14; ++step) {
    EXPECT_EQ(EvaluationIsDue(*schedule, 0, step), step == 7 || step == 14) << step;
    EXPECT_EQ(EvaluationIsDue(*schedule, 5, step),
              step == 5 || step == 7 || step == 10 || step == 14)
        << step;
  }
}

TEST(EvaluatorTest, DetectsSampleCountedTwice) {
  const auto comm = MakeSingle();
  const tests::EmptyDataset data(kEvaluated);
  Evaluator evaluator(*comm, data, 41, "tokens", {});
  tests::FakeEngine<CountingBackend> engine;
  engine->extra = 1;
  EXPECT_THAT(evaluator.Evaluate(engine, {}, nullptr, {}),
              HasMessage("evaluation: expected 41 samples, counted 42"));
}

// The samples that could not be read are zeros: their loss is none.
TEST(EvaluatorTest, UnreadableSampleEndsEvaluation) {
  const auto comm = MakeSingle();
  const tests::EmptyDataset data(kEvaluated, {ErrorKind::kData, "damaged JPEG image"});
  Evaluator evaluator(*comm, data, 4, "tokens", {});
  tests::FakeEngine<CountingBackend> engine;
  EXPECT_THAT(evaluator.Evaluate(engine, {}, nullptr, {}),
              IsError(ErrorKind::kData, "damaged JPEG image"));
}

// The second batch is read when the run says that it waits, or after a while.
TEST(EvaluatorTest, ReportsWaitForData) {
  const auto comm = MakeSingle();
  const TempFolder folder;
  const auto reporter =
      ValueOrThrow(RunReporter::Start(*comm, {.run_dir = folder.path(),
                                              .quiet = true,
                                              .status_period = std::chrono::milliseconds(5),
                                              .max_quiet = std::chrono::milliseconds(5)}));
  bool said = false;
  int reads = 0;
  const tests::EmptyDataset data(kEvaluated);
  const tests::HeldData slow(data, [&, evaluates = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == evaluates || ++reads != 2) return;
    for (int tries = 0; tries < 2'000 && !said; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto events = ReadStart(folder.Path("attempts/latest/events.jsonl"), 1 << 20);
      said = events.ok() && events->find(R"("phase":"load")") != std::string::npos;
    }
  });
  Evaluator evaluator(*comm, slow, 4, "tokens", {});
  tests::FakeEngine<CountingBackend> engine;
  EXPECT_OK(evaluator.Evaluate(engine, {}, nullptr, {.reporter = reporter.get()}).status());
  EXPECT_TRUE(said);
  reporter->Finish(Status::Ok());
}

// The other rank would give up waiting for the sums.
TEST(EvaluatorTest, SlowRankGivesSignsOfLife) {
  class SlowBackend final : public tests::FakeBackend {
   public:
    Result<Evaluation> Evaluate(const BatchView& batch) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(slow ? 150 : 0));
      Evaluation found{.samples = batch.samples, .divisor = 1};
      found.ranks.resize(static_cast<std::size_t>(batch.samples));
      found.best.resize(static_cast<std::size_t>(batch.samples));
      return found;
    }
    bool slow = false;
  };
  ExpectOk(RunThreadRanks(2, {}, [&](Communicator& inner) -> Status {
    TickCounter comm(inner);
    const tests::EmptyDataset data(kEvaluated);
    Evaluator evaluator(comm, data, 2, "tokens", {});  // 11 batches on rank 0, 10 on rank 1
    tests::FakeEngine<SlowBackend> engine;
    engine->slow = comm.rank() == 0;
    GACCD_RETURN_IF_ERROR(evaluator.Evaluate(engine, {}, nullptr, {}).status());
    if (comm.rank() == 0) {
      EXPECT_GT(comm.ticks(), 0);
    }
    return Status::Ok();
  }));
}

// After the third batch. Ranks with more batches than others are not asked after their last.
TEST(EvaluatorTest, StopsOnRequest) {
  class StopThere : public StopAgreement {
   public:
    explicit StopThere(Communicator& comm) : StopAgreement(comm, {}) {}
    Result<StopDecision> BetweenBatches(std::int64_t done, std::int64_t batches) override {
      EXPECT_EQ(batches, 5);  // of the rank with 20 samples, 4 at once; the other has 6
      return StopDecision{.action = done == 3 ? StopAction::kExit : StopAction::kContinue};
    }
  };
  ExpectOk(RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    const tests::EmptyDataset data(kEvaluated);
    Evaluator evaluator(comm, data, 4, "tokens", {});
    tests::FakeEngine<CountingBackend> engine;
    StopThere stops(comm);
    GACCD_ASSIGN_OR_RETURN(const auto record, evaluator.Evaluate(engine, {}, &stops, {}));
    EXPECT_FALSE(record.has_value());
    return Status::Ok();
  }));
}

// 11 batches of --bits=any-split on 3 ranks: 4, 4 and 3, though a third of the samples are 4.
TEST(EvaluatorTest, AsksNoMoreOftenThanRankWithFewestWholeBatches) {
  class Count : public StopAgreement {
   public:
    explicit Count(Communicator& comm) : StopAgreement(comm, {}) {}
    Result<StopDecision> BetweenBatches(std::int64_t done, std::int64_t batches) override {
      EXPECT_EQ(batches, 3);
      asked.push_back(done);
      return StopDecision{};
    }
    std::vector<std::int64_t> asked;
  };
  ExpectOk(RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    const tests::EmptyDataset data(kEvaluated);
    Evaluator evaluator(comm, data, 4, "tokens", {});
    evaluator.SetAnySplit(true);
    tests::FakeEngine<CountingBackend> engine;
    Count stops(comm);
    GACCD_RETURN_IF_ERROR(evaluator.Evaluate(engine, {}, &stops, {}).status());
    EXPECT_EQ(stops.asked, (std::vector<std::int64_t>{1, 2})) << "rank " << comm.rank();
    return Status::Ok();
  }));
}

}  // namespace
}  // namespace gaccd
