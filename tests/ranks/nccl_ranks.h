// Ranks as threads with a NCCL communicator each, over the stand-ins of the GPU and of NCCL.
#pragma once

#include <functional>

#include "collectives/comm/nccl_comm.h"
#include "collectives/comm/threads.h"
#include "tests/standin/nccl/nccl_standin.h"
#include "tests/standin/standin.h"

namespace gaccd::tests {

// A new machine with so many GPUs, and a new NCCL.
inline void ResetGpus(int gpus, const standin::NcclKnobs& knobs = {}) {
  standin::ResetNccl();
  standin::Reset({.devices = gpus});
  standin::ResetNccl(knobs);
}

struct NcclRanks {
  ThreadGroupOptions group;
  NcclOptions nccl;  // device is set to the rank, api to the stand-in
};

// Runs body(nccl, host) once a rank.
inline Status RunNcclRanks(int ranks, const NcclRanks& options,
                           const std::function<Status(Communicator&, Communicator&)>& body) {
  return RunThreadRanks(ranks, options.group, [&](Communicator& over) -> Status {
    NcclOptions nccl = options.nccl;
    nccl.device = over.rank();
    nccl.api = StandInNccl();
    GACCD_ASSIGN_OR_RETURN(const auto comm, MakeNccl(over, nccl));
    GACCD_RETURN_IF_ERROR(body(*comm, over));
    // Nobody leaves before all are done: the end of a rank is an error to the others.
    return over.Barrier();
  });
}

}  // namespace gaccd::tests
