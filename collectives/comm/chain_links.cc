#include "collectives/comm/chain_links.h"

#include <utility>

namespace gaccd {

// First pairs 2k and 2k + 1, then 2k + 1 and 2k + 2. A rank whose pair fails takes part in the
// remaining splits and connections, so that no other rank waits for it.
Result<ChainLinks> MakeChainLinks(Communicator& chain) {
  ChainLinks links;
  Status failed;
  const int rank = chain.rank();
  for (const int parity : {0, 1}) {
    if (chain.size() < parity + 2) break;
    const bool lower = rank % 2 == parity;
    const int first = lower ? rank : rank - 1;
    const bool paired = first >= 0 && first + 1 < chain.size();
    for (const bool up : {true, false}) {
      GACCD_ASSIGN_OR_RETURN(auto pair, chain.Split(paired ? first : -1, rank));
      if (!paired) continue;
      const Status connected = pair->ConnectMessages();
      if (failed.ok()) failed = connected;
      if (up) {
        (lower ? links.up_to_after : links.up_from_before) = std::move(pair);
      } else {
        (lower ? links.down_from_after : links.down_to_before) = std::move(pair);
      }
    }
  }
  GACCD_RETURN_IF_ERROR(failed);
  return links;
}

}  // namespace gaccd
