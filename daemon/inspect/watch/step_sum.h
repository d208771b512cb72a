// Sums over updates: of their own lines, or of the lines "thinned" in place of them
// (thin_events.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "daemon/inspect/watch/event.h"

namespace gaccd {

struct Histogram {
  static constexpr std::array<double, 14> kBounds{0.05, 0.1, 0.2, 0.5, 1,  2,  5,
                                                  10,   15,  20,  30,  60, 90, 120};
  std::array<std::int64_t, kBounds.size()> below{};  // how many are at most so many seconds
  std::int64_t count = 0;
  double sum = 0;

  void Add(double seconds);
  Histogram& operator+=(const Histogram& more);
};

struct StepSum {
  std::int64_t first = 0;  // numbers of updates
  std::int64_t last = 0;
  std::int64_t updates = 0;
  std::int64_t on_target = 0;  // of them, those with as many samples as they were to have
  double samples = 0;
  double tokens = 0;
  double data_s = 0;  // of rank 0, as the next ones
  double fwd_bwd_s = 0;
  double reduce_s = 0;
  double opt_s = 0;
  double wait_s = 0;
  Histogram dur_s;
  std::map<std::string, std::int64_t, std::less<>> stragglers;  // updates, by host

  // Of an event "step" or "thinned"; updates 0 where it has no number from 1 to kMaxSteps.
  static StepSum Of(const Event& event);
  StepSum& operator+=(const StepSum& more);
  // A line "thinned" with all of this, and what all events have from `newest`, without a break.
  [[nodiscard]] std::string Line(const Event& newest) const;
};

// An update outside of 1 to this one comes from a damaged event, which must not ask for all memory.
inline constexpr std::int64_t kMaxSteps = 100'000'000;

}  // namespace gaccd
