#include "daemon/telemetry/rank_steps.h"

#include <algorithm>
#include <utility>

namespace gaccd {

std::optional<RankStepRecord> RankSteps::Add(const StepRecord& step, Clock::time_point now) {
  sum_.step = step.step;
  ++sum_.updates;
  sum_.dur_max_s = std::max(sum_.dur_max_s, step.dur_s);
  sum_.dur_s += step.dur_s;
  sum_.data_s += step.data_s;
  sum_.fwd_bwd_s += step.fwd_bwd_s;
  sum_.reduce_s += step.reduce_s;
  sum_.opt_s += step.opt_s;
  sum_.wait_s += step.wait_s.value_or(0);
  if (last_ && now - *last_ < period_) return std::nullopt;
  last_ = now;
  return MakeRecord();
}

std::optional<RankStepRecord> RankSteps::MakeRecord() {
  RankStepRecord mean = std::exchange(sum_, {});
  if (mean.updates == 0) return std::nullopt;
  for (double* seconds :
       {&mean.dur_s, &mean.data_s, &mean.fwd_bwd_s, &mean.reduce_s, &mean.opt_s, &mean.wait_s}) {
    *seconds /= static_cast<double>(mean.updates);
  }
  mean.memory_bytes = memory_.Bytes();
  return mean;
}

}  // namespace gaccd
