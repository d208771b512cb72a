// --local-ranks=N: runs the ranks of a verb on this machine with Open MPI's mpirun.
//
// mpirun kills its ranks one second after its first SIGINT or SIGTERM (later with the MCA parameter
// odls_base_sigkill_timeout, but then the ranks get the signal only at that time); that of Open MPI
// 5 after half a second, without a parameter. So it is started with these signals blocked and
// passes none to the ranks; this process, which gets the signals of the terminal, timeout and the
// shell, sends them to the ranks itself, which then have the time that they need.
#pragma once

#include "collectives/base/environment.h"
#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Set for ranks that were started by this program.
inline constexpr const char* kLocalRanksVariable = "GACCD_LOCAL_RANKS";

// Whether this process starts the ranks instead of being one. False for a verb that does not run on
// ranks: it ignores the flag, from a flag file or a command line of train.
[[nodiscard]] bool StartsLocalRanks(const Flags& flags, const Environment& environment);

// Runs argv again as N ranks and waits for them. Returns the exit code of the rank that failed
// first; if one was killed by a signal, that of the verdict in the run folder, or 128 + the signal
// without a verdict. kUsage if a launcher or a SLURM job has started this process; kUnavailable if
// mpirun is not installed or fails. REQUIRES: flags.local_ranks; this process has no threads and
// does nothing afterwards.
Result<int> RunLocalRanks(const Flags& flags, char* const* argv, const Environment& environment);

}  // namespace gaccd
