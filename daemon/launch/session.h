// Session: one rank connected to the others, shared by the verbs train, eval and predict.
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
#include "daemon/launch/launch.h"

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

}  // namespace gaccd
