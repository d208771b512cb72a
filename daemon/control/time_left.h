// How long this process may still run, and whether a save fits into that. Pure functions.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>

namespace gaccd {

struct TimeLeft {
  using Seconds = std::chrono::duration<double>;

  // SLURM_JOB_END_TIME minus now; none outside SLURM or without a limit.
  std::optional<Seconds> job;
  // What is left of the grace after SIGTERM: SLURM's KillWait is 30 s, a partition's GraceTime may
  // be less; --term-budget says what is counted on. None before SIGTERM: other signals announce an
  // end that SLURM_JOB_END_TIME knows.
  std::optional<Seconds> grace;

  // The smaller of both; none: no end is known.
  [[nodiscard]] std::optional<Seconds> least() const;
};

// end_time: seconds since 1970, from the environment; now: the same clock. since_signal: since the
// stop signal came, 0 if none did.
TimeLeft FindTimeLeft(std::optional<std::int64_t> job_end_time, double now, int stop_signal,
                      TimeLeft::Seconds since_signal, TimeLeft::Seconds term_budget);

// A save that took `save` the last time (or is expected to) should be begun: there is time for it,
// with half of it and a second in reserve, as file systems are slowest when everybody saves.
[[nodiscard]] bool SaveFits(const TimeLeft& left, TimeLeft::Seconds save);

}  // namespace gaccd
