// The claim of gaccd: k ragged micro-steps on R ranks are one big batch on one rank. Every rank has
// other samples; the ranks are threads; gradients are summed by the communicator; each sample
// weighs 1/D. Gradients and parameters are compared after every update, the incomplete last one
// included.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/accum/sample_ledger.h"
#include "daemon/data/index_source.h"
#include "daemon/data/sample_order.h"
#include "daemon/data/update_schedule.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan.h"
#include "tests/unit/engine/graph_bench.h"
#include "tests/unit/engine/model_bench.h"

namespace gaccd {
namespace {

// f32 sums in another order: some units in the last place (6e-8).
constexpr double kSame = 1e-6;
constexpr std::uint64_t kOrderSeed = 11;

struct Scenario {
  const char* name;
  std::int64_t nodes, gpus, micro, target;
};
const Scenario kScenarios[] = {
    {"one_rank", 1, 1, 7, 20},
    {"ragged_loads", 1, 4, 10, 37},
    {"ragged_micro_batches", 1, 5, 3, 17},
    {"several_micro_steps", 2, 3, 5, 128},
    {"divisible", 2, 2, 8, 64},
    {"target_below_world", 3, 2, 4, 5},
    {"target_of_one", 2, 2, 8, 1},
    {"empty_micro_batches", 1, 2, 1, 7},
    {"more_than_double", 1, 2, 16, 33},
};

struct Setting {
  Scenario scenario;
  Rounding rounding;
};

enum class Way { kExact, kMeanOfMeans, kLastMicroStep };

// Everything that is the same on all ranks and for the big batch.
struct Problem {
  Problem(const Setting& setting, LossKind loss, const OptimizerSpec& optimizer_spec)
      : optimizer(optimizer_spec),
        model(MakeMlp(Widths(loss), loss)),
        plan(*Plan::Make({.nodes = setting.scenario.nodes,
                          .gpus_per_node = setting.scenario.gpus,
                          .micro_batch = setting.scenario.micro,
                          .target_batch = setting.scenario.target,
                          .rounding = setting.rounding})),
        samples(SampleOf(Widths(loss), loss), DatasetSize(plan), 5),
        order(kOrderSeed, samples.size, true),
        schedule(*UpdateSchedule::Make({.dataset_size = samples.size,
                                        .batch = plan.effective_batch(),
                                        .epochs = 2,
                                        .last_cycle = LastCycle::kUpdate})) {}

  static std::vector<std::int64_t> Widths(LossKind loss) {
    return {20, 24, 16, loss == LossKind::kMeanSquaredError ? 3 : 7};
  }
  // Two full updates an epoch and an incomplete one.
  static std::int64_t DatasetSize(const Plan& plan) {
    return 2 * plan.effective_batch() + (plan.effective_batch() + 2) / 3;
  }

  OptimizerSpec optimizer;
  Model model;
  Plan plan;
  Samples samples;
  SampleOrder order;
  UpdateSchedule schedule;
};

// The samples with these numbers, side by side.
Samples Gather(Samples& all, std::span<const std::int64_t> indices) {
  Samples out(all.spec, 0, 0);
  out.size = std::ssize(indices);
  for (const std::int64_t index : indices) {
    const BatchView row = all.View(index, 1);
    out.features.insert(out.features.end(), row.features,
                        row.features + all.spec.feature_elements());
    if (row.labels != nullptr) out.labels.push_back(*row.labels);
    if (row.targets != nullptr) {
      out.targets.insert(out.targets.end(), row.targets, row.targets + all.spec.target_width);
    }
  }
  return out;
}

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

struct UpdateResult {
  std::vector<float> gradients;
  std::vector<float> parameters;  // after the update
  double loss = 0;                // mean over the samples
};

// One rank, one micro-step an update: the definition of what has to come out.
std::vector<UpdateResult> RunBigBatch(Problem& problem) {
  std::set<std::int64_t> sizes;
  for (std::int64_t u = 0; u < problem.schedule.updates(); ++u) {
    sizes.insert(problem.schedule.At(u).samples);
  }
  Trainer trainer(problem.model, {.micro_batches = sizes});
  auto optimizer = *MakeOptimizer(problem.optimizer, problem.model.layout().size());
  std::vector<UpdateResult> results;
  for (std::int64_t u = 0; u < problem.schedule.updates(); ++u) {
    const Update update = problem.schedule.At(u);
    std::vector<std::int64_t> indices(static_cast<std::size_t>(update.samples));
    problem.order.Fill(update.first, indices);
    Samples batch = Gather(problem.samples, indices);
    const auto count = static_cast<double>(update.samples);
    UpdateResult result;
    result.loss = trainer.MicroStep(batch.All(), static_cast<float>(1 / count), true) / count;
    result.gradients = Copy(trainer.gradients());
    optimizer->Step(trainer.parameters(), trainer.gradients(), problem.optimizer.lr, 1);
    trainer.ParametersChanged();
    result.parameters = Copy(trainer.parameters());
    results.push_back(std::move(result));
  }
  return results;
}

struct Worst {
  double gradients = 0;
  double parameters = 0;
  double loss = 0;
};

// One rank of many; compares with the big batch after every update.
class RankRun {
 public:
  RankRun(Problem& problem, Way way, Communicator& comm)
      : problem_(problem),
        way_(way),
        comm_(comm),
        indices_(*TrainIndices::Make(problem.order, problem.schedule, problem.plan, comm.rank())),
        trainer_(problem.model, Options()),
        optimizer_(*MakeOptimizer(problem.optimizer, problem.model.layout().size())) {}

  Status Run(const std::vector<UpdateResult>& expected, Worst& worst) {
    for (std::size_t u = 0; u < expected.size(); ++u) {
      const Update update = problem_.schedule.At(static_cast<std::int64_t>(u));
      GACCD_ASSIGN_OR_RETURN(double loss, MicroSteps(PlanOf(update), update.samples));
      GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(std::span<const float>(trainer_.gradients())),
                                               View(trainer_.gradients())));
      GACCD_RETURN_IF_ERROR(
          comm_.AllReduceSum(View(std::span<const double>(&loss, 1)), View(std::span(&loss, 1))));
      GACCD_RETURN_IF_ERROR(ledger_.Audit(comm_, update.samples));
      worst.gradients =
          std::max(worst.gradients, RelativeError(trainer_.gradients(), expected[u].gradients));
      worst.loss = std::max(
          worst.loss, std::abs(loss / static_cast<double>(update.samples) / expected[u].loss - 1));
      optimizer_->Step(trainer_.parameters(), trainer_.gradients(), problem_.optimizer.lr, 1);
      trainer_.ParametersChanged();
      worst.parameters =
          std::max(worst.parameters, RelativeError(trainer_.parameters(), expected[u].parameters));
    }
    return Status::Ok();
  }

 private:
  Plan PlanOf(const Update& update) const {
    const bool full = update.samples == problem_.plan.effective_batch();
    return full ? problem_.plan : *problem_.plan.ForSamples(update.samples);
  }

  ReplicaOptions Options() const {
    ReplicaOptions options{.micro_steps_per_update = problem_.plan.accum_steps()};
    for (std::int64_t u = 0; u < problem_.schedule.updates(); ++u) {
      const Plan plan = PlanOf(problem_.schedule.At(u));
      for (std::int64_t j = 0; j < plan.accum_steps(); ++j) {
        options.micro_batches.insert(plan.MicroBatch(comm_.rank(), j));
      }
    }
    options.micro_batches.erase(0);
    return options;
  }

  Result<double> MicroSteps(const Plan& plan, std::int64_t update_samples) {
    double loss_sum = 0;
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(indices_.max_samples()));
    for (std::int64_t j = 0; j < plan.accum_steps(); ++j) {
      const std::int64_t count = indices_.Next(numbers);
      EXPECT_EQ(count, plan.MicroBatch(comm_.rank(), j));
      Samples batch =
          Gather(problem_.samples, std::span(numbers).first(static_cast<std::size_t>(count)));
      const bool first = j == 0 || way_ == Way::kLastMicroStep;
      loss_sum += trainer_.MicroStep(batch.All(), Weight(plan, update_samples, count), first);
      ledger_.Add(count);
    }
    return loss_sum;
  }

  float Weight(const Plan& plan, std::int64_t update_samples, std::int64_t count) const {
    if (way_ != Way::kMeanOfMeans) return static_cast<float>(*InverseCount(update_samples));
    if (count == 0) return 0;
    return 1.0F / static_cast<float>(count * plan.accum_steps() * plan.world());
  }

  Problem& problem_;
  Way way_;
  Communicator& comm_;
  TrainIndices indices_;
  Trainer trainer_;
  std::unique_ptr<Optimizer> optimizer_;
  SampleLedger ledger_;
};

Worst RunRanks(Problem& problem, Way way, const std::vector<UpdateResult>& expected) {
  std::mutex mutex;
  Worst all;
  const Status status = RunThreadRanks(
      static_cast<int>(problem.plan.world()),
      {.comm = {}, .ranks_per_node = static_cast<int>(problem.plan.request().gpus_per_node)},
      [&](Communicator& comm) -> Status {
        Worst worst;
        RankRun run(problem, way, comm);
        GACCD_RETURN_IF_ERROR(run.Run(expected, worst));
        const std::lock_guard lock(mutex);
        all.gradients = std::max(all.gradients, worst.gradients);
        all.parameters = std::max(all.parameters, worst.parameters);
        all.loss = std::max(all.loss, worst.loss);
        return Status::Ok();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

const OptimizerSpec kSgd{.lr = 0.1, .kind = SgdSpec{.momentum = 0.9, .weight_decay = 1e-3}};
const OptimizerSpec kAdamW{.lr = 0.003, .kind = AdamWSpec{}};

void ExpectSame(const Setting& setting, LossKind loss, const OptimizerSpec& optimizer) {
  Problem problem(setting, loss, optimizer);
  const std::vector<UpdateResult> expected = RunBigBatch(problem);
  ASSERT_EQ(expected.size(), 6u);  // two epochs of two full updates and an incomplete one
  const Worst worst = RunRanks(problem, Way::kExact, expected);
  std::printf("  k=%lld D=%lld: gradients %.2g parameters %.2g loss %.2g\n",
              static_cast<long long>(problem.plan.accum_steps()),
              static_cast<long long>(problem.plan.effective_batch()), worst.gradients,
              worst.parameters, worst.loss);
  EXPECT_LT(worst.gradients, kSame);
  EXPECT_LT(worst.parameters, kSame);
  EXPECT_LT(worst.loss, kSame);
}

class BigBatchTest : public testing::TestWithParam<std::tuple<Scenario, Rounding>> {
 protected:
  Setting setting_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(BigBatchTest, ClassifierWithSgd) {
  ExpectSame(setting_, LossKind::kSoftmaxCrossEntropy, kSgd);
}
TEST_P(BigBatchTest, ClassifierWithAdamW) {
  ExpectSame(setting_, LossKind::kSoftmaxCrossEntropy, kAdamW);
}
TEST_P(BigBatchTest, RegressionWithSgd) { ExpectSame(setting_, LossKind::kMeanSquaredError, kSgd); }

std::string TestName(const testing::TestParamInfo<std::tuple<Scenario, Rounding>>& info) {
  const auto& [scenario, rounding] = info.param;
  return StrCat(scenario.name, "_", Name(rounding));
}

INSTANTIATE_TEST_SUITE_P(All, BigBatchTest,
                         testing::Combine(testing::ValuesIn(kScenarios),
                                          testing::Values(Rounding::kExact, Rounding::kFloor,
                                                          Rounding::kCeil, Rounding::kNearest)),
                         TestName);

TEST(BigBatchPublishedTest, ThirtyNodesOfEightTrain3072Exactly) {
  ExpectSame({{"published", 30, 8, 10, 3072}, Rounding::kExact}, LossKind::kSoftmaxCrossEntropy,
             kSgd);
}

// The comparison can fail: the two ways that others accumulate are far outside of it.
TEST(BigBatchWrongTest, WrongWaysFailTheSameComparison) {
  for (const Scenario& scenario : kScenarios) {
    if (scenario.target < 7) continue;  // at most one sample a rank: nothing to weigh wrongly
    Problem problem({scenario, Rounding::kExact}, LossKind::kSoftmaxCrossEntropy, kSgd);
    const std::vector<UpdateResult> expected = RunBigBatch(problem);
    for (const Way wrong : {Way::kMeanOfMeans, Way::kLastMicroStep}) {
      if (wrong == Way::kLastMicroStep && problem.plan.accum_steps() == 1) continue;
      const Worst worst = RunRanks(problem, wrong, expected);
      EXPECT_GT(worst.gradients, 1000 * kSame) << scenario.name << static_cast<int>(wrong);
      EXPECT_GT(worst.parameters, 1000 * kSame) << scenario.name << static_cast<int>(wrong);
    }
  }
}

}  // namespace
}  // namespace gaccd
