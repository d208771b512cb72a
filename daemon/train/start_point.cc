#include "daemon/train/start_point.h"

#include "collectives/base/strings.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/telemetry/log.h"

namespace gaccd {

Result<StartPoint> RestoreState(Engine& engine, const LoadedState& state, const SavedRun& run,
                                std::int64_t updates, int rank) {
  const RunCursor& cursor = state.manifest.cursor;
  if (cursor.step > updates) {
    return Status(ErrorKind::kConfig,
                  StrCat("the checkpoint is at update ", cursor.step, ", the job ends after ",
                         updates, "; --resume=never starts anew"));
  }
  GACCD_RETURN_IF_ERROR(engine.SetParameters(FloatsOf(state, kParametersBuffer)));
  GACCD_RETURN_IF_ERROR(
      engine.SetOptimizer(FloatsOf(state, kOptimizerBuffer), cursor.optimizer_updates));
  StartPoint start{
      .updates = cursor.step, .samples = cursor.samples, .at_boundary = cursor.micro_step == 0};
  if (start.at_boundary) return start;
  if (const Status same = CheckSameWindow(state.manifest, run.job, run.plan, run.by_length());
      same.ok()) {
    const std::span<const float> accumulators = FloatsOf(state, kAccumulatorsBuffer);
    start.window = {.micro_step = cursor.micro_step,
                    .accumulators = {accumulators.begin(), accumulators.end()},
                    .share = state.manifest.shards[static_cast<std::size_t>(rank)].window};
  } else if (rank == 0) {
    LogWarning(StrCat("update ", cursor.step + 1, " restarts, ", cursor.micro_step,
                      " micro-steps of it are lost: ", same.message()));
  }
  return start;
}

}  // namespace gaccd
