// Session: one rank connected to the others, shared by the verbs train, eval and predict, and how a
// run ends on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "collectives/base/result.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/heartbeat/peer_watch.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/config/verb.h"
#include "daemon/engine/engine.h"
#include "daemon/launch/device_choice.h"
#include "daemon/launch/launch.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

// Members are destroyed from the last to the first. It outlives errors: destroying GPU and network
// resources may hang, so a rank that lost its peers exits before that.
struct Session {
  // Connects to the other ranks and begins to watch them.
  static Result<Session> Join(const Flags& flags);

  // Checks that all ranks have the same binary, job and flags. Collective.
  Status CheckAllTheSame(const Flags& flags, const Job& job);
  // Selects the device of each rank and the communicator between GPUs. Collective; the same result
  // on every rank.
  Status SelectDevice(const Flags& flags, const Job& job);
  // Without timing of algorithms. REQUIRES: SelectDevice().
  [[nodiscard]] EngineChoice MakeEngineChoice(const Flags& flags) const;
  // Reduces gradients: between GPUs if there are several, otherwise on CPUs.
  [[nodiscard]] Communicator& device_comm() { return between_gpus ? *between_gpus : comm; }

  Ranks ranks;
  Communicator& comm = *ranks.comm;
  std::unique_ptr<PeerWatch> peers = {};
  std::unique_ptr<Communicator> between_gpus = {};  // set for several ranks on GPUs; over `comm`
  DeviceChoice device = {};
  DnnChoice dnn = {};     // for GPUs
  std::string bf16 = {};  // for CPUs: text for users with the bf16 instructions
};

// How a run ends on one rank: with the same status as the others, or alone because some are lost.

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
