// The wall clocks of the ranks, compared once at the start. Nothing in training waits by a wall
// clock: the end of the job becomes a deadline of the steady clock here, so that a clock that is
// set later moves nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
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

  // Collective. Every rank reads its clock in each of three rounds, and none begins a round before
  // all have ended the one before: what two clocks differ by is known to the duration of two
  // rounds, of which the shortest counts.
  static Result<Clocks> Compare(Communicator& comm, const WallClock& wall);
  [[nodiscard]] static double SystemSeconds();

  // By rank: this clock minus the median of all clocks (of an even number the lower middle one), in
  // seconds. 0 where it differs by at most kMaxAheadS, and what is not known for sure.
  [[nodiscard]] const std::vector<double>& ahead_s() const { return ahead_s_; }

  // "the clock of rank 3 on n2 is 3600 s ahead of most ranks'; ...". Empty: no rank has another
  // time. hosts: by rank.
  [[nodiscard]] std::string Warning(std::span<const std::string> hosts) const;

  // When the steady clock reaches that time (seconds since 1970) of the median clock.
  [[nodiscard]] Steady::time_point Deadline(std::int64_t time_s) const;

 private:
  Clocks() = default;

  std::vector<double> ahead_s_;
  // One moment of this rank, by the steady clock and by the median wall clock.
  Steady::time_point steady_;
  double wall_s_ = 0;
};

}  // namespace gaccd
