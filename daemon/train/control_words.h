// ControlWords: the numbers of this rank that ride on the reduction of an update, and what the
// ranks learn from their sums: requests to stop, and which rank is slow.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/liveness/heartbeat/peer_watch.h"
#include "daemon/engine/engine.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/telemetry/events.h"
#include "daemon/train/in_flight.h"
#include "daemon/train/rank_times.h"

namespace gaccd {

class ControlWords {
 public:
  // `comm` outlives it.
  explicit ControlWords(const Communicator& comm)
      : comm_(comm), times_(comm.rank(), comm.size()), words_(kStopWordCount + times_.elements()) {}

  // As of the last Pack(); in the same memory always.
  [[nodiscard]] std::span<const double> words() const { return words_; }
  // Whether busy_s() is ever known: the ranks are 2 to RankTimes::kMaxRanks.
  [[nodiscard]] bool measures() const { return times_.elements() > 0; }
  // Just before the reduction. stops: null, nobody is asked to stop.
  void Pack(StopAgreement* stops, std::int64_t micro_steps, std::int64_t updates_in_flight);
  // From the result of `done`: notifies `stops` and `peers` (may be null), names the slow rank in
  // `record` and, when it has become slow, in a warning of rank 0.
  void Unpack(const UpdateInFlight& done, const UpdateResult& result, StopAgreement* stops,
              PeerWatch* peers, StepRecord* record);

  // What the ranks were busy for, in seconds by rank, in busy_update(); the same on all ranks. As
  // of the last Unpack(); empty: not known.
  [[nodiscard]] std::span<const double> busy_s() const { return times_.busy_s(); }
  [[nodiscard]] const Update& busy_update() const { return busy_update_; }

 private:
  const Communicator& comm_;
  RankTimes times_;
  std::vector<double> words_;  // kStopWordCount, then those of times_
  // The update of the times that are sent next, and of those on their way, the oldest first.
  Update timed_;
  std::deque<Update> sent_;
  Update busy_update_;
};

}  // namespace gaccd
