// Computes how long before the end of a job its ranks are signalled, so that they have time to
// save.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Times of earlier attempts of a run, in seconds.
struct MeasuredTimes {
  double update_p99_s = 0;  // the maximum over the attempts
  double save_s = 0;        // of the longest successful save; 0: none
};

// Reads the events of a run folder; empty if there are none of an update.
[[nodiscard]] std::optional<MeasuredTimes> MeasureRun(const std::string& run_dir);

struct SignalLead {
  std::int64_t seconds = 0;  // 0: no signal
  std::string reason;        // for users, one line
  bool short_time = false;   // the time limit is too short for the measured times
};

inline constexpr std::int64_t kDefaultLead = 300;

// 2 x (update + save) + 60, from 120 to 65535 (SLURM's limit): the current update must end and the
// save must fit, and both may be slower than before; kDefaultLead without measurements. At most a
// quarter of the time limit; if that is below 60 s, the inaccuracy of SLURM, no signal is sent:
// ranks watch the end of their job themselves. Pure.
[[nodiscard]] SignalLead ComputeLead(const std::optional<MeasuredTimes>& times,
                                     std::optional<std::int64_t> time_limit_s);

// A time limit in sbatch's format, in seconds: "90" (minutes), "90:30", "24:00:00", "2-12",
// "2-12:30", "2-12:30:00". Empty for "0", "0:0", "UNLIMITED", "INFINITE". kUsage if invalid.
[[nodiscard]] Result<std::optional<std::int64_t>> ParseTimeLimit(std::string_view text);

}  // namespace gaccd
