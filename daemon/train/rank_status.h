// How a run ends on one rank: together with the others, or alone because some of them are lost.
#pragma once

#include "collectives/bootstrap/agree.h"
#include "daemon/telemetry/events.h"
#include "daemon/train/run.h"
#include "daemon/train/session.h"

namespace gaccd {

// `shared`: all ranks have this same status, and `reporting_rank` prints it; otherwise the others
// may still be waiting for this rank.
struct RankStatus {
  Status status;
  bool shared = true;
  int reporting_rank = 0;
};

[[nodiscard]] RankStatus SharedStatus(Agreement agreement);

// A communicator has failed, or the heartbeat has found a rank lost: from then on nothing is shared
// by all ranks, whatever this rank received.
[[nodiscard]] bool PeersAreLost(const Session& session);

// What is known beyond the message: who is to blame, by the heartbeat or else by the communicator
// whose deadline passed, and in which collective this rank was. Of a rank that ended, both learn
// within milliseconds of each other: waits a moment for the heartbeat, which also knows who ended
// together with it.
[[nodiscard]] FailureFacts FactsOf(const Status& outcome, const Session& session);

// The end of a verb on this rank. An error that all ranks share is printed by one of them; for any
// other, this rank ends them all (Communicator::Abort), but leaves the first of the living ranks a
// moment to write the verdict.
RanksOutcome ExitRank(RankStatus rank_status, Session& session, const ErrorPrinter& print);

}  // namespace gaccd
