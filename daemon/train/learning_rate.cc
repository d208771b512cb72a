#include "daemon/train/learning_rate.h"

#include <algorithm>

#include "daemon/optim/schedule.h"

namespace gaccd {

double JobLearningRate(const Job& job, const Plan& plan, const UpdateSchedule& schedule,
                       std::int64_t index) {
  const double factor = plan.LrFactor(schedule.StageAt(index).batch);
  if (schedule.stages().size() == 1) {
    return LearningRate(job.schedule, job.optimizer.lr, factor, index, schedule.updates());
  }
  const std::int64_t warmup = std::min(job.schedule.warmup_updates, schedule.updates() - 1);
  const auto samples = [&](std::int64_t update) {
    return static_cast<double>(schedule.SamplesBefore(update) - schedule.SamplesBefore(warmup));
  };
  const double all = samples(schedule.updates() - 1);
  return LearningRateAt(job.schedule, job.optimizer.lr, factor, index,
                        index > warmup && all > 0 ? samples(index) / all : 0);
}

}  // namespace gaccd
