#include "daemon/control/time_left.h"

#include <algorithm>

namespace gaccd {

std::optional<TimeLeft::Seconds> TimeLeft::least() const {
  if (!job) return grace;
  if (!grace) return job;
  return std::min(*job, *grace);
}

TimeLeft FindTimeLeft(std::optional<std::int64_t> job_end_time, double now,
                      std::optional<TimeLeft::Seconds> since_term, TimeLeft::Seconds term_budget) {
  TimeLeft left;
  if (job_end_time) left.job = TimeLeft::Seconds(static_cast<double>(*job_end_time) - now);
  if (since_term) left.grace = term_budget - *since_term;
  return left;
}

TimeLeft::Seconds NeededForSave(TimeLeft::Seconds save) {
  return 1.5 * save + TimeLeft::Seconds(1);
}

bool SaveFits(const TimeLeft& left, TimeLeft::Seconds save) {
  const auto least = left.least();
  return !least || *least >= NeededForSave(save);
}

}  // namespace gaccd
