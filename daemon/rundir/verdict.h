// From how training ended to what verdict.json says.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/run_status.h"

namespace gaccd {

// <attempt>/crash/r00017.json
[[nodiscard]] std::string CrashPath(const std::string& attempt_dir, int rank);

// Whether a rank that ends like this leaves a crash record: not when it was stopped, and not when
// all ranks decided so together.
[[nodiscard]] bool IsFailure(const Status& outcome);

// The verdict is that of the exit code (next_step.h).
//
// After a failure it looks for the records of the suspects, or else of those who gave up (waits for
// these a moment). A rank that exited because of others is not to blame: the ranks in its record
// are. What the first one left has said is the cause: the reason has it, and where this rank only
// saw others lost (69), the exit code is that one's. Its host stays a suspect unless the program
// itself gave up there, for a reason that is not the machine's (bad data, bad job, a bug). Where
// all ranks of a node are lost without a record, the node is named. attempt_dir empty: no records.
[[nodiscard]] Verdict MakeVerdict(const Status& outcome, const FailureFacts& facts,
                                  const std::string& attempt_dir);

// By a rank that stands in for rank 0, the only one that sees all others: whom their records name,
// as far as these ranks left no record of their own.
void AddLostSeenByOthers(const std::string& attempt_dir, FailureFacts* facts);

[[nodiscard]] bool Suspects(const FailureFacts& facts, int rank);

// <attempt>/verdict.json, down to the disk. true: another rank has written it, that one stays.
Result<bool> WriteVerdictOnce(const std::string& attempt_dir, const RunIdentity& who,
                              const Verdict& verdict, unsigned mode);

// By a rank that has learned that rank 0 is lost: verdict.json and the last STATUS.json, unless
// another one was faster. Waits 20 ms a rank before it, half a second at most, so that on a large
// run not all of them come to the file server at once. `who`: this rank; `last`: what it knows of
// the run, with the host of rank 0.
Status WriteVerdictForRankZero(const std::string& attempt_dir, const RunIdentity& who,
                               RunStatus last, const Verdict& verdict, unsigned mode);

}  // namespace gaccd
