// --local-ranks=N: the ranks of a verb on this machine, started by Open MPI's mpirun.
//
// mpirun ends its ranks one second after its first SIGINT or SIGTERM (with the MCA parameter
// odls_base_sigkill_timeout later, but then the ranks hear of it only then). So it is started with
// these signals blocked, which it passes to no rank, and this process, which the terminal, timeout
// and the shell signal, sends them to the ranks itself: they have the time that they need.
#pragma once

#include <cstdint>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// The variable by which a rank knows that this program started it.
inline constexpr const char* kLocalRanksVariable = "GACCD_LOCAL_RANKS";

// Whether this process is to start the ranks and is not one of them. False for a verb that is not
// started on ranks: it ignores the flag, of a flag file or of a command line of train.
[[nodiscard]] bool StartsLocalRanks(const Flags& flags, const Environment& environment);

// Runs argv once more as N ranks and waits for them. Their exit code: that of the rank that failed
// first; where one was ended by a signal, that of the verdict in the run folder, 128 + the signal
// where there is none. kUsage where a launcher or a SLURM job has
// started this process; kUnavailable where mpirun is not installed or does not start the ranks.
// REQUIRES: flags.local_ranks; this process has no threads; the last thing it does.
Result<int> RunLocalRanks(const Flags& flags, char* const* argv, const Environment& environment);

}  // namespace gaccd
