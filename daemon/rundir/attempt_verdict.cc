#include "daemon/rundir/attempt_verdict.h"

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {

namespace {

constexpr int kScriptLost = kSignalExit + SIGKILL;  // the most likely exit code of srun

bool Is(int code, ErrorKind kind) { return code == static_cast<int>(kind); }

std::string CodeText(int code) {
  if (IsSignalExit(code)) {
    const char* const name = sigabbrev_np(code - kSignalExit);
    if (name != nullptr) return StrCat(code, " (SIG", name, ")");
  }
  if (code == kOutOfMemoryExit) return StrCat(code, " (out of memory)");
  return std::to_string(code);
}

// Whether another rank recorded why it exited, or SLURM why it killed one, while rank 0 only saw
// the disconnect.
bool PeerHasCause(const WrittenVerdict& written, std::optional<int> srun_rc) {
  if (!srun_rc || !Is(written.exit, ErrorKind::kUnavailable)) return false;
  return *srun_rc == kOutOfMemoryExit ||
         (*srun_rc >= static_cast<int>(ErrorKind::kUsage) &&
          *srun_rc <= static_cast<int>(ErrorKind::kNoRequeue) && *srun_rc != written.exit);
}

constexpr std::string_view kMemoryText =
    "SLURM ended a rank that took more memory than the job has: ask for more with --mem, or set a "
    "smaller --micro-batch";

std::string WithoutVerdict(const AttemptFacts& facts) {
  std::string text =
      facts.srun_rc ? StrCat("rank 0 left no verdict; srun returned ", CodeText(*facts.srun_rc))
                    : "rank 0 left no verdict, and the job script was lost before srun returned";
  if (facts.sign) {
    text += StrCat("; rank 0 on ", facts.sign->host, " was last seen ", facts.sign->state,
                   " after update ", facts.sign->step);
  }
  return text;
}

// Whether a rank was killed for memory at the same place again, which every attempt will reach.
bool KilledAgain(const AttemptFacts& facts) {
  constexpr std::int64_t kSteps = 1;
  constexpr double kShare = 0.1;
  if (!facts.written || !facts.written->killed || facts.before.empty()) return false;
  const KilledRank& now = *facts.written->killed;
  const std::optional<KilledRank>& before = facts.before.back().killed;
  if (!before || now.memory_bytes == 0 || std::abs(now.step - before->step) > kSteps) return false;
  return std::abs(static_cast<double>(now.memory_bytes - before->memory_bytes)) <=
         kShare * static_cast<double>(before->memory_bytes);
}

constexpr std::string_view kKilledAgainText =
    "; the attempt before ended so at the same update and with the same memory: not the host but "
    "the job is too large for the memory it has; ask for more with --mem, or set a smaller "
    "--micro-batch";

int IdleRestarts(const std::vector<LedgerEntry>& before, const CommittedStep& now) {
  int idle = 0;
  // The first attempt is not a restart; for the others, compare with the checkpoint at the end of
  // the previous one.
  CommittedStep later = now;
  for (auto entry = before.rbegin(); entry != before.rend(); ++entry) {
    if (entry->next != NextStep::kRequeue || later != entry->last) break;
    ++idle;
    later = entry->last;
  }
  return idle;
}

}  // namespace

AttemptJudgement JudgeAttempt(const AttemptFacts& facts) {
  AttemptJudgement judgement{.exit = facts.srun_rc.value_or(kScriptLost)};
  const bool memory = judgement.exit == kOutOfMemoryExit;
  if (facts.srun_rc == 0 && !facts.written && !facts.done_file) {
    judgement.exit = static_cast<int>(ErrorKind::kOs);
    judgement.reason = "srun returned 0, but nothing was trained: SLURM could not start the ranks";
  } else if (facts.written && !PeerHasCause(*facts.written, facts.srun_rc)) {
    judgement.exit = facts.written->exit;
    judgement.reason = facts.written->reason;
  } else if (facts.written) {
    judgement.reason =
        StrCat("srun returned ", CodeText(judgement.exit),
               memory ? StrCat(": ", kMemoryText) : ", the code of the rank that failed first",
               "; rank 0: ", facts.written->reason);
  } else {
    judgement.reason = WithoutVerdict(facts);
    if (memory) judgement.reason += StrCat(": ", kMemoryText);
  }
  if (!facts.written && !facts.rank_error.empty())
    judgement.reason += StrCat("; ", facts.rank_error);
  if (facts.written && judgement.exit != kOutOfMemoryExit) {
    judgement.suspect_hosts = facts.written->suspect_hosts;
  }
  // A rank that failed by itself has given a better reason.
  const bool ended = !facts.written || memory || Is(judgement.exit, ErrorKind::kUnavailable);
  if (ended && !facts.srun_errors.empty()) {
    judgement.reason += StrCat("; srun: ", facts.srun_errors);
  }
  if (KilledAgain(facts)) {
    judgement.suspect_hosts.clear();
    if (!memory) judgement.reason += kKilledAgainText;
  }
  judgement.next = SelectNextStep(judgement.exit);
  // DONE is written last; a hang or crash after it has lost nothing. But a job that a complete run
  // rejected before it became an attempt gets that reason, and a DONE that the attempt has found
  // and not yet removed says nothing about it.
  const bool refused = judgement.next == NextStep::kFail && !facts.written;
  if (facts.done_file && !facts.done_is_older && !refused) judgement.next = NextStep::kDone;
  if (judgement.next == NextStep::kDone) {
    judgement.reason = "the training is complete";
    judgement.suspect_hosts.clear();
  } else if (facts.stop_file) {
    judgement.next = NextStep::kNoRequeue;
    if (judgement.reason.find("the file STOP") == std::string::npos) {
      judgement.reason += "; the file STOP exists";
    }
  }
  if (judgement.next != NextStep::kRequeue) return judgement;
  if (const int idle = IdleRestarts(facts.before, facts.committed); idle >= kMaxIdleRestarts) {
    judgement.next = NextStep::kNoRequeue;
    judgement.held = true;
    judgement.reason =
        StrCat("held: ", idle,
               " restarts in a row brought no new checkpoint; the last: ", judgement.reason);
  }
  return judgement;
}

std::string_view Name(NextStep next) {
  switch (next) {
    case NextStep::kDone:
      return "done";
    case NextStep::kRequeue:
      return "requeue";
    case NextStep::kNoRequeue:
      return "norequeue";
    case NextStep::kFail:
      return "fail";
  }
  return "?";
}

NextStep SelectNextStep(int code) {
  if (code == 0) return NextStep::kDone;
  switch (static_cast<ErrorKind>(code)) {
    case ErrorKind::kTempFail:
    case ErrorKind::kUnavailable:
    case ErrorKind::kOs:
      return NextStep::kRequeue;
    case ErrorKind::kNoRequeue:
    case ErrorKind::kInterrupted:
      return NextStep::kNoRequeue;
    default:
      return IsSignalExit(code) ? NextStep::kRequeue : NextStep::kFail;
  }
}

std::string SrunErrors(std::string_view text) {
  constexpr std::string_view kPrefix = "srun: error: ";
  constexpr int kMax = 4;
  std::string words;
  int found = 0;
  for (const std::string& line : Split(text.substr(0, text.find("Job step aborted")), '\n')) {
    const bool of_task = line.starts_with(kPrefix) && line.find(": task") != std::string::npos;
    if (!of_task || line.find("Exited with exit code") != std::string::npos) continue;
    if (++found > kMax) continue;
    words += StrCat(found == 1 ? "" : "; ", Printable(line.substr(kPrefix.size())));
  }
  if (found > kMax) words += StrCat("; and ", found - kMax, " more");
  return words;
}

std::string ReadSrunErrors(const std::string& attempt_dir) {
  constexpr std::size_t kMaxBytes = 64 << 10;
  const auto text = ReadStart(attempt_dir + "/srun.err", kMaxBytes);
  return text.ok() ? PrintableLine(SrunErrors(*text)) : std::string();
}

std::string GaccdError(std::string_view text) {
  constexpr std::string_view kPrefix = "gaccd: ";
  for (const std::string& line : Split(text, '\n')) {
    if (line.starts_with(kPrefix) && line.find("error (") != std::string::npos) {
      return Printable(line.substr(kPrefix.size()));
    }
  }
  return {};
}

}  // namespace gaccd
