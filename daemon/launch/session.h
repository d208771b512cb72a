// Session: one rank among the others, as the verbs train, eval and predict share it.
#pragma once

#include <memory>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/heartbeat/peer_watch.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/engine/engine.h"
#include "daemon/launch/device_choice.h"
#include "daemon/launch/dnn_choice.h"
#include "daemon/launch/launch.h"

namespace gaccd {

// Members are freed from the last to the first. It outlives the errors: what GPUs and network still
// hold may hang when it is freed, so a rank that was left alone ends before that.
struct Session {
  // Finds the other ranks and begins to watch them.
  static Result<Session> Join(const Flags& flags);

  // Checks that all ranks have the same binary, job and flags. Collective.
  Status CheckAllTheSame(const Flags& flags, const Job& job);
  // Selects the device of each rank and the communicator between GPUs. Collective; the same result
  // on every rank.
  Status SelectDevice(const Flags& flags, const Job& job);
  // Without timing of algorithms. REQUIRES: SelectDevice().
  [[nodiscard]] EngineChoice MakeEngineChoice(const Flags& flags) const;
  // Reduces gradients, of several GPUs or else of CPUs.
  [[nodiscard]] Communicator& device_comm() { return between_gpus ? *between_gpus : comm; }

  Ranks ranks;
  Communicator& comm = *ranks.comm;
  std::unique_ptr<PeerWatch> peers = {};
  std::unique_ptr<Communicator> between_gpus = {};  // several ranks on GPUs; over `comm`
  DeviceChoice device = {};
  DnnChoice dnn = {};     // on GPUs
  std::string bf16 = {};  // on CPUs: what computes it, for people
};

}  // namespace gaccd
