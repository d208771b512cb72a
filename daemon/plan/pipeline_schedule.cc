#include "daemon/plan/pipeline_schedule.h"

#include <algorithm>

namespace gaccd {

std::int64_t InFlight(PipelineSchedule schedule, std::int64_t stages, std::int64_t stage,
                      std::int64_t micro_batches) {
  if (schedule == PipelineSchedule::kGpipe) return micro_batches;
  return std::min(micro_batches, stages - stage);
}

std::vector<PipelineAction> PipelineActions(PipelineSchedule schedule, std::int64_t stages,
                                            std::int64_t stage, std::int64_t micro_batches) {
  using Kind = PipelineAction::Kind;
  const std::int64_t in_flight = InFlight(schedule, stages, stage, micro_batches);
  std::vector<PipelineAction> actions;
  for (std::int64_t i = 0; i < micro_batches + in_flight; ++i) {
    if (i >= in_flight) actions.push_back({Kind::kBackward, i - in_flight});
    if (i < micro_batches) actions.push_back({Kind::kForward, i});
  }
  return actions;
}

}  // namespace gaccd
