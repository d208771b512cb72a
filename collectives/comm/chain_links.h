// ChainLinks: how a rank exchanges messages in device memory with its neighbours, the ranks before
// and after it. There is a communicator of two ranks for each direction between two neighbours:
//
//   rank r - 1   -- up -->   rank r   -- up -->   rank r + 1
//                <- down --           <- down --
//
// What a rank enqueues on one communicator of NCCL runs one after the other, on whatever streams,
// and a message may wait for its other side. So on one communicator for both directions a rank that
// sends waits for a neighbour whose own sending waits for this rank; and on one for both neighbours
// a receive that waits for the rank before holds up what the rank after could have by now. With one
// for each direction, each with a stream of its own, a message waits for nothing but its memory and
// those before it in the same direction. All are connected (ConnectMessages()): no rank waits on
// the host for the first message of another one, as two that both send first would.
#pragma once

#include <memory>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Null where there is no such neighbour. The lower one of two neighbours is rank 0 of both.
struct ChainLinks {
  std::unique_ptr<Communicator> up_from_before;
  std::unique_ptr<Communicator> up_to_after;
  std::unique_ptr<Communicator> down_from_after;
  std::unique_ptr<Communicator> down_to_before;
};

// Collective over `chain`, whose ranks are neighbours in their order.
[[nodiscard]] Result<ChainLinks> MakeChainLinks(Communicator& chain);

}  // namespace gaccd
