// How a run ends on one rank: with the same status as the others, or alone because some are lost.
#pragma once

#include <cstdint>
#include <utility>

#include "collectives/bootstrap/agree.h"
#include "daemon/launch/session.h"
#include "daemon/launch/verb_outcome.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

// shared: all ranks have the same status, and `reporting_rank` prints it; otherwise the others may
// still be waiting for this rank.
struct RankStatus {
  RankStatus() = default;
  RankStatus(Status of_rank, bool of_all = true) : status(std::move(of_rank)), shared(of_all) {}
  RankStatus(Agreement all) : status(std::move(all.status)), reporting_rank(all.reporting_rank) {}

  Status status;
  bool shared = true;
  int reporting_rank = 0;
};

// Whether a communicator has failed, or the heartbeat has found a rank lost: then no status is
// shared by all ranks any more.
[[nodiscard]] bool PeersAreLost(const Session& session);

// Facts for the report of a failure: the suspected ranks, from the heartbeat or otherwise from the
// communicator whose deadline passed, and the collective that this rank was in. Heartbeat and
// communicator detect the end of a rank within milliseconds of each other, so this waits shortly
// for the heartbeat, which also knows ranks that ended at the same time. memory_planned_bytes: of
// this rank, if known.
[[nodiscard]] FailureFacts CollectFacts(const Status& outcome, const Session& session,
                                        std::int64_t memory_planned_bytes);

// Ends a verb on this rank. A shared error is printed by reporting_rank; on any other error this
// rank aborts all ranks (Communicator::Abort), after giving the first living rank time to write the
// verdict.
VerbOutcome ExitRank(RankStatus rank_status, Session& session, const ErrorPrinter& print);

}  // namespace gaccd
