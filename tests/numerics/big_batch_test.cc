// The claim of gaccd: k ragged micro-steps on R ranks are one big batch on one rank. Every rank has
// other samples; the ranks are threads; each update goes through RunUpdate() and the engine.
// Figures and gradients are compared after every update, the incomplete last one included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/engine/update_program.h"
#include "daemon/train/update.h"
#include "tests/support/engine_runs.h"

namespace gaccd::tests {
namespace {

// f32 sums in another order: some units in the last place (6e-8).
constexpr double kSame = 1e-6;

struct Scenario {
  const char* name;
  int nodes, ranks;
  std::int64_t micro, target;
};
const Scenario kScenarios[] = {
    {"one_rank", 1, 1, 7, 20},
    {"ragged_loads", 1, 4, 10, 37},
    {"ragged_micro_batches", 1, 5, 3, 17},
    {"several_micro_steps", 2, 6, 5, 128},
    {"divisible", 2, 4, 8, 64},
    {"target_below_world", 3, 6, 4, 5},
    {"target_of_one", 2, 4, 8, 1},
    {"empty_micro_batches", 1, 2, 1, 7},
    {"more_than_double", 1, 2, 16, 33},
};

// Two epochs of two full updates and an incomplete one.
EngineCase MakeCase(const Scenario& scenario, Rounding rounding = Rounding::kExact) {
  EngineCase test{.nodes = scenario.nodes,
                  .ranks = scenario.ranks,
                  .micro = scenario.micro,
                  .target = scenario.target,
                  .rounding = rounding,
                  .updates = 6,
                  .widths = {20, 24, 16, 7}};
  test.tail = (MakeCasePlan(test)->effective_batch() + 2) / 3;
  return test;
}

// The same on one rank, one micro-step an update: the definition of what has to come out.
EngineCase MakeBigBatchCase(EngineCase test) {
  test.target = MakeCasePlan(test)->effective_batch();
  test.nodes = test.ranks = 1;
  test.micro = test.target;
  test.rounding = Rounding::kExact;
  test.speeds.clear();
  return test;
}

// How far the ranks are from the big batch at worst, over ranks and updates.
struct Worst {
  double gradients = 0;
  double parameters = 0;
  double results = 0;  // loss, norm before clipping
};

void Compare(const EngineRun& found, const EngineRun& expected, Worst* worst) {
  const auto keep = [](double* most, double value) { *most = std::max(*most, value); };
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < expected.results.size(); ++u) {
    EXPECT_EQ(found.results[u].samples, expected.results[u].samples);
    keep(&worst->gradients, Distance(found.gradients[u], expected.gradients[u]));
    keep(&worst->results, std::abs(found.results[u].loss / expected.results[u].loss - 1));
    keep(&worst->results, std::abs(found.results[u].grad_norm / expected.results[u].grad_norm - 1));
  }
  keep(&worst->parameters, Distance(found.parameters, expected.parameters));
}

using OptionsOfRank = std::function<EngineRunOptions(int rank)>;

Worst RunBigBatch(const EngineCase& test, const OptionsOfRank& options) {
  Result<EngineRun> expected = Status(ErrorKind::kInternal, "did not run");
  const auto one = MakeSingle();
  expected = RunEngine(*one, MakeBigBatchCase(test), {}, {.gradients = true});
  EXPECT_TRUE(expected.ok()) << expected.status().message();
  Worst worst;
  if (!expected.ok()) return worst;
  std::mutex mutex;
  const Status status =
      RunThreadRanks(test.ranks, {.comm = {}, .ranks_per_node = test.ranks / test.nodes},
                     [&](Communicator& comm) -> Status {
                       GACCD_ASSIGN_OR_RETURN(const EngineRun found,
                                              RunEngine(comm, test, {}, options(comm.rank())));
                       const std::lock_guard lock(mutex);
                       Compare(found, *expected, &worst);
                       return Status::Ok();
                     });
  EXPECT_TRUE(status.ok()) << status.message();
  return worst;
}

Worst RunBigBatch(const EngineCase& test, const EngineRunOptions& options) {
  return RunBigBatch(test, [&](int) { return options; });
}

void ExpectSame(const EngineCase& test) {
  const Worst worst = RunBigBatch(test, {.gradients = true});
  const Plan plan = *MakeCasePlan(test);
  std::printf("  k=%lld D=%lld: gradients %.2g parameters %.2g loss and norm %.2g\n",
              static_cast<long long>(plan.accum_steps()),
              static_cast<long long>(plan.effective_batch()), worst.gradients, worst.parameters,
              worst.results);
  EXPECT_LT(worst.gradients, kSame);
  EXPECT_LT(worst.parameters, kSame);
  EXPECT_LT(worst.results, kSame);
}

class BigBatchTest : public ::testing::TestWithParam<std::tuple<Scenario, Rounding>> {
 protected:
  EngineCase test_ = MakeCase(std::get<0>(GetParam()), std::get<1>(GetParam()));
};

TEST_P(BigBatchTest, ClassifierWithSgd) {
  test_.clip_norm = 0.3;
  ExpectSame(test_);
}
TEST_P(BigBatchTest, ClassifierWithAdamW) {
  test_.optimizer = {.lr = 0.003, .kind = AdamWSpec{}};
  ExpectSame(test_);
}
TEST_P(BigBatchTest, RegressionWithSgd) {
  test_.loss = LossKind::kMeanSquaredError;
  test_.widths.back() = 3;
  ExpectSame(test_);
}

std::string TestName(const ::testing::TestParamInfo<std::tuple<Scenario, Rounding>>& info) {
  const auto& [scenario, rounding] = info.param;
  return StrCat(scenario.name, "_", Name(rounding));
}

INSTANTIATE_TEST_SUITE_P(All, BigBatchTest,
                         ::testing::Combine(::testing::ValuesIn(kScenarios),
                                            ::testing::Values(Rounding::kExact, Rounding::kFloor,
                                                              Rounding::kCeil, Rounding::kNearest)),
                         TestName);

TEST(BigBatchPublishedTest, TrainsBatch3072ExactlyOn30NodesOf8) {
  ExpectSame(MakeCase({"published", 30, 240, 10, 3072}));
}

// The comparison can fail: micro-steps that overwrite what was accumulated are far outside of it.
TEST(BigBatchWrongTest, DetectsDroppedMicroSteps) {
  const auto forget = [](Engine& engine, Prefetcher& batches, const Plan& plan,
                         UpdateSettings settings) -> Status {
    return UpdateByHand(engine, plan, settings, [&](std::int64_t /*step*/) {
      return engine.MicroStep(*batches.Next(), {.first = true, .last = false});
    });
  };
  for (const Scenario& scenario : kScenarios) {
    const EngineCase test = MakeCase(scenario);
    if (MakeCasePlan(test)->accum_steps() == 1) continue;
    const Worst worst = RunBigBatch(test, {.gradients = true, .update = forget});
    EXPECT_GT(worst.gradients, 1000 * kSame) << scenario.name;
    EXPECT_GT(worst.parameters, 1000 * kSame) << scenario.name;
  }
}

EngineCase MakeUnevenCase(const Scenario& scenario, std::vector<double> speeds) {
  EngineCase test = MakeCase(scenario);
  test.speeds = std::move(speeds);
  return test;
}

const EngineCase kUneven[] = {
    MakeUnevenCase({"two_speeds", 1, 4, 10, 37}, {1, 1, 0.6, 0.6}),
    MakeUnevenCase({"a_rank_without_samples", 1, 3, 3, 17}, {1, 0.01, 0.7}),
    MakeUnevenCase({"more_micro_steps", 2, 6, 5, 128}, {0.2, 1, 0.9, 1, 3, 0.5}),
    MakeUnevenCase({"target_below_world", 1, 6, 4, 5}, {1, 1, 1, 2, 2, 1}),
};

TEST(BigBatchUnevenTest, LoadsBySpeedEqualOneBigBatch) {
  for (EngineCase test : kUneven) {
    ExpectSame(test);
    test.optimizer = {.lr = 0.003, .kind = AdamWSpec{}};
    test.clip_norm = 0.3;
    ExpectSame(test);
  }
}

TEST(BigBatchUnevenTest, TrainsBatch3072ExactlyWith10SlowNodesOf30) {
  std::vector<double> speeds(160, 1);
  speeds.resize(240, 0.6);
  ExpectSame(MakeUnevenCase({"published", 30, 240, 10, 3072}, speeds));
}

// One update where the gradient of rank r counts weight(plan, r) times, as its loss scale is not
// taken out again: after the sum that of rank 0 is, whose weight is 1.
OptionsOfRank Weighted(const std::function<double(const Plan& plan, int rank)>& weight) {
  return [weight](int rank) {
    return EngineRunOptions{.gradients = true,
                            .update = [weight, rank](Engine& engine, Prefetcher& batches,
                                                     const Plan& plan, UpdateSettings settings) {
                              settings.loss_scale = weight(plan, rank) / weight(plan, 0);
                              return RunUpdate(engine, batches, PlainAccumulation(plan), settings);
                            }};
  };
}

// Weights of ranks in place of samples are far outside of the comparison, though every sample is
// counted.
TEST(BigBatchUnevenTest, DetectsWeightsBySpeedAndMeansOfMeans) {
  const auto by_speed = [](const Plan& plan, int rank) { return plan.Speed(rank); };
  const auto mean_of_means = [](const Plan& plan, int rank) {
    return 1.0 / static_cast<double>(std::max<std::int64_t>(1, plan.Load(rank)));
  };
  const auto none = [](const Plan&, int) { return 1.0; };
  for (const EngineCase& test : kUneven) {
    if (test.target < test.ranks) continue;
    EXPECT_LT(RunBigBatch(test, Weighted(none)).gradients, kSame);
    EXPECT_GT(RunBigBatch(test, Weighted(by_speed)).gradients, 1000 * kSame) << test.target;
    EXPECT_GT(RunBigBatch(test, Weighted(mean_of_means)).gradients, 1000 * kSame) << test.target;
  }
}

}  // namespace
}  // namespace gaccd::tests
