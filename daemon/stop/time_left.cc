#include "daemon/stop/time_left.h"

#include <algorithm>

namespace gaccd {

std::optional<TimeLeft::Seconds> TimeLeft::least() const {
  if (!job) return grace;
  if (!grace) return job;
  return std::min(*job, *grace);
}

TimeLeft FindTimeLeft(std::optional<std::chrono::steady_clock::time_point> job_end,
                      std::chrono::steady_clock::time_point now,
                      std::optional<TimeLeft::Seconds> since_term, TimeLeft::Seconds term_budget) {
  TimeLeft left;
  if (job_end) left.job = *job_end - now;
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
