// How long before the end of a job its ranks are signalled, so that they save in time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Of the attempts of a run. Seconds.
struct MeasuredTimes {
  double update_p99_s = 0;  // the largest of them
  double save_s = 0;        // of the longest save that succeeded; 0: there was none
};

// From the events of a run folder; nothing where there are none of an update.
[[nodiscard]] std::optional<MeasuredTimes> MeasureRun(const std::string& run_dir);

struct SignalLead {
  std::int64_t seconds = 0;  // 0: no signal
  std::string reason;        // for people, one line
  bool short_time = false;   // the time limit leaves less than what was measured asks for
};

inline constexpr std::int64_t kDefaultLead = 300;

// 2 x (update + save) + 60, at least 120: the update that runs must end and the save must fit, and
// both may be slower than before; kDefaultLead where nothing was measured. At most a quarter of the
// time limit; below 60 s, which is how early SLURM sends it besides, none: ranks look at the end of
// their job themselves. Pure.
[[nodiscard]] SignalLead LeadOf(const std::optional<MeasuredTimes>& times,
                                std::optional<std::int64_t> time_limit_s);

// A time limit as sbatch takes it, in seconds: "90" (minutes), "90:30", "24:00:00", "2-12",
// "2-12:30", "2-12:30:00". No value for "0", "UNLIMITED" and "INFINITE". kUsage for what is none.
[[nodiscard]] Result<std::optional<std::int64_t>> ParseTimeLimit(std::string_view text);

}  // namespace gaccd
