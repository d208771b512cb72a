// One update, from micro-batches to new parameters: the instructions of its step program, in order.
// daemon/engine/step_program.h lists the instructions, daemon/engine/engine.h defines them.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/base/result.h"
#include "collectives/liveness/heartbeat/frame.h"
#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/step_program.h"

namespace gaccd {

// Positions are those of the program.
struct UpdateHooks {
  // Called before every instruction that computes (from 0) and before the reduction: this rank
  // makes progress. Also before and after a wait for a micro-batch (kLoad).
  std::function<void(heartbeat::Phase phase, std::int64_t position)> on_progress;
  // Called at every position where the update may be interrupted. true, the same on all ranks: stop
  // there. RunUpdate returns OK, and the update stays as it is, neither reduced nor finished.
  std::function<Result<bool>(std::int64_t position)> should_stop;
  // Called just before the reduction: the last chance to write settings.control_words.
  std::function<void()> before_reduce;
  // The first instructions of the program that are skipped, because a checkpoint inside the update
  // holds their result. `restore_accumulators` is called instead.
  std::int64_t resume_at = 0;
  std::function<Status()> restore_accumulators;
  // Called for every micro-batch that is to be computed (from 0). true: compute nothing, as if it
  // had no samples. settings.samples then counts what all ranks have left.
  std::function<bool(std::int64_t micro_batch)> is_dropped;
};

// Collective. `batches` gives this rank's micro-batches in the order of the program, and keeps
// engine.held_batches() of them. settings.samples 0: those of the program. On a GPU the update is
// only enqueued when this returns; engine.TakeResult() returns its result. Errors: kInternal when
// the micro-batches end too early; the errors of the communicator and the device.
Status RunUpdate(Engine& engine, Prefetcher& batches, const StepProgram& program,
                 UpdateSettings settings, const UpdateHooks& hooks = {});

}  // namespace gaccd
