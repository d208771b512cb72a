// The memory of an engine before there is one, from the recorded graphs alone: also on a machine
// without the device, and without taking what depends on the micro-batch.
#pragma once

#include "collectives/base/result.h"
#include "daemon/engine/engine_options.h"
#include "daemon/replica/model.h"

namespace gaccd {

// What Engine::memory() of MakeEngine() with these options is planned to be. On a CPU it is exactly
// that; parameters, gradients and packed weights are mapped meanwhile and not used. On a GPU it is
// without what only that GPU knows, and what is small: scratch of kernels, but for the columns of
// f32 convolutions, and of exchanges, tables of the optimiser, memory of libraries. parts: into
// which the optimiser's state is divided (ShardGrid); that of the largest. Errors: those of
// recording and preparing the graphs.
[[nodiscard]] Result<EngineMemory> PlanEngineMemory(const Model& model,
                                                    const EngineOptions& options, int parts = 1);

}  // namespace gaccd
