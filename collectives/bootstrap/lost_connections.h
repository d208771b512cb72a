// What Open MPI does when the connection to another rank is closed.
#pragma once

namespace gaccd {

// Open MPI 5 ends this process as soon as a TCP connection to a lost rank is closed: with exit code
// 14, without a word, and before anybody has found out which rank was lost. From now on such an
// error is ignored, as Open MPI 4 does: the operations with that rank do not complete, and the
// heartbeat names it. No effect on other MPIs, and none where libmpi is linked with
// -Bsymbolic-functions.
void IgnoreLostConnections();

}  // namespace gaccd
