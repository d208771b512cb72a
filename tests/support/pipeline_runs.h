// Pipelines on the tested device, and whole models with the same updates.
#pragma once

#include <string>
#include <vector>

#include "tests/support/tested_ranks.h"

namespace gaccd::tests {

inline constexpr PipelineSchedule kSchedules[] = {
    PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble};

struct PipelineShape {
  int stages = 2;
  int pipelines = 1;
  PipelineSchedule schedule = PipelineSchedule::kGpipe;
  Precision precision = Precision::kF32;
};

// Of the tested device; fewer under a sanitizer.
std::vector<PipelineShape> AllPipelineShapes();
// "2_stages_1_pipelines_gpipe_f32".
std::string PipelineName(const PipelineShape& shape);

EngineCase InStages(EngineCase test, int stages, PipelineSchedule schedule);

// Nodes of so many pipelines each; 0: all are on one.
Nodes NodesOfPipelines(int pipelines, int stages, int per_node);

// Also the gradients of every update.
EngineRanks WithGradients();

// That all ranks have the updates of the whole model, which is unsharded, on one node: relatively
// on the same device; on GPUs in f32 also those of CPUs, to 1e-6. Whole
// models are run once for each name of a case, number of ranks and samples, and precision.
void ExpectWhole(EngineCase test, int stages, PipelineSchedule schedule, double allowed = 1e-6,
                 const EngineRanks& ranks = WithGradients());

}  // namespace gaccd::tests
