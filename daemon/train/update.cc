#include "daemon/train/update.h"

#include "collectives/base/strings.h"

namespace gaccd {

Status RunUpdate(Engine& engine, Prefetcher& batches, const Plan& plan, UpdateSettings settings,
                 const UpdateHooks& hooks) {
  if (settings.samples == 0) settings.samples = plan.effective_batch();
  GACCD_RETURN_IF_ERROR(engine.Begin(settings));

  // 1. k micro-steps: forward, backward, accumulate. No communication. Every sample weighs 1/D, D
  //    the count of the whole update, so that ragged micro-batches and ranks need no correction.
  const std::int64_t steps = plan.accum_steps();
  if (hooks.done > 0) GACCD_RETURN_IF_ERROR(hooks.restore());
  for (std::int64_t step = 0; step < steps; ++step) {
    if (hooks.note) hooks.note(heartbeat::Phase::kCompute, step);
    const BatchView* batch = batches.Next();
    if (batch == nullptr) {
      return {ErrorKind::kInternal,
              StrCat("no micro-batch for micro-step ", step + 1, " of ", steps)};
    }
    if (step < hooks.done) continue;
    const bool dropped = hooks.drop && hooks.drop(step);
    GACCD_RETURN_IF_ERROR(engine.MicroStep(dropped ? BatchView{} : *batch,
                                           {.first = step == 0, .last = step + 1 == steps}));
    if (hooks.leave && step + 1 < steps) {
      GACCD_ASSIGN_OR_RETURN(const bool leave, hooks.leave(step + 1));
      if (leave) return Status::Ok();
    }
  }

  // 2. Reduce once: gradients are sums, so the reduction is a plain sum.
  if (hooks.note) hooks.note(heartbeat::Phase::kReduce, steps);
  if (hooks.tell) hooks.tell();
  GACCD_RETURN_IF_ERROR(engine.Reduce());

  // 3. There is no loss scale to undo. Check finite.  4. Global norm, in the same pass.
  GACCD_RETURN_IF_ERROR(engine.MeasureGradient());

  // 5. Audit: the samples that all ranks counted equal the plan, or nothing changes any more.
  GACCD_RETURN_IF_ERROR(engine.Audit());

  // 6. Clip once, after the reduction.  7. Optimiser step.
  GACCD_RETURN_IF_ERROR(engine.Optimize());

  // 8. Reset accumulators: the first micro-step of the next update overwrites them.
  return engine.End();
}

}  // namespace gaccd
