// Decides what to do with a job after an attempt: requeue it or not. Used by the job script after
// srun; also if rank 0 died and no verdict was written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// Maps an exit code to the next step of the job. The only such mapping, used for verdict.json, the
// last event, the ledger and `gaccd verdict`. Pure; thread-safe.
enum class NextStep : std::uint8_t { kDone, kRequeue, kNoRequeue, kFail };
[[nodiscard]] std::string_view Name(NextStep next);  // "done", "requeue", "norequeue", "fail"

inline constexpr int kSignalExit = 128;       // + the signal, as in a shell
inline constexpr int kOutOfMemoryExit = 253;  // of srun

// Whether an exit code means that a signal ended the process.
[[nodiscard]] constexpr bool IsSignalExit(int code) {
  return code > kSignalExit && code <= kSignalExit + 64;
}

//   exit code                                    next step
//   0                                            done
//   75 tempfail, 69 a peer is lost               requeue
//   71 the system or srun refused                requeue
//   128+n, killed or crashed                     requeue
//   93, 130: Ctrl-C twice, or killed by SIGINT   norequeue
//   253 out of memory, all others                fail
[[nodiscard]] NextStep SelectNextStep(int code);

// A rank that was killed by SIGKILL or by the kernel for its memory.
struct KilledRank {
  std::int64_t step = 0;          // updates done
  std::int64_t memory_bytes = 0;  // at its last sign of life; 0: not known
};

// The content of verdict.json, written by rank 0.
struct WrittenVerdict {
  int exit = 0;
  std::string reason;
  std::string suspect_hosts;  // "n3,n7"
  std::optional<KilledRank> killed = {};
};

// The last STATUS.json of an attempt without a verdict.
struct LastStatus {
  std::string state;  // "running"
  std::string host;   // of rank 0
  std::int64_t step = 0;
};

// The update of the newest checkpoint; -1: none.
struct CommittedStep {
  std::int64_t step = -1;
  std::int64_t micro_step = 0;
  friend auto operator<=>(const CommittedStep&, const CommittedStep&) = default;
};

// One line of <run>/ledger.jsonl: a finished attempt.
struct LedgerEntry {
  std::string attempt;  // name of its folder, "001-8123456"
  std::string started;  // RFC 3339; empty: not known
  std::string ended;
  CommittedStep first;  // at its start
  CommittedStep last;   // at its end
  int exit = 0;
  NextStep next = NextStep::kFail;
  std::string reason;
  std::string suspect_hosts;
  std::optional<KilledRank> killed = {};
};

struct AttemptFacts {
  std::optional<int> srun_rc;  // empty: the job script was lost before srun returned
  std::optional<WrittenVerdict> written;
  std::optional<LastStatus> sign;
  std::string srun_errors = {};  // SrunErrors()
  std::string rank_error = {};   // without a verdict: the error of a rank, or where its output is
  bool stop_file = false;
  bool done_file = false;
  bool done_is_older = false;       // the file DONE is from before this attempt
  std::vector<LedgerEntry> before;  // earlier attempts, oldest first
  CommittedStep committed;          // now
};

struct AttemptJudgement {
  NextStep next = NextStep::kFail;
  int exit = 0;        // the resulting exit code: that of the rank that failed first
  bool held = false;   // kNoRequeue, because restarts have not helped
  std::string reason;  // one line
  std::string suspect_hosts;
};

// Consecutive restarts without a new checkpoint after which the run is held.
inline constexpr int kMaxIdleRestarts = 3;

// Pure.
//   attempt                                      next step
//   any exit code                                SelectNextStep(code), but:
//   with the file DONE                           done; fail if SelectNextStep(code) is fail and
//                                                verdict.json is missing: the run rejected the job
//   with a file DONE from before the attempt     SelectNextStep(code): more epochs were requested
//   0 without verdict.json and without DONE      requeue: srun 22.05 returns 0 if a launch fails
//   none, and no verdict.json                    requeue: the node of the job script died
//   any but done, with the file STOP             norequeue
//   requeue, the third restart in a row without a new checkpoint: norequeue, held
// The code is that of verdict.json; that of srun if there is none, or if rank 0 only saw a peer
// lost (69) while that peer recorded why it exited (64 to 93) or was killed for its memory (253).
// Memory is not the fault of a host: then no host is suspected. No host is suspected either if a
// rank was killed at the same update (within one) and with the same memory (within a tenth) as in
// the previous attempt: the job itself is then too large.
[[nodiscard]] AttemptJudgement JudgeAttempt(const AttemptFacts& facts);

// Extracts why ranks ended from stderr of srun and the ranks (<attempt>/srun.err, rank/r*.err).

// "n2: task 3: Killed; n3: task 5: Out Of Memory": from the lines "srun: error: n2: task 3: Killed"
// up to "Job step aborted", after which srun itself kills the ranks. Omits ranks that exited by
// themselves ("Exited with exit code 69"), as they report the reason. At most four. Empty: none.
[[nodiscard]] std::string SrunErrors(std::string_view text);
// SrunErrors() of <attempt>/srun.err.
[[nodiscard]] std::string ReadSrunErrors(const std::string& attempt_dir);

// "rank 5 on n2: error (data, exit 65): labels": the first final error of gaccd, without the
// program name. Empty: none.
[[nodiscard]] std::string GaccdError(std::string_view text);

}  // namespace gaccd
