// Computes the memory of an engine from the recorded graphs, without making the engine: also on a
// machine without the device, and without allocating what depends on the micro-batch.
#pragma once

#include "collectives/base/result.h"
#include "daemon/engine/engine_options.h"
#include "daemon/replica/model.h"

namespace gaccd {

// The planned Engine::memory() of MakeEngine() with these options. Exact on a CPU; parameters
// and gradients are mapped but not touched meanwhile. On a GPU it excludes memory that depends on
// the GPU or is small: kernel scratch (except columns of f32 convolutions), scratch of exchanges,
// tables of the optimiser, memory of libraries. parts: the number of parts of the optimiser's state
// (ShardGrid); the largest part counts. Errors: those of recording and preparing the graphs.
[[nodiscard]] Result<EngineMemory> PlanEngineMemory(const Model& model,
                                                    const EngineOptions& options, int parts = 1);

}  // namespace gaccd
