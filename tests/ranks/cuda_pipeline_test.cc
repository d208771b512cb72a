// Pipelines of engines on GPUs, over the stand-ins of the GPU and of NCCL: their updates equal
// those of whole models on GPUs and on CPUs, whatever the schedule and the samples of each
// pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/engine/planned_memory.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB,
                                           PipelineSchedule::kZeroBubble};

// Relative to the whole model on GPUs, and on CPUs.
struct Allowed {
  double parameters = 1e-6;
  double on_cpus = 1e-6;
};

EngineCase InStages(EngineCase test, int stages, PipelineSchedule schedule) {
  test.stages = stages;
  test.schedule = schedule;
  return test;
}

std::vector<EngineRun> RunOnGpuRanks(const EngineCase& test, const EngineRanks& ranks = {}) {
  ResetGpus(test.ranks * test.stages);
  std::vector<EngineRun> runs;
  for (RankOutcome& outcome : RunCudaRanks(test, ranks)) {
    EXPECT_TRUE(outcome.run.ok()) << outcome.run.status().message();
    runs.push_back(outcome.run.ok() ? *std::move(outcome.run) : EngineRun());
  }
  for (int device = -1; device < test.ranks * test.stages; ++device) {
    EXPECT_EQ(standin::LiveBytes(device), 0) << device;
  }
  return runs;
}

void ExpectNear(const EngineRun& found, const EngineRun& expected, double allowed) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < found.results.size(); ++u) {
    SCOPED_TRACE(StrCat("update ", u + 1));
    const UpdateResult& a = found.results[u];
    const UpdateResult& b = expected.results[u];
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_EQ(a.divisor, b.divisor);
    EXPECT_EQ(a.finite, b.finite);
    if (!b.finite) continue;
    EXPECT_NEAR(a.loss, b.loss, allowed * b.loss);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 10 * allowed * b.grad_norm);
    EXPECT_EQ(found.control_words[u], expected.control_words[u]);
  }
  for (std::size_t u = 0; u < found.gradients.size(); ++u) {
    EXPECT_LT(Distance(found.gradients[u], expected.gradients[u]), 10 * allowed) << u;
  }
  EXPECT_LT(Distance(found.parameters, expected.parameters), allowed);
  EXPECT_LT(Distance(found.state, expected.state), 10 * allowed);
  EXPECT_EQ(found.optimizer_updates, expected.optimizer_updates);
}

EngineRanks WithGradients() {
  return {.options = [](int) { return EngineRunOptions{.gradients = true}; }};
}

// What the pipelines are compared with, once a case.
struct Reference {
  EngineRun on_gpus;
  std::vector<float> on_cpus;  // parameters, of f32
};

const Reference& ReferenceOf(const EngineCase& test) {
  static std::map<std::string, Reference> made;
  const auto [found, is_new] =
      made.try_emplace(StrCat(test.name, " ", test.ranks, " ", test.target, " ",
                              static_cast<int>(test.numerics.precision)));
  Reference& reference = found->second;
  if (!is_new) return reference;
  reference.on_gpus = RunOnGpuRanks(test, WithGradients()).front();
  if (test.numerics.precision != Precision::kF32) return reference;
  auto on_cpus = RunCpuRanks(test);
  EXPECT_TRUE(on_cpus.front().ok()) << on_cpus.front().status().message();
  if (on_cpus.front().ok()) reference.on_cpus = on_cpus.front()->parameters;
  return reference;
}

void ExpectWhole(EngineCase test, int stages, PipelineSchedule schedule,
                 const Allowed& allowed = {}, const EngineRanks& ranks = WithGradients()) {
  SCOPED_TRACE(StrCat(test.name, ", ", test.ranks, " pipelines of ", stages, " stages, ",
                      Name(schedule), ", ", test.target, " samples"));
  test.control_words = 0;  // they differ where there are more ranks
  const Reference& whole = ReferenceOf(test);
  const std::vector<EngineRun> found = RunOnGpuRanks(InStages(test, stages, schedule), ranks);
  if (::testing::Test::HasFailure()) return;
  for (const EngineRun& run : found) {
    ExpectNear(run, whole.on_gpus, allowed.parameters);
    // What is saved is one model.
    EXPECT_EQ(run.parameters, found.front().parameters);
    EXPECT_EQ(run.digest, found.front().digest);
  }
  const double loss = whole.on_gpus.evaluation.loss_sum;
  for (std::size_t last = stages - 1; last < found.size(); last += stages) {
    EXPECT_NEAR(found[last].evaluation.loss_sum, loss, allowed.parameters * loss);
  }
  if (whole.on_cpus.empty()) return;
  EXPECT_LT(Distance(found.front().parameters, whole.on_cpus), allowed.on_cpus);
}

struct Shape {
  int stages = 2;
  int pipelines = 1;
  PipelineSchedule schedule = PipelineSchedule::kGpipe;
  Precision precision = Precision::kF32;
};

std::vector<Shape> AllShapes() {
  std::vector<Shape> shapes;
  for (const int stages : {2, 3}) {
    for (const int pipelines : {1, 2}) {
      for (const PipelineSchedule schedule : kSchedules) {
        for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
          if (kSanitized && (stages + pipelines) % 2 == 0) continue;
          shapes.push_back({stages, pipelines, schedule, precision});
        }
      }
    }
  }
  return shapes;
}

std::string NameOf(const ::testing::TestParamInfo<Shape>& info) {
  const Shape& shape = info.param;
  return StrCat(shape.stages, "_stages_", shape.pipelines, "_pipelines_", Name(shape.schedule), "_",
                shape.precision == Precision::kF32 ? "f32" : "bf16");
}

class CudaPipelineTest : public ::testing::TestWithParam<Shape> {
 protected:
  static Allowed AllowedHere() {
    // Sums in another order are rounded to other bf16 weights here and there.
    return GetParam().precision == Precision::kF32 ? Allowed() : Allowed{.parameters = 2e-4};
  }
  void TearDown() override { ResetGpus(1); }
};
INSTANTIATE_TEST_SUITE_P(All, CudaPipelineTest, ::testing::ValuesIn(AllShapes()), NameOf);

// Ragged: of the last micro-step some pipelines have fewer samples, or none; updates with a tail.
TEST_P(CudaPipelineTest, EqualsTheWholeModel) {
  const Shape& shape = GetParam();
  for (const std::int64_t steps : {1, 5}) {
    ExpectWhole({.name = "layers",
                 .ranks = shape.pipelines,
                 .micro = 3,
                 .target = shape.pipelines * 3 * steps - 2,
                 .updates = 5,
                 .tail = 2,
                 .numerics = {.precision = shape.precision},
                 .dropout = 0.2},
                shape.stages, shape.schedule, AllowedHere());
  }
}

// The word embeddings of a masked BERT are its output weights, too: the first stage owns them, the
// last one uses them. Texts are cut to their lengths.
TEST_P(CudaPipelineTest, SharesTiedWeights) {
  const Shape& shape = GetParam();
  ExpectWhole({.name = "bert",
               .ranks = shape.pipelines,
               .micro = 3,
               .target = 13,
               .updates = 4,
               .widths = {16, 5},
               .clip_norm = 0.05,
               .numerics = {.precision = shape.precision},
               .texts = 12,
               .cut = 4,
               .masked = true},
              shape.stages, shape.schedule, AllowedHere());
}

// The streams of a rank run at other speeds; the host runs ahead by an update.
TEST_P(CudaPipelineTest, WithDelaysAndAhead) {
  const Shape& shape = GetParam();
  if (shape.precision != Precision::kF32) return;  // the streams are the same
  standin::SetDelays(1, 50);
  ExpectWhole({.name = "delays",
               .ranks = shape.pipelines,
               .micro = 2,
               .target = 18 * shape.pipelines - 1,
               .updates = 3,
               .numerics = {.precision = shape.precision}},
              shape.stages, shape.schedule, AllowedHere(), {});
  standin::SetDelays(0, 0);
}

class CudaPipelines : public ::testing::Test {
 protected:
  void TearDown() override { ResetGpus(1); }
};

TEST_F(CudaPipelines, FrozenParametersAveragesAndAPipelineWithoutSamples) {
  EngineCase test{.name = "frozen",
                  .ranks = 2,
                  .micro = 4,
                  .target = 15,
                  .updates = 5,
                  .tail = 1,  // one pipeline has nothing then
                  .optimizer = {.lr = 0.01,
                                .kind = AdamWSpec{.epsilon = 1e-3},
                                .group = {{.match = "fc2.weight", .freeze = true}},
                                .ema = EmaSpec{0.75}},
                  .clip_norm = 0.1};
  for (const PipelineSchedule schedule : kSchedules) ExpectWhole(test, 3, schedule);
  test.numerics.precision = Precision::kFP16;
  test.loss_scale = 256;
  ExpectWhole(test, 2, PipelineSchedule::kZeroBubble, {.parameters = 2e-4});
}

TEST_F(CudaPipelines, ATailThatLeavesAPipelineEmptyFirst) {
  for (const PipelineSchedule schedule : kSchedules) {
    ExpectWhole({.name = "empty", .ranks = 3, .micro = 2, .target = 2, .updates = 3}, 2, schedule);
  }
}

TEST_F(CudaPipelines, OnOneGpuTogether) {
  EngineCase test{.name = "shared", .ranks = 1, .micro = 2, .target = 19, .updates = 3};
  EngineRanks ranks = WithGradients();
  ranks.one_gpu = true;
  for (const PipelineSchedule schedule : kSchedules) ExpectWhole(test, 2, schedule, {}, ranks);
}

// Each rank tells others; all of them are counted once.
TEST_F(CudaPipelines, ControlWordsAreThoseOfAllRanks) {
  const EngineCase test =
      InStages({.name = "words", .ranks = 2, .micro = 4, .target = 15, .updates = 3}, 2,
               PipelineSchedule::kOneFOneB);
  const auto on_cpus = RunCpuRanks(test);
  const auto found = RunOnGpuRanks(test);
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    ASSERT_TRUE(on_cpus[rank].ok());
    EXPECT_EQ(found[rank].control_words, on_cpus[rank]->control_words);
  }
}

// Only the second pipeline has the sample with the NaN: all ranks stop at the same update.
TEST_F(CudaPipelines, NotFiniteStopsAllStagesAlike) {
  EngineCase test{
      .name = "nan", .ranks = 2, .micro = 5, .target = 33, .updates = 6, .poisoned = 50};
  std::mutex mutex;
  std::vector<std::int64_t> updates;
  const EngineRunOptions options{
      .failed = [&](const Status&, std::span<const float>, std::int64_t done) {
        const std::lock_guard lock(mutex);
        updates.push_back(done);
      }};
  for (const auto& run : RunCpuRanks(test, {.options = [&](int) { return options; }}))
    EXPECT_FALSE(run.ok());
  ASSERT_EQ(updates.size(), 2U);
  ResetGpus(4);
  for (const RankOutcome& outcome : RunCudaRanks(InStages(test, 2, PipelineSchedule::kOneFOneB),
                                                 {.options = [&](int) { return options; }})) {
    EXPECT_THAT(outcome.run, HasKind(ErrorKind::kNoRequeue));
  }
  ASSERT_EQ(updates.size(), 6U);
  for (const std::int64_t done : updates) EXPECT_EQ(done, updates[0]);
}

// Of the flat buffers the own part alone, and what is planned: by another engine, by the graphs.
TEST_F(CudaPipelines, EachGpuHoldsItsOwnStage) {
  EngineCase test{.name = "memory", .micro = 8, .target = 32, .updates = 1};
  test.widths = {64, 512, 512, 512, 5};
  test = InStages(test, 2, PipelineSchedule::kGpipe);
  const EngineCase unstaged = InStages(test, 1, PipelineSchedule::kGpipe);
  const auto options = [&](std::int64_t micro_batch, const EngineChoice& choice) {
    EngineOptions all{.optimizer = test.optimizer, .choice = choice};
    all.replica.micro_batches = {micro_batch};
    all.replica.eval_batches = {micro_batch};
    all.replica.micro_steps_per_update = 4;
    all.replica.in_flight = 4;
    return all;
  };
  const std::int64_t whole = ModelOf(unstaged).layout().size();
  ExpectOk(RunOnGpus(2, [&](Communicator& over, const EngineChoice& choice, Communicator* nccl) {
    const Model model = ModelOf(test, over.rank());
    const EngineOptions wanted = options(32, choice);
    GACCD_ASSIGN_OR_RETURN(const auto other, MakeEngine(*nccl, model, options(2, choice)));
    GACCD_ASSIGN_OR_RETURN(const EngineMemory by_other, other->PlanMemory(wanted.replica));
    const std::int64_t live = standin::LiveBytes(over.rank());
    EXPECT_NEAR(static_cast<double>(live) / static_cast<double>(other->memory().device_bytes), 1,
                0.002);
    GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(*nccl, model, wanted));
    const std::int64_t planned = engine->memory().device_bytes;
    EXPECT_EQ(by_other.device_bytes, planned);
    GACCD_ASSIGN_OR_RETURN(const EngineMemory by_graphs, PlanEngineMemory(model, wanted));
    EXPECT_LT(by_graphs.device_bytes, planned);
    EXPECT_GT(by_graphs.device_bytes, planned - (std::int64_t{64} << 20));
    EXPECT_EQ(by_graphs.kept_bytes, engine->memory().kept_bytes);
    // Parameters, gradients and momentum, which are the most of it, of about half of the model.
    EXPECT_LT(by_graphs.device_bytes, std::int64_t{4} * 3 * whole * 3 / 4);
    return Status::Ok();
  }));
}

TEST_F(CudaPipelines, NotFiniteIsOutlived) {
  EngineCase test{
      .name = "outlives", .ranks = 2, .micro = 5, .target = 33, .updates = 6, .poisoned = 50};
  test.tolerate_nonfinite = true;
  test.control_words = 0;
  test.evaluate = false;
  EXPECT_GT(std::ranges::count(ReferenceOf(test).on_gpus.results, false, &UpdateResult::finite), 0);
  for (const PipelineSchedule schedule : kSchedules) ExpectWhole(test, 2, schedule, {}, {});
}

}  // namespace
}  // namespace gaccd::tests
