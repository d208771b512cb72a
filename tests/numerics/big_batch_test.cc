// The claim of gaccd: k ragged micro-steps on R ranks are one big batch on one rank. Every rank has
// other samples; the ranks are threads; each update goes through RunUpdate() and the engine.
// Figures and gradients are compared after every update, the incomplete last one included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/unit/train/engine_runs.h"

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
EngineCase CaseOf(const Scenario& scenario, Rounding rounding = Rounding::kExact) {
  EngineCase test{.nodes = scenario.nodes,
                  .ranks = scenario.ranks,
                  .micro = scenario.micro,
                  .target = scenario.target,
                  .rounding = rounding,
                  .updates = 6,
                  .widths = {20, 24, 16, 7}};
  test.tail = (PlanOf(test)->effective_batch() + 2) / 3;
  return test;
}

// The same on one rank, one micro-step an update: the definition of what has to come out.
EngineCase BigBatchOf(EngineCase test) {
  test.target = PlanOf(test)->effective_batch();
  test.nodes = test.ranks = 1;
  test.micro = test.target;
  test.rounding = Rounding::kExact;
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

Worst RunBigBatch(const EngineCase& test, const EngineRunOptions& options) {
  Result<EngineRun> expected = Status(ErrorKind::kInternal, "did not run");
  const auto one = MakeSingle();
  expected = RunEngine(*one, BigBatchOf(test), {}, {.gradients = true});
  EXPECT_TRUE(expected.ok()) << expected.status().message();
  Worst worst;
  if (!expected.ok()) return worst;
  std::mutex mutex;
  const Status status = RunThreadRanks(
      test.ranks, {.comm = {}, .ranks_per_node = test.ranks / test.nodes},
      [&](Communicator& comm) -> Status {
        GACCD_ASSIGN_OR_RETURN(const EngineRun found, RunEngine(comm, test, {}, options));
        const std::lock_guard lock(mutex);
        Compare(found, *expected, &worst);
        return Status::Ok();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  return worst;
}

void ExpectSame(const EngineCase& test) {
  const Worst worst = RunBigBatch(test, {.gradients = true});
  const Plan plan = *PlanOf(test);
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
  EngineCase test_ = CaseOf(std::get<0>(GetParam()), std::get<1>(GetParam()));
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

TEST(BigBatchPublishedTest, ThirtyNodesOfEightTrain3072Exactly) {
  ExpectSame(CaseOf({"published", 30, 240, 10, 3072}));
}

// The comparison can fail: micro-steps that overwrite what was accumulated are far outside of it.
TEST(BigBatchWrongTest, ForgottenMicroStepsFailTheSameComparison) {
  const auto forget = [](Engine& engine, Prefetcher& batches, const Plan& plan,
                         UpdateSettings settings) -> Status {
    settings.samples = plan.effective_batch();
    GACCD_RETURN_IF_ERROR(engine.Begin(settings));
    for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
      GACCD_RETURN_IF_ERROR(engine.MicroStep(*batches.Next(), {.first = true, .last = false}));
    }
    GACCD_RETURN_IF_ERROR(engine.Reduce());
    GACCD_RETURN_IF_ERROR(engine.MeasureGradient());
    GACCD_RETURN_IF_ERROR(engine.Audit());
    GACCD_RETURN_IF_ERROR(engine.Optimize());
    return engine.End();
  };
  for (const Scenario& scenario : kScenarios) {
    const EngineCase test = CaseOf(scenario);
    if (PlanOf(test)->accum_steps() == 1) continue;
    const Worst worst = RunBigBatch(test, {.gradients = true, .update = forget});
    EXPECT_GT(worst.gradients, 1000 * kSame) << scenario.name;
    EXPECT_GT(worst.parameters, 1000 * kSame) << scenario.name;
  }
}

}  // namespace
}  // namespace gaccd::tests
