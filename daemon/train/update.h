// One update, from micro-batches to new parameters: the instructions of its step program, one after
// the other. What each means stands in daemon/engine/engine.h, which of them there are in
// daemon/program/step_program.h.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/base/result.h"
#include "collectives/liveness/heartbeat/frame.h"
#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine.h"
#include "daemon/program/step_program.h"

namespace gaccd {

// Positions are those of the program.
struct UpdateHooks {
  // Told before every instruction that computes (from 0) and before the reduction: that this rank
  // gets on.
  std::function<void(heartbeat::Phase phase, std::int64_t position)> note;
  // Asked at every position where the update may be left. true, on all ranks alike: it is left
  // there. RunUpdate returns OK, and the update stays as it is, neither reduced nor ended.
  std::function<Result<bool>(std::int64_t position)> leave;
  // Called just before the reduction: the last chance to write settings.control_words.
  std::function<void()> tell;
  // Instructions that are not to be done: a checkpoint inside the update has them. Then `restore`
  // is called instead.
  std::int64_t done = 0;
  std::function<Status()> restore;
  // Asked of every micro-batch that is to be computed (from 0). true: it computes nothing, as if it
  // had no samples. settings.samples counts what all ranks have left then.
  std::function<bool(std::int64_t micro_batch)> drop;
};

// Collective. `batches` gives this rank's micro-batches in the order of the program, and keeps
// engine.held_batches() of them. settings.samples 0: those of the program. On a GPU the update is
// only on its way when this returns; what came of it is told by engine.TakeResult(). Errors:
// kInternal when the micro-batches end too early; whatever the communicator and the device say.
Status RunUpdate(Engine& engine, Prefetcher& batches, const StepProgram& program,
                 UpdateSettings settings, const UpdateHooks& hooks = {});

}  // namespace gaccd
