// Ranks as threads of one process: for tests, and for the selftest that runs 240 ranks at once.
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
  // In place of it, by rank: "node2" is that of every rank with a 2 here. Empty: ranks_per_node.
  std::vector<int> node_of = {};
};

// Runs `body` once a rank, each on its own thread with its own Communicator, and joins all of them.
//
// Returns the first error by time, with its rank. A rank whose body fails, calls Abort() or ends
// while another waits for it, ends every operation of the other ranks at once, with its number in
// their message. Different calls at one meeting (operation, type, counts, root) are kInternal and
// name both. Results of reductions are bit-identical on all ranks and from run to run, whatever
// the order in which the threads run (collectives/comm/sum.h). The body is called concurrently and
// must outlive nothing: all threads have ended when this returns. They get no signals of the
// process (base/thread.h).
[[nodiscard]] Status RunThreadRanks(int ranks, const ThreadGroupOptions& options,
                                    const std::function<Status(Communicator&)>& body);

}  // namespace gaccd
