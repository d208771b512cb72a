// Pipelines on CPUs alone: every optimiser.
#include <gtest/gtest.h>

#include "tests/support/pipeline_runs.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

TEST(CpuPipelines, StepsWithEveryOptimizer) {
  for (const NamedOptimizer& optimizer : kEveryOptimizer) {
    ExpectWhole({.name = optimizer.name,
                 .ranks = 2,
                 .micro = 4,
                 .target = 13,
                 .updates = 4,
                 .optimizer = optimizer.spec,
                 .clip_norm = 0.1},
                2, PipelineSchedule::kOneFOneB);
  }
}

}  // namespace
}  // namespace gaccd::tests
