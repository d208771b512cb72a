// ControlWords: values of this rank that are summed with the gradients of an update, and what the
// ranks derive from the sums: stop requests, and which rank is slow.
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
#include "daemon/train/batch_feed.h"
#include "daemon/train/rank_times.h"
#include "daemon/train/update.h"

namespace gaccd {

class ControlWords {
 public:
  // `comm` must outlive it.
  explicit ControlWords(const Communicator& comm)
      : comm_(comm), times_(comm.rank(), comm.size()), words_(kStopWordCount + times_.elements()) {}

  // Values of the last Pack(); always in the same memory.
  [[nodiscard]] std::span<const double> words() const { return words_; }
  // Whether busy_s() can ever be known: for 2 to RankTimes::kMaxRanks ranks.
  [[nodiscard]] bool measures() const { return times_.elements() > 0; }
  // Call just before the reduction. stops: null: no stop requests.
  void Pack(StopAgreement* stops, std::int64_t micro_steps, std::int64_t updates_in_flight);
  // Evaluates the result of `done`: notifies `stops` and `peers` (may be null), stores the slow
  // rank in `record` and, when it becomes slow, logs a warning on rank 0. feed: has the plan of
  // every update; null: all ranks have equal loads.
  void Unpack(const UpdateInFlight& done, const UpdateResult& result, const BatchFeed* feed,
              StopAgreement* stops, PeerWatch* peers, StepRecord* record);

  // Busy time in seconds, by rank, in busy_update(); the same on all ranks. From the last Unpack();
  // empty: not known.
  [[nodiscard]] std::span<const double> busy_s() const { return times_.busy_s(); }
  [[nodiscard]] const Update& busy_update() const { return busy_update_; }

 private:
  const Communicator& comm_;
  RankTimes times_;
  std::vector<double> words_;  // kStopWordCount words, then those of times_
  // The update whose times are sent next; updates whose sums have not returned yet, oldest first.
  Update timed_;
  std::deque<Update> sent_;
  Update busy_update_;
};

}  // namespace gaccd
