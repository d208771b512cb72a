#include "daemon/control/time_left.h"

#include <algorithm>

namespace gaccd {

std::optional<TimeLeft::Seconds> TimeLeft::least() const {
  if (!job) return grace;
  if (!grace) return job;
  return std::min(*job, *grace);
}

TimeLeft FindTimeLeft(std::optional<std::int64_t> job_end_time, double now, int stop_signal,
                      TimeLeft::Seconds since_signal, TimeLeft::Seconds term_budget) {
  TimeLeft left;
  if (job_end_time) left.job = TimeLeft::Seconds(static_cast<double>(*job_end_time) - now);
  if (stop_signal == SIGTERM) left.grace = term_budget - since_signal;
  return left;
}

bool SaveFits(const TimeLeft& left, TimeLeft::Seconds save) {
  const auto least = left.least();
  return !least || *least >= 1.5 * save + TimeLeft::Seconds(1);
}

}  // namespace gaccd
