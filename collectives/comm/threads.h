// Ranks as threads of one process: for tests, and for the selftest that runs 240 ranks.
#pragma once

#include <functional>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct ThreadGroupOptions {
  CommOptions comm;
  // Ranks [0, n) are on "node0", [n, 2n) on "node1", ...; 0: all on "node0".
  int ranks_per_node = 0;
  // Overrides ranks_per_node: the node of each rank; 2 means "node2". Empty: ranks_per_node.
  std::vector<int> node_of = {};
};

// Runs `body` once per rank, each on its own thread with its own Communicator, and joins all
// threads.
//
// Returns the first error in time, with its rank. If the body of a rank fails, calls Abort() or
// returns while another rank waits for it, all operations of the other ranks end at once, with the
// number of that rank in their message. Different calls at one barrier (operation, type, counts,
// root) are kInternal, with both calls. Reductions are bit-identical on all ranks and from run to
// run, whatever the scheduling of the threads (collectives/comm/sum.h). The body is called
// concurrently; all threads have ended when this returns. They receive no signals of the process
// (base/thread.h).
[[nodiscard]] Status RunThreadRanks(int ranks, const ThreadGroupOptions& options,
                                    const std::function<Status(Communicator&)>& body);

}  // namespace gaccd
