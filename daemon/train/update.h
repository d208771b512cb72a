// One update, from micro-batches to new parameters: all phases in one function, in one order
// (design section 4). Everything that makes accumulation right or wrong stands here.
#pragma once

#include "collectives/base/result.h"
#include "daemon/data/prefetcher.h"
#include "daemon/plan/plan.h"
#include "daemon/train/engine.h"

namespace gaccd {

// Collective. `batches` gives this rank's micro-batches in the order of the plan, and keeps
// engine.held_batches() of them. settings.samples is taken from the plan. On a GPU the update is
// only on its way when this returns; what came of it is told by engine.Figures(). Errors: kInternal
// when the micro-batches end too early; whatever the communicator and the device say.
Status RunUpdate(Engine& engine, Prefetcher& batches, const Plan& plan, UpdateSettings settings);

}  // namespace gaccd
