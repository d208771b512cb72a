// How long this process may still run, and whether a save fits into that. Pure functions.
#pragma once

#include <chrono>
#include <optional>

namespace gaccd {

struct TimeLeft {
  using Seconds = std::chrono::duration<double>;

  // Until SLURM_JOB_END_TIME; none outside SLURM or without a limit.
  std::optional<Seconds> job;
  // What is left of the grace after SIGTERM: SLURM's KillWait is 30 s, a partition's GraceTime may
  // be less; --term-budget says what is counted on. None before SIGTERM: other signals announce an
  // end that SLURM_JOB_END_TIME knows.
  std::optional<Seconds> grace;

  // The smaller of both; none: no end is known.
  [[nodiscard]] std::optional<Seconds> least() const;
};

// job_end: SLURM_JOB_END_TIME by the steady clock, which nobody sets. since_term: since the first
// SIGTERM; none came: empty.
TimeLeft FindTimeLeft(std::optional<std::chrono::steady_clock::time_point> job_end,
                      std::chrono::steady_clock::time_point now,
                      std::optional<TimeLeft::Seconds> since_term, TimeLeft::Seconds term_budget);

// What should be left when a save begins that took `save` the last time (or is expected to): half
// of it and a second in reserve, as file systems are slowest when everybody saves.
[[nodiscard]] TimeLeft::Seconds NeededForSave(TimeLeft::Seconds save);
// There is as much left, or no end is known.
[[nodiscard]] bool SaveFits(const TimeLeft& left, TimeLeft::Seconds save);

}  // namespace gaccd
