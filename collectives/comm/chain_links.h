// ChainLinks: communicators for messages in device memory between a rank and its neighbours, the
// ranks before and after it. Each pair of neighbours has one communicator of two ranks per
// direction:
//
//   rank r - 1   -- up -->   rank r   -- up -->   rank r + 1
//                <- down --           <- down --
//
// NCCL runs operations on one communicator one after the other, on whatever streams, and a message
// may wait for its receiver. With one communicator for both directions, two neighbours that both
// send would wait for each other. With one for both neighbours, a receive from the rank before
// would delay messages to the rank after. With one per direction, each with its own stream, a
// message waits only for its memory and for earlier messages in the same direction. All are
// connected (ConnectMessages()), so no rank blocks on the host in its first message.
#pragma once

#include <memory>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Null if there is no such neighbour. The lower of two neighbours is rank 0 in both communicators.
struct ChainLinks {
  std::unique_ptr<Communicator> up_from_before;
  std::unique_ptr<Communicator> up_to_after;
  std::unique_ptr<Communicator> down_from_after;
  std::unique_ptr<Communicator> down_to_before;
};

// Collective over `chain`; consecutive ranks are neighbours.
[[nodiscard]] Result<ChainLinks> MakeChainLinks(Communicator& chain);

}  // namespace gaccd
