// RunUpdate: one update, from micro-batches to new parameters: executes the instructions of its
// update program. daemon/engine/update_program.h lists the instructions, daemon/engine/engine.h
// defines them.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/base/result.h"
#include "collectives/liveness/heartbeat/frame.h"
#include "daemon/config/job.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/update_program.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Positions are those of the program.
struct UpdateHooks {
  // Called before every instruction that computes (from 0) and before the reduction, as a sign of
  // progress. Also before and after a wait for a micro-batch (kLoad).
  std::function<void(heartbeat::Phase phase, std::int64_t position)> on_progress;
  // Called at every position where the update may be interrupted. true, the same on all ranks: stop
  // there. RunUpdate returns OK, and the update is neither reduced nor finished.
  std::function<Result<bool>(std::int64_t position)> should_stop;
  // Called just before the reduction: the last opportunity to write settings.control_words.
  std::function<void()> before_reduce;
  // Number of instructions to skip, because a checkpoint inside the update contains their results;
  // `restore_accumulators` is called instead.
  std::int64_t resume_at = 0;
  std::function<Status()> restore_accumulators;
  // Called for every micro-batch to be computed (from 0). true: computes nothing, as for an empty
  // micro-batch. settings.samples must then be the number of remaining samples of all ranks.
  std::function<bool(std::int64_t micro_batch)> is_dropped;
};

// Collective. `batches` provides this rank's micro-batches in the order of the program, and keeps
// engine.held_batches() of them. settings.samples 0: those of the program. On a GPU the update is
// only enqueued when this returns; engine.PopResult() returns its result. Errors: kInternal if
// there are too few micro-batches; errors of the communicator and the device.
Status RunUpdate(Engine& engine, Prefetcher& batches, const UpdateProgram& program,
                 UpdateSettings settings, const UpdateHooks& hooks = {});

// An update that the engine has begun and whose result Engine::PopResult() has not returned yet.
struct UpdateInFlight {
  Update update;
  std::int64_t micro_steps = 1;
  std::int64_t restored = 0;  // micro-steps done by an earlier attempt
  double lr = 0;
  double loss_scale = 1;

  [[nodiscard]] std::int64_t step() const { return update.index + 1; }
};

// The learning rate of an update of a job: optim/schedule.h with the batches of a target_schedule.

// The learning rate of update `index` (from 0). The factor of lr_rule follows the batch of the
// update's stage. If the batch changes during the run, cosine and linear depend on the samples
// before the update, not on the number of updates:
//   t = (S(u) - S(w)) / (S(n - 1) - S(w)), S(u): the samples before update u
// If all updates have the same size, both are equal. plan: of any stage.
[[nodiscard]] double JobLearningRate(const Job& job, const Plan& plan,
                                     const UpdateSchedule& schedule, std::int64_t index);

}  // namespace gaccd
