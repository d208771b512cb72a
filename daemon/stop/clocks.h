// Clocks: the wall clocks of the ranks, compared once at the start. Training never waits by a wall
// clock: the end of the job is converted to a deadline of the steady clock, so later changes of a
// clock have no effect.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

class Clocks {
 public:
  using Steady = std::chrono::steady_clock;
  using WallClock = std::function<double()>;  // seconds since 1970

  static constexpr double kMaxAheadS = 5;

  // Collective. Every rank reads its clock in each of three rounds; no rank begins a round before
  // all have ended the previous one. So the difference of two clocks is known up to the duration of
  // two rounds; the shortest ones count.
  static Result<Clocks> Compare(Communicator& comm, const WallClock& wall);
  [[nodiscard]] static double SystemSeconds();

  // By rank: this clock minus the (lower) median of all clocks, in seconds. 0 if the difference is
  // at most kMaxAheadS or not certain.
  [[nodiscard]] const std::vector<double>& ahead_s() const { return ahead_s_; }

  // "the clock of rank 3 on n2 is 3600 s ahead of most ranks'; ...". Empty: all clocks agree.
  // hosts: by rank.
  [[nodiscard]] std::string Warning(std::span<const std::string> hosts) const;

  // The time on the steady clock that corresponds to time_s (seconds since 1970) on the median
  // clock.
  [[nodiscard]] Steady::time_point Deadline(std::int64_t time_s) const;

 private:
  Clocks() = default;

  std::vector<double> ahead_s_;
  // The same point in time on the steady clock of this rank and on the median wall clock.
  Steady::time_point steady_;
  double wall_s_ = 0;
};

}  // namespace gaccd
