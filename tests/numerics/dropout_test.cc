// Dropout on: the same masks, so the same losses, gradients and parameters, for any ranks and
// micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/autograd/function.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

constexpr double kSameMasks = 1e-6;

EngineCase MakeCase(int ranks, std::int64_t micro, bool tokens) {
  EngineCase test{.ranks = ranks,
                  .micro = micro,
                  .target = 23,
                  .updates = 5,
                  .tail = 8,
                  .widths = {9, 12, 7},
                  .optimizer = {.lr = 0.003, .kind = AdamWSpec{}},
                  .tokens = tokens ? 6 : 0,
                  .dropout = 0.3};
  return test;
}

EngineRun BigBatch(bool tokens) {
  const EngineCase test = MakeCase(1, 23, tokens);
  return ValueOrThrow(RunEngine(*MakeSingle(), test, {}, {.gradients = true}));
}

// The largest deviation over ranks and updates.
double Deviation(const EngineCase& test, const EngineRun& expected,
                 const EngineRunOptions& options) {
  double worst = 0;
  std::mutex mutex;
  ExpectOk(RunThreadRanks(test.ranks, {}, [&](Communicator& comm) -> Status {
    EngineRunOptions mine = options;
    mine.gradients = true;
    GACCD_ASSIGN_OR_RETURN(const EngineRun found, RunEngine(comm, test, {}, mine));
    const std::lock_guard lock(mutex);
    for (std::size_t u = 0; u < expected.results.size(); ++u) {
      worst = std::max(worst, Distance(found.gradients[u], expected.gradients[u]));
      worst = std::max(worst, std::abs(found.results[u].loss / expected.results[u].loss - 1));
    }
    worst = std::max(worst, Distance(found.parameters, expected.parameters));
    worst = std::max(worst, std::abs(found.evaluation.loss_sum / expected.evaluation.loss_sum - 1));
    return Status::Ok();
  }));
  return worst;
}

class DropoutTest : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(DropoutTest, MaskIsSameOnEveryTopology) {
  const auto& [ranks, tokens] = GetParam();
  const EngineRun expected = BigBatch(tokens);
  for (std::int64_t micro = 1; micro <= 9; ++micro) {
    EXPECT_LT(Deviation(MakeCase(ranks, micro, tokens), expected, {}), kSameMasks)
        << ranks << " ranks, micro-batch " << micro;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DropoutTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 7), ::testing::Bool()));

TEST(DropoutGraphTest, EvaluationHasNoDropout) {
  const Model model = MakeCaseModel(MakeCase(1, 1, /*tokens=*/true));
  const auto dropouts = [](const Graph& graph) {
    return std::ranges::count_if(
        graph.nodes(), [](const Node& node) { return node.function->name() == "dropout"; });
  };
  EXPECT_EQ(dropouts(model.RecordTraining({3})->graph), 4) << "2 layers, forward and backward";
  EXPECT_EQ(dropouts(model.RecordEvaluation({3})->graph), 0);
}

// The same comparison sees masks of the place in the micro-batch, of the rank, and of one update
// for all.
TEST(DropoutWrongTest, DetectsOtherKeys) {
  const EngineRun expected = BigBatch(/*tokens=*/false);
  enum class Key { kRight, kPlace, kRank, kOneUpdate };
  for (const Key key : {Key::kRight, Key::kPlace, Key::kRank, Key::kOneUpdate}) {
    const auto update = [key](Engine& engine, Prefetcher& batches, const Plan& plan,
                              UpdateSettings settings) -> Status {
      const auto rank = static_cast<std::int64_t>(settings.control_words[0] / 1000) - 1;
      if (key == Key::kOneUpdate) settings.update = 0;
      return UpdateByHand(engine, plan, settings, [&](std::int64_t step) -> Status {
        BatchView batch = *batches.Next();
        std::vector<std::int64_t> ids(batch.ids, batch.ids + batch.samples);
        if (key == Key::kPlace) std::iota(ids.begin(), ids.end(), 0);
        for (std::int64_t& id : ids) id += key == Key::kRank ? 1000 * rank : 0;
        batch.ids = ids.data();
        return engine.MicroStep(batch,
                                {.first = step == 0, .last = step + 1 == plan.accum_steps()});
      });
    };
    const double found = Deviation(MakeCase(3, 4, /*tokens=*/false), expected, {.update = update});
    if (key == Key::kRight) {
      EXPECT_LT(found, kSameMasks);
    } else {
      EXPECT_GT(found, 1000 * kSameMasks);
    }
  }
}

}  // namespace
}  // namespace gaccd::tests
