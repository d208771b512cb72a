// One update, from micro-batches to new parameters: all phases in one function, in one order, which
// daemon/engine/engine.h explains. Everything that makes accumulation right or wrong stands here.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/base/result.h"
#include "collectives/heartbeat/frame.h"
#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine.h"
#include "daemon/plan/plan.h"

namespace gaccd {

struct UpdateHooks {
  // Told before every micro-step (from 0) and before the reduction: that this rank gets on.
  std::function<void(heartbeat::Phase phase, std::int64_t micro_step)> note;
  // Asked after micro-step `done` (from 1), but not after the last. true, on all ranks alike: the
  // window is left there. RunUpdate returns OK, and the update stays as it is, neither reduced nor
  // ended.
  std::function<Result<bool>(std::int64_t done)> leave;
  // Called just before the reduction: the last chance to write settings.control_words.
  std::function<void()> tell;
  // Micro-steps that are not to be done: a checkpoint inside the update has them. Then `restore` is
  // called instead.
  std::int64_t done = 0;
  std::function<Status()> restore;
  // Asked before micro-step `step` (from 0). true: it computes nothing, as if it had no samples.
  // settings.samples counts what all ranks have left then.
  std::function<bool(std::int64_t step)> drop;
};

// Collective. `batches` gives this rank's micro-batches in the order of the plan, and keeps
// engine.held_batches() of them. settings.samples 0: those of the plan. On a GPU the update is
// only on its way when this returns; what came of it is told by engine.TakeResult(). Errors:
// kInternal when the micro-batches end too early; whatever the communicator and the device say.
Status RunUpdate(Engine& engine, Prefetcher& batches, const Plan& plan, UpdateSettings settings,
                 const UpdateHooks& hooks = {});

}  // namespace gaccd
