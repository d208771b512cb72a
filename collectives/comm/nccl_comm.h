// The communicator between GPUs: NCCL, with its id exchanged over another communicator.
#pragma once

#include <memory>

#include "collectives/comm/communicator.h"

namespace gaccd {

// Collective over `over`, one rank per GPU; `device` is this rank's GPU on its node. Takes buffers
// with MemoryKind::kCuda and enqueues on the stream that is passed in. kUnavailable when gaccd was
// built without NCCL: nothing is replaced by a slower way in silence.
Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, int device,
                                               const CommOptions& options);

}  // namespace gaccd
