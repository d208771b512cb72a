#include "tests/support/pipeline_runs.h"

#include <gtest/gtest.h>

#include <map>

#include "collectives/base/strings.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// What the pipelines are compared with, once a case.
struct Whole {
  EngineRun run;
  std::vector<float> on_cpus;  // parameters, of f32, if the run is on GPUs
};

const Whole& ReferenceRun(const EngineCase& test) {
  static std::map<std::string, Whole> made;
  const auto [found, is_new] =
      made.try_emplace(StrCat(test.name, " ", test.ranks, " ", test.target, " ",
                              static_cast<int>(test.numerics.precision)));
  Whole& whole = found->second;
  if (!is_new) return whole;
  EngineCase unsharded = test;
  unsharded.shard = Sharding::kNone;
  for (EngineRun& run : RunTestedRanks(unsharded, WithGradients())) {
    if (whole.run.results.empty()) whole.run = std::move(run);
  }
  if (!OnGpus() || test.numerics.precision != Precision::kF32) return whole;
  const auto on_cpus = RunCpuRanks(unsharded);
  EXPECT_OK(on_cpus.front());
  if (on_cpus.front().ok()) whole.on_cpus = on_cpus.front()->parameters;
  return whole;
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

}  // namespace

std::vector<PipelineShape> AllPipelineShapes() {
  std::vector<PipelineShape> shapes;
  for (const PipelineSchedule schedule : kSchedules) {
    if (!OnGpus()) {
      for (const int stages : {2, 3, 4}) shapes.push_back({stages, 3, schedule});
      continue;
    }
    for (const int stages : {2, 3}) {
      for (const int pipelines : {1, 2}) {
        for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
          if (kSanitized && (stages + pipelines) % 2 == 0) continue;
          shapes.push_back({stages, pipelines, schedule, precision});
        }
      }
    }
  }
  return shapes;
}

std::string PipelineName(const PipelineShape& shape) {
  return StrCat(shape.stages, "_stages_", shape.pipelines, "_pipelines_", Name(shape.schedule), "_",
                shape.precision == Precision::kF32 ? "f32" : "bf16");
}

EngineCase InStages(EngineCase test, int stages, PipelineSchedule schedule) {
  test.stages = stages;
  test.schedule = schedule;
  return test;
}

Nodes NodesOfPipelines(int pipelines, int stages, int per_node) {
  Nodes nodes;
  for (int rank = 0; rank < pipelines * stages; ++rank) {
    nodes.push_back(per_node == 0 ? 0 : rank / (per_node * stages));
  }
  return nodes;
}

EngineRanks WithGradients() {
  return {.options = [](int) { return EngineRunOptions{.gradients = true}; }};
}

void ExpectWhole(EngineCase test, int stages, PipelineSchedule schedule, double allowed,
                 const EngineRanks& ranks) {
  SCOPED_TRACE(StrCat(test.name, ", ", test.ranks, " pipelines of ", stages, " stages, ",
                      Name(schedule), ", ", test.target, " samples"));
  test.control_words = 0;  // they differ where there are more ranks
  const Whole& whole = ReferenceRun(test);
  const std::vector<EngineRun> found = RunTestedRanks(InStages(test, stages, schedule), ranks);
  if (::testing::Test::HasFailure()) return;
  for (const EngineRun& run : found) {
    ExpectNear(run, whole.run, allowed);
    // What is saved is one model.
    EXPECT_EQ(run.parameters, found.front().parameters);
    EXPECT_EQ(run.digest, found.front().digest);
  }
  const double loss = whole.run.evaluation.loss_sum;
  for (std::size_t last = stages - 1; last < found.size(); last += stages) {
    EXPECT_NEAR(found[last].evaluation.loss_sum, loss, allowed * loss);
  }
  if (whole.on_cpus.empty()) return;
  EXPECT_LT(Distance(found.front().parameters, whole.on_cpus), 1e-6);
}

}  // namespace gaccd::tests
