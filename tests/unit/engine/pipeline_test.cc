// Pipelines on CPUs and on GPUs: updates of stages equal those of whole models, whatever the
// schedule and the samples of each pipeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/optim/measure.h"
#include "tests/sanitized.h"
#include "tests/support/pipeline_runs.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

class PipelineTest : public ::testing::TestWithParam<PipelineShape> {
 protected:
  static double AllowedHere() {
    // Sums in another order are rounded to other bf16 weights here and there.
    return GetParam().precision == Precision::kF32 ? 1e-6 : 2e-4;
  }
};
INSTANTIATE_TEST_SUITE_P(All, PipelineTest, ::testing::ValuesIn(AllPipelineShapes()),
                         [](const auto& test) { return PipelineName(test.param); });

// Ragged: of the last micro-step some pipelines have fewer samples, or none; updates with a tail.
TEST_P(PipelineTest, EqualsUndividedModel) {
  const PipelineShape& shape = GetParam();
  for (const std::int64_t steps : {1, 2, 5}) {
    if (OnGpus() && steps == 2) continue;
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
void ExpectTiedWeights(const NamedOptimizer& optimizer, int pipelines, const PipelineShape& shape,
                       double allowed, Sharding shard = Sharding::kNone) {
  ExpectWhole({.name = StrCat("bert ", optimizer.name),
               .ranks = pipelines,
               .micro = 3,
               .target = 13,
               .updates = 4,
               .widths = {16, 5},
               .optimizer = optimizer.spec,
               .clip_norm = 0.05,
               .numerics = {.precision = shape.precision},
               .texts = 12,
               .cut = 4,
               .masked = true,
               .shard = shard},
              shape.stages, shape.schedule, allowed);
}

TEST_P(PipelineTest, SharesTiedWeights) {
  const PipelineShape& shape = GetParam();
  if (OnGpus()) {
    ExpectTiedWeights({"default", EngineCase().optimizer}, shape.pipelines, shape, AllowedHere());
    return;
  }
  const bool zero_bubble = shape.schedule == PipelineSchedule::kZeroBubble;
  if (shape.stages == 3 || shape.schedule == PipelineSchedule::kGpipe) return;
  if (kSanitized && (shape.stages == 4) != zero_bubble) return;
  // The gradient of a key's bias is 0 but for rounding: nothing for optimisers that divide by it.
  for (const NamedOptimizer& optimizer : kEveryOptimizer) {
    if (!std::holds_alternative<SgdSpec>(optimizer.spec.kind)) continue;
    ExpectTiedWeights(optimizer, 2, shape, AllowedHere());
  }
}

TEST(Pipelines, FrozenParametersAveragesAndEmptyPipeline) {
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
  for (const PipelineSchedule schedule : kSchedules) ExpectWhole(test, OnGpus() ? 3 : 5, schedule);
  if (OnGpus()) {
    test.numerics.precision = Precision::kFP16;
    test.loss_scale = 256;
    ExpectWhole(test, 2, PipelineSchedule::kZeroBubble, 2e-4);
    return;
  }
  if (DetectCpuBf16() == CpuBf16::kNone) {
    GTEST_SKIP() << "f32 passed; bf16 is left out: this CPU has " << Name(DetectCpuBf16());
  }
  test.numerics.precision = Precision::kBF16;
  ExpectWhole(test, 2, PipelineSchedule::kGpipe);
  ExpectWhole(test, 2, PipelineSchedule::kZeroBubble);
}

TEST(Pipelines, TailLeavesFirstPipelineEmpty) {
  for (const PipelineSchedule schedule : kSchedules) {
    ExpectWhole({.name = "empty", .ranks = 3, .micro = 2, .target = 2, .updates = 3}, 2, schedule);
  }
}

TEST(Pipelines, SkipNonFiniteUpdates) {
  EngineCase test{
      .name = "nan", .ranks = 2, .micro = 5, .target = 33, .updates = 6, .poisoned = 50};
  test.tolerate_nonfinite = true;
  test.evaluate = false;
  const auto whole = RunTestedRanks(test);
  ASSERT_FALSE(whole.empty());
  EXPECT_GT(std::ranges::count(whole[0].results, false, &UpdateResult::finite), 0);
  for (const PipelineSchedule schedule : kSchedules) ExpectWhole(test, 2, schedule, 1e-6, {});
}

// Stages of 3 blocks of parameters and more: of a state some ranks have one, some two.
EngineCase DividedCase(Precision precision) {
  return {.name = "sharded",
          .ranks = OnGpus() ? 3 : 4,
          .micro = 4,
          .target = 29,
          .updates = OnGpus() ? 3 : 5,
          .tail = 3,  // of four pipelines one has nothing then
          .widths = {24, 90, 70, 60, 5},
          .optimizer = {.lr = 0.01,
                        .kind = AdamWSpec{},
                        .group = {{.match = "fc2.bias", .freeze = true}},
                        .ema = EmaSpec{0.75}},
          .clip_norm = 0.1,
          .numerics = {.precision = precision}};
}

EngineRun FirstOfStages(const EngineCase& test) {
  return RunTestedRanks(InStages(test, 2, PipelineSchedule::kOneFOneB)).at(0);
}

TEST(Pipelines, ShardStateOfStage) {
  EngineCase test = DividedCase(Precision::kF32);
  const EngineRun plain = FirstOfStages(test);
  for (const Sharding shard : {Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
    test.shard = shard;
    for (const int per_node : {0, 2, 3}) {  // of the pipelines
      if (kSanitized && per_node != 2) continue;
      SCOPED_TRACE(StrCat("shard ", static_cast<int>(shard), ", ", per_node, " pipelines a node"));
      EngineRanks ranks = WithGradients();
      ranks.node_of = NodesOfPipelines(test.ranks, 2, per_node);
      ExpectWhole(test, 2, PipelineSchedule::kOneFOneB, 1e-6, ranks);
    }
    EngineRanks two_a_node = WithGradients();
    two_a_node.node_of = NodesOfPipelines(test.ranks, 3, 2);
    ExpectWhole(test, 3, PipelineSchedule::kGpipe, 1e-6, two_a_node);
    // On one node the bits are those of stages that are not sharded.
    const EngineRun found = FirstOfStages(test);
    EXPECT_EQ(found.parameters, plain.parameters);
    EXPECT_EQ(found.state, plain.state);
  }
}

// Of a stage that a GPU reads in two parts.
TEST(Pipelines, DigestIsThatOfAllParameters) {
  if (kSanitized) return;
  EngineCase test{.name = "digest", .micro = 1, .target = 2, .updates = 1};
  test.widths = {1100, 1000, 5};
  test = InStages(test, 2, PipelineSchedule::kGpipe);
  ExpectOk(OnTestedRanks(
      {0, 0},
      [&](Communicator& over, const EngineChoice& choice, Communicator* device_comm) -> Status {
        const Model model = MakeCaseModel(test, over.rank());
        EngineOptions options{.optimizer = test.optimizer, .choice = choice};
        options.replica.micro_batches = {1};
        GACCD_ASSIGN_OR_RETURN(const auto engine,
                               MakeEngine(device_comm ? *device_comm : over, model, options));
        std::vector<float> parameters(static_cast<std::size_t>(model.layout().size()));
        model.Initialize(7, parameters);
        GACCD_RETURN_IF_ERROR(engine->SetParameters(parameters));
        GACCD_RETURN_IF_ERROR(engine->GetParameters(parameters));  // also those of the other stage
        GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine->Digest());
        EXPECT_EQ(digest, ComputeDigest(parameters));
        return Status::Ok();
      }));
}

// What the first stage owns and the last one uses, too, is gathered before it is sent.
TEST(Pipelines, ShardedStagesShareTiedWeights) {
  ExpectTiedWeights({"default", EngineCase().optimizer}, 3, {.stages = 2}, 1e-6,
                    Sharding::kOptimizer);
}

// The copies in 16 bits of all ranks are those of the parameters that were gathered.
TEST(Pipelines, ShardedBf16StagesEqualUnsharded) {
  if (!OnGpus() && DetectCpuBf16() == CpuBf16::kNone) {
    GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  }
  EngineCase test = DividedCase(Precision::kBF16);
  const EngineRun plain = FirstOfStages(test);
  test.shard = Sharding::kOptimizer;
  const EngineRun found = FirstOfStages(test);
  EXPECT_EQ(found.parameters, plain.parameters);
  EXPECT_EQ(found.state, plain.state);
}

}  // namespace
}  // namespace gaccd::tests
