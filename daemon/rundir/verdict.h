// Makes the content of verdict.json from the result of a training.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/run_status.h"

namespace gaccd {

// <attempt>/crash/r00017.json
[[nodiscard]] std::string CrashPath(const std::string& attempt_dir, int rank);

// Whether a rank with this result writes a crash record: not if it was stopped or if all ranks
// decided together.
[[nodiscard]] bool IsFailure(const Status& outcome);

// The next step follows from the exit code (attempt_verdict.h).
//
// After a failure, reads the crash records of the suspects, or otherwise of the ranks that gave up
// (waits for these shortly). A rank that exited because of others is not the cause: the ranks named
// in its record are. The first record is the cause: the reason includes it, and if this rank only
// saw others lost (69), its exit code is used. Its host is a suspect unless the program itself
// failed there for a reason that is not the machine's (bad data, bad job, a bug). If all ranks of a
// node are lost without a record, the node is named. attempt_dir empty: no records.
[[nodiscard]] Verdict MakeVerdict(const Status& outcome, const FailureFacts& facts,
                                  const std::string& attempt_dir);

// Called by a rank that found rank 0 lost: waits 20 ms per lower rank, at most half a second, so
// that on a large run not all ranks access the file server at once. false: another rank has written
// the verdict.
[[nodiscard]] bool ShouldWriteVerdictForRankZero(const std::string& attempt_dir, int rank);

// Called by a rank that replaces rank 0, the only one that sees all others: adds the ranks named in
// their records, unless these ranks have their own records. Reads for at most 0.7 s, as the end of
// a run after a loss has 3 s.
void AddRanksLostByPeers(const std::string& attempt_dir, FailureFacts* facts);

[[nodiscard]] bool Suspects(const FailureFacts& facts, int rank);

// Writes <attempt>/verdict.json, durably. Returns true if another rank has already written it,
// which is kept.
Result<bool> WriteVerdictOnce(const std::string& attempt_dir, const RunIdentity& who,
                              const Verdict& verdict, unsigned mode);

// Called after ShouldWriteVerdictForRankZero(): writes verdict.json and the last STATUS.json,
// unless another rank was faster. who: this rank; last: its knowledge of the run, with the host of
// rank 0.
Status WriteVerdictForRankZero(const std::string& attempt_dir, const RunIdentity& who,
                               RunStatus last, const Verdict& verdict, unsigned mode);

}  // namespace gaccd
