// Micro-steps for which there was no memory: in parts, or with recomputed blocks, they are the same
// update, on this rank alone.
#include "daemon/engine/divided_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <numeric>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/engine/planned_memory.h"
#include "daemon/train/update.h"
#include "tests/sanitized.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/train/fake_engine.h"

namespace gaccd::tests {
namespace {

// Computes parts of the sizes it was prepared for, and fails where it is asked to.
class PartsBackend : public FakeBackend {
 public:
  explicit PartsBackend(std::set<std::int64_t> sizes) : sizes_(std::move(sizes)) {}

  Status MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t,
                   const float*) override {
    EXPECT_TRUE(batch.samples == 0 || sizes_.contains(batch.samples)) << batch.samples;
    if (fails.erase(++calls) > 0 && batch.samples > 0) {
      allocation_error_ = {ErrorKind::kOs, StrCat("none for ", batch.samples)};
      return allocation_error_;
    }
    for (std::int64_t i = 0; i < batch.samples; ++i) {
      ids.push_back(batch.ids[i]);
      EXPECT_EQ(batch.position + i, batch.ids[i]);
      EXPECT_EQ(batch.tensor<float>(0)[i], static_cast<float>(batch.ids[i]));
    }
    places.push_back(place);
    return {};
  }
  [[nodiscard]] Status allocation_error() const override { return allocation_error_; }
  Status PrepareSizes(const std::set<std::int64_t>& sizes, Recompute recompute) override {
    sizes_ = sizes;
    recomputes = recompute == Recompute::kBlocks;
    allocation_error_ = {};
    if (short_preparations-- > 0) allocation_error_ = {ErrorKind::kOs, "none for these sizes"};
    return {};
  }
  [[nodiscard]] EngineMemory memory() const override {
    return {.host_bytes = 100 * *sizes_.rbegin()};
  }

  std::set<int> fails;  // calls, from 1
  int calls = 0;
  int short_preparations = 0;
  bool recomputes = false;
  std::vector<std::int64_t> ids;
  std::vector<MicroStepPosition> places;

 private:
  std::set<std::int64_t> sizes_;
  Status allocation_error_;
};

// An update of ragged micro-batches, whose ids, positions and features are numbered.
Status RunParts(DividedSteps& steps, const std::vector<std::int64_t>& sizes) {
  const std::int64_t all = std::reduce(sizes.begin(), sizes.end());
  std::vector<std::int64_t> ids(static_cast<std::size_t>(all));
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> features(ids.begin(), ids.end());
  std::vector<std::int32_t> labels(ids.size());
  steps.Begin(6);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    void* const tensors[] = {features.data() + first, labels.data() + first};
    GACCD_RETURN_IF_ERROR(steps.MicroStep(
        {.samples = sizes[i], .tensors = tensors, .ids = ids.data() + first, .position = first},
        {.first = i == 0, .last = i + 1 == sizes.size()}));
    first += sizes[i];
  }
  return Status::Ok();
}

TEST(DividedStepsTest, RunsEverySampleOnceInOrderWhereverItFails) {
  // With another one last, where the last does not fail; alone it may.
  for (int failures = 0; failures < 14 * 17; ++failures) {
    const int one = 1 + failures / 17;
    const int two = one + failures % 17;
    for (const bool empty_last : {false, true}) {
      SCOPED_TRACE(StrCat("calls ", one, " and ", two, empty_last ? ", empty last" : ""));
      std::vector<std::int64_t> sizes = {10, 9, 9};
      if (empty_last) sizes.push_back(0);
      PartsBackend backend({9, 10});
      backend.fails = {one, two};
      DividedSteps steps(ModelOfFakes(), {{9, 10}}, nullptr, backend);
      ASSERT_OK(RunParts(steps, sizes));
      std::vector<std::int64_t> expected(28);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(backend.ids, expected);
      for (std::size_t i = 0; i < backend.places.size(); ++i) {
        EXPECT_EQ(backend.places[i].first, i == 0);
        EXPECT_EQ(backend.places[i].last, i + 1 == backend.places.size());
      }
    }
  }
}

TEST(DividedStepsTest, RetriesAreReported) {
  PartsBackend backend({9, 10});
  backend.fails = {2};
  backend.short_preparations = 1;
  DividedSteps steps(ModelOfFakes(), {{9, 10}}, nullptr, backend);
  std::vector<bool> preparing;
  steps.SetOnPrepare([&](bool begins) { preparing.push_back(begins); });
  ASSERT_OK(RunParts(steps, {10, 9, 9}));
  EXPECT_THAT(preparing, ElementsAre(true, false, true, false));
  ASSERT_EQ(steps.retries().size(), 2U);
  const AllocationRetryRecord& first = steps.retries()[0];
  EXPECT_EQ(first.step, 7);
  EXPECT_EQ(first.micro_step, 2);
  EXPECT_EQ(first.samples_before, 9);
  EXPECT_EQ(first.samples, 5);
  EXPECT_EQ(first.bytes_before, 1000);
  EXPECT_EQ(first.bytes, 500);
  EXPECT_EQ(first.reason, "none for 9");
  const AllocationRetryRecord& second = steps.retries()[1];
  EXPECT_EQ(second.samples_before, 5);
  EXPECT_EQ(second.samples, 3);
  EXPECT_EQ(second.reason, "none for these sizes");
}

TEST(DividedStepsTest, FailsAfterThreeRetriesOrWithOneSample) {
  PartsBackend backend({40});
  backend.short_preparations = 3;
  backend.fails = {1};
  DividedSteps steps(ModelOfFakes(), {{40}}, nullptr, backend);
  EXPECT_THAT(
      RunParts(steps, {40}),
      IsError(ErrorKind::kConfig, "no memory for a micro-step of 5 samples", "none for these sizes",
              "3 times", "--micro-batch", "--recompute=blocks", "--shard"));
  EXPECT_EQ(steps.retries().size(), 3U);
  EXPECT_EQ(backend.ids.size(), 0U);

  PartsBackend small({2});
  small.fails = {1, 2};
  DividedSteps few(ModelOfFakes(), {{2}}, nullptr, small);
  EXPECT_THAT(RunParts(few, {2}), IsError(ErrorKind::kConfig, "one sample is not divided",
                                          "nor by recomputing blocks, as the model has none"));
  EXPECT_EQ(few.retries().size(), 1U);
}

TEST(DividedStepsTest, DoesNotRetryOtherErrors) {
  class Broken : public PartsBackend {
   public:
    using PartsBackend::PartsBackend;
    Status MicroStep(const BatchView&, MicroStepPosition, std::int64_t, const float*) override {
      return {ErrorKind::kOs, "no thread"};
    }
  } backend({4});
  DividedSteps steps(ModelOfFakes(), {{4}}, nullptr, backend);
  EXPECT_THAT(RunParts(steps, {4}), IsError(ErrorKind::kOs, "no thread"));
  EXPECT_TRUE(steps.retries().empty());
}

TEST(DividedStepsTest, RecomputesBlocksIfPartsChangeResult) {
  const std::vector<std::pair<EngineCase, std::string>> cases = {
      {{.stats = BatchStatistics::kWindow}, "WINDOW"},
      {{.stats = BatchStatistics::kMicro}, "MICRO"},
      {{.loss = LossKind::kContrastive}, "contrastive"}};
  for (const auto& [test, why] : cases) {
    SCOPED_TRACE(why);
    PartsBackend backend({8});
    backend.fails = {1};
    const Model model = MakeCaseModel(test);
    DividedSteps steps(model, {{8}}, nullptr, backend);
    ASSERT_OK(RunParts(steps, {8}));
    EXPECT_EQ(backend.ids.size(), 8U);
    EXPECT_TRUE(backend.recomputes);
    ASSERT_EQ(steps.retries().size(), 1U);
    EXPECT_EQ(steps.retries()[0].samples, 8);
    EXPECT_TRUE(steps.retries()[0].recompute);
    backend.fails = {3};
    EXPECT_THAT(RunParts(steps, {8}),
                IsError(ErrorKind::kConfig, "none for 8", why, "recomputed already"));
  }
}

TEST(DividedStepsTest, RecomputesBlocksOfOneSample) {
  PartsBackend backend({2});
  backend.fails = {1, 2};
  const Model model = MakeCaseModel({.widths = {1, 20, 5}});
  DividedSteps steps(model, {{2}}, nullptr, backend);
  ASSERT_OK(RunParts(steps, {2}));
  ASSERT_EQ(steps.retries().size(), 2U);
  EXPECT_FALSE(steps.retries()[0].recompute);
  EXPECT_TRUE(steps.retries()[1].recompute);
}

TEST(DividedStepsTest, DoesNotRetryWithCollectives) {
  PartsBackend backend({8});
  backend.fails = {1};
  const Model model = MakeCaseModel({.collectives = true, .evaluate = false});
  DividedSteps steps(model, {{8}}, nullptr, backend);
  EXPECT_THAT(RunParts(steps, {8}), IsError(ErrorKind::kConfig, "none for 8", "other ranks"));
  EXPECT_TRUE(steps.retries().empty());
}

// What the ranks of a case find; `refuses` is asked on one of them.
struct DividedRun {
  std::vector<Result<EngineRun>> runs;
  std::vector<std::size_t> retries;  // by rank
};

DividedRun RunRefused(const EngineCase& test, int refused_rank,
                      const std::function<bool(std::int64_t samples)>& refuses) {
  const auto ranks = static_cast<std::size_t>(test.ranks);
  DividedRun all{{ranks, Status(ErrorKind::kInternal, "did not run")},
                 std::vector<std::size_t>(ranks)};
  const ProgramGenerator program =
      SelectProgramGenerator(test.loss, MakeCaseModel(test).update_sums());
  (void)RunThreadRanks(test.ranks, {}, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    EngineChoice choice;
    if (comm.rank() == refused_rank) choice.refuses_memory = refuses;
    const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                            const UpdateSettings& settings) {
      Status done = RunUpdate(engine, batches, program(plan), settings);
      all.retries[rank] = engine.divided_steps().retries().size();
      return done;
    };
    all.runs[rank] = RunEngine(comm, test, choice, {.update = update});
    return all.runs[rank].status();
  });
  return all;
}

void ExpectSameRun(const Result<EngineRun>& found, const Result<EngineRun>& expected) {
  ASSERT_OK(found);
  ASSERT_OK(expected);
  ASSERT_EQ(found->results.size(), expected->results.size());
  for (std::size_t u = 0; u < found->results.size(); ++u) {
    const UpdateResult& a = found->results[u];
    const UpdateResult& b = expected->results[u];
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_NEAR(a.divisor, b.divisor, 1e-12 * b.divisor);
    EXPECT_LE(std::abs(a.loss - b.loss), 1e-6 * std::abs(b.loss)) << "update " << u + 1;
  }
  EXPECT_LE(Distance(found->parameters, expected->parameters), 1e-6);
  EXPECT_EQ(found->evaluation.ranks, expected->evaluation.ranks);
}

class DividedEngineTest : public ::testing::TestWithParam<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, DividedEngineTest,
    ::testing::Values(
        EngineCase{.name = "one_rank", .micro = 5, .target = 23, .updates = 3},
        EngineCase{
            .name = "ragged_ranks", .ranks = 3, .micro = 5, .target = 37, .updates = 3, .tail = 4},
        EngineCase{.name = "sharded",
                   .ranks = 3,
                   .micro = 7,
                   .target = 37,
                   .updates = 3,
                   .shard = Sharding::kOptimizer},
        EngineCase{.name = "dropout_and_weights",
                   .ranks = 3,
                   .micro = 5,
                   .target = 37,
                   .updates = 3,
                   .tokens = 6,
                   .token_weights = true,
                   .dropout = 0.4},
        EngineCase{.name = "texts_by_length",
                   .ranks = 3,
                   .micro = 5,
                   .target = 29,
                   .updates = 3,
                   .widths = {12, 3},
                   .dropout = 0.3,
                   .texts = 24,
                   .cut = 8}),
    [](const auto& test) { return test.param.name; });

// Also where the second half fails again.
TEST_P(DividedEngineTest, TrainsTheSameWhereverAllocationFails) {
  const EngineCase& test = GetParam();
  const int rank = test.ranks / 2;
  const DividedRun plain = RunRefused(test, -1, nullptr);
  const std::int64_t calls = 3 * ValueOrThrow(MakeCasePlan(test)).accum_steps();
  for (const int failures : {1, 2}) {
    for (std::int64_t call = 1; call <= calls; ++call) {
      SCOPED_TRACE(StrCat(failures, " failures from call ", call, " on"));
      std::int64_t asked = 0;
      int refused = 0;
      const DividedRun found = RunRefused(test, rank, [&](std::int64_t samples) {
        const std::int64_t since = ++asked - call;
        const bool refuse = samples > 1 && (since == 0 || (failures == 2 && since == 2));
        refused += refuse ? 1 : 0;
        return refuse;
      });
      for (std::size_t r = 0; r < found.runs.size(); ++r) {
        ExpectSameRun(found.runs[r], plain.runs[r]);
        EXPECT_EQ(found.retries[r],
                  static_cast<std::size_t>(static_cast<int>(r) == rank ? refused : 0));
      }
    }
  }
}

// What is not divided is computed again from recomputed blocks: the same bits, and the other ranks
// take part in as many sums.
TEST(DividedEngineTest, RecomputesOnOneRankWhatIsNotDivided) {
  const EngineCase ragged{.ranks = 3, .micro = 5, .target = 37, .updates = 3, .tail = 4};
  std::vector<EngineCase> cases(6, ragged);
  cases[0].stats = BatchStatistics::kWindow;
  cases[1].stats = BatchStatistics::kGhost;
  cases[2].stats = BatchStatistics::kMicro;
  cases[3].loss = LossKind::kContrastive;
  cases[3].evaluate = false;
  cases[4].bits = Bits::kAnySplit;
  cases[5].bits = Bits::kAnySplit;
  cases[5].stats = BatchStatistics::kWindow;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const DividedRun plain = RunRefused(cases[i], -1, nullptr);
    for (const int rank : {0, 2}) {
      SCOPED_TRACE(StrCat("case ", i, ", rank ", rank));
      int asked = 0;
      const DividedRun found =
          RunRefused(cases[i], rank, [&](std::int64_t) { return ++asked == 1; });
      for (std::size_t r = 0; r < found.runs.size(); ++r) {
        ExpectSameRun(found.runs[r], plain.runs[r]);
        ASSERT_OK(found.runs[r]);
        EXPECT_EQ(found.runs[r]->digest, plain.runs[r]->digest);
        EXPECT_EQ(found.retries[r], static_cast<int>(r) == rank ? 1U : 0U);
      }
    }
  }
}

TEST(DividedEngineTest, RankWithoutMemoryEndsAllWithAdvice) {
  const EngineCase test{.ranks = 3, .micro = 40, .target = 120, .updates = 3};
  const DividedRun found = RunRefused(test, 1, [](std::int64_t) { return true; });
  EXPECT_THAT(found.runs[1], IsError(ErrorKind::kConfig, "memory for 5 samples was refused",
                                     "3 times", "--micro-batch"));
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_THAT(found.runs[rank], HasKind(ErrorKind::kUnavailable));
    EXPECT_THAT(found.runs[rank], HasMessage(HasSubstr("rank 1")));
  }
}

// The limit of the address space of this process, for a while.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::int64_t more_bytes) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = UsedBytes() + static_cast<rlim_t>(more_bytes);
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { Lift(); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;
  void Lift() { setrlimit(RLIMIT_AS, &before_); }

 private:
  static rlim_t UsedBytes() {
    rlimit all{};
    getrlimit(RLIMIT_AS, &all);
    rlimit large = all;
    large.rlim_cur = std::min<rlim_t>(all.rlim_max, rlim_t{1} << 46);
    setrlimit(RLIMIT_AS, &large);
    const rlim_t free = static_cast<rlim_t>(FreeAddressSpace().value());
    setrlimit(RLIMIT_AS, &all);
    return large.rlim_cur - free;
  }
  rlimit before_{};
};

// Nothing is injected: the system refuses the activations of the whole micro-batch, and has memory
// for `half` of it, or else for recomputed blocks. Threads and allocators reserve address space
// that no plan counts: the limit rises, in steps smaller than what one retry saves, until one is
// enough.
void ExpectRetryAtStart(const EngineCase& test, bool half) {
  const DividedRun plain = RunRefused(test, -1, nullptr);
  const auto plan = [&](std::int64_t micro, Recompute recompute) {
    const EngineOptions options{.replica = {.micro_batches = {micro},
                                            .micro_steps_per_update = test.target / test.micro,
                                            .effective_batch = test.target,
                                            .rank_samples = test.target,
                                            .recompute = recompute},
                                .optimizer = test.optimizer};
    return ValueOrThrow(PlanEngineMemory(MakeCaseModel(test), options)).host_bytes;
  };
  const std::int64_t whole = plan(test.micro, Recompute::kNone);
  const std::int64_t less =
      half ? plan(test.micro / 2, Recompute::kNone) : plan(test.micro, Recompute::kBlocks);
  ASSERT_GT(whole - less, std::int64_t{100} << 20) << "more than the arena of one new thread";
  const auto comm = MakeSingle();
  const ProgramGenerator program =
      SelectProgramGenerator(test.loss, MakeCaseModel(test).update_sums());
  std::vector<AllocationRetryRecord> retries;
  const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& of_update,
                          const UpdateSettings& settings) {
    const auto found = engine.divided_steps().retries();
    retries.assign(found.begin(), found.end());
    return RunUpdate(engine, batches, program(of_update), settings);
  };
  Result<EngineRun> found = Status(ErrorKind::kInternal, "did not run");
  for (int step = 2; step <= 16 && (!found.ok() || retries.size() > 1); ++step) {
    AddressSpaceLimit limit(less + (whole - less) * step / 4);
    found = RunEngine(*comm, test, {}, {.before_updates = [&] { limit.Lift(); }, .update = update});
  }
  ExpectSameRun(found, plain.runs[0]);
  ASSERT_EQ(retries.size(), 1U);
  EXPECT_EQ(retries[0].samples, half ? test.micro / 2 : test.micro);
  EXPECT_EQ(retries[0].recompute, !half);
  EXPECT_LT(retries[0].bytes, retries[0].bytes_before);
}

TEST(DividedEngineTest, ReportsActivationsRefusedAtStart) {
  if (kSanitized) GTEST_SKIP() << "sanitizers reserve terabytes of address space";
  const EngineCase test{.micro = 2048, .target = 4096, .updates = 1, .evaluate = false};
  EngineCase wide = test;
  wide.widths = {4, 16384, 5};
  ExpectRetryAtStart(wide, /*half=*/true);
  EngineCase window = test;
  window.widths = {4, 8192, 4, 8192, 5};
  window.stats = BatchStatistics::kWindow;
  ExpectRetryAtStart(window, /*half=*/false);
}

}  // namespace
}  // namespace gaccd::tests
