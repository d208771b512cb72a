// Sums over updates, from lines "step", or from lines "thinned" that replace them (ThinEvents()).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "daemon/inspect/watch/event.h"

namespace gaccd {

struct Histogram {
  static constexpr std::array<double, 14> kBounds{0.05, 0.1, 0.2, 0.5, 1,  2,  5,
                                                  10,   15,  20,  30,  60, 90, 120};
  std::array<std::int64_t, kBounds.size()>
      below{};  // number of values up to each bound, in seconds
  std::int64_t count = 0;
  double sum = 0;

  void Add(double seconds);
  Histogram& operator+=(const Histogram& more);
};

struct StepSum {
  std::int64_t first = 0;  // number of the first and last update
  std::int64_t last = 0;
  std::int64_t updates = 0;
  std::int64_t on_target = 0;  // updates with exactly the planned number of samples
  double samples = 0;
  double tokens = 0;
  double data_s = 0;  // times of rank 0
  double fwd_bwd_s = 0;
  double reduce_s = 0;
  double opt_s = 0;
  double wait_s = 0;
  Histogram dur_s;
  std::map<std::string, std::int64_t, std::less<>> stragglers;  // updates, by host

  // From an event "step" or "thinned"; updates is 0 unless it has a number from 1 to kMaxSteps.
  static StepSum FromEvent(const Event& event);
  StepSum& operator+=(const StepSum& more);
  // A line "thinned" with this sum and the common keys of `newest`, without line break.
  [[nodiscard]] std::string Line(const Event& newest) const;
};

// The largest valid number of an update. Larger ones are from damaged events and would need too
// much memory.
inline constexpr std::int64_t kMaxSteps = 100'000'000;

}  // namespace gaccd
