// How a run ends on one rank: with the same status as the others, or alone because some are lost.
#pragma once

#include <cstdint>
#include <utility>

#include "collectives/bootstrap/agree.h"
#include "daemon/launch/session.h"
#include "daemon/telemetry/events.h"
#include "daemon/train/run.h"

namespace gaccd {

// `shared`: all ranks have this same status, and `reporting_rank` prints it; otherwise the others
// may still be waiting for this rank.
struct RankStatus {
  RankStatus() = default;
  RankStatus(Status of_rank, bool of_all = true) : status(std::move(of_rank)), shared(of_all) {}
  RankStatus(Agreement all) : status(std::move(all.status)), reporting_rank(all.reporting_rank) {}

  Status status;
  bool shared = true;
  int reporting_rank = 0;
};

// A communicator has failed, or the heartbeat has found a rank lost: from then on no status is
// shared by all ranks.
[[nodiscard]] bool PeersAreLost(const Session& session);

// Facts beyond the message: the suspected ranks, from the heartbeat or else from the communicator
// whose deadline passed, and the collective that this rank was in. Both detect the end of a rank
// within milliseconds of each other: waits a moment for the heartbeat, which also knows the ranks
// that ended at the same time. memory_planned_bytes: of this rank, as far as it is known.
[[nodiscard]] FailureFacts FactsOf(const Status& outcome, const Session& session,
                                   std::int64_t memory_planned_bytes);

// Ends a verb on this rank. An error that all ranks share is printed by reporting_rank; on any
// other error this rank aborts all of them (Communicator::Abort), after the first living rank has
// had a moment to write the verdict.
RanksOutcome ExitRank(RankStatus rank_status, Session& session, const ErrorPrinter& print);

}  // namespace gaccd
