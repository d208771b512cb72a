// How long this process may still run, and whether a save fits into that time. Pure functions.
#pragma once

#include <chrono>
#include <optional>

namespace gaccd {

struct TimeLeft {
  using Seconds = std::chrono::duration<double>;

  // Until SLURM_JOB_END_TIME; empty outside SLURM or without a limit.
  std::optional<Seconds> job;
  // The remaining grace period after SIGTERM: SLURM's KillWait is 30 s, a partition's GraceTime may
  // be shorter; --term-budget sets the assumed time. Empty before SIGTERM: other signals announce
  // an end that is in SLURM_JOB_END_TIME.
  std::optional<Seconds> grace;

  // The minimum of both; empty: no known end.
  [[nodiscard]] std::optional<Seconds> least() const;
};

// job_end: SLURM_JOB_END_TIME on the steady clock, which is never adjusted. since_term: time since
// the first SIGTERM; empty: none.
TimeLeft FindTimeLeft(std::optional<std::chrono::steady_clock::time_point> job_end,
                      std::chrono::steady_clock::time_point now,
                      std::optional<TimeLeft::Seconds> since_term, TimeLeft::Seconds term_budget);

// The time that should be left at the start of a save that took (or is expected to take) `save`:
// half of it and a second in reserve, as file systems are slowest when all ranks save.
[[nodiscard]] TimeLeft::Seconds NeededForSave(TimeLeft::Seconds save);
// Whether that much time is left, or no end is known.
[[nodiscard]] bool SaveFits(const TimeLeft& left, TimeLeft::Seconds save);

}  // namespace gaccd
