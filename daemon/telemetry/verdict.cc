#include "daemon/telemetry/verdict.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/next_step.h"

namespace gaccd {
namespace {

constexpr std::chrono::milliseconds kTurn{20};
constexpr int kMostTurns = 25;

std::optional<Failure> ReadFailure(const std::string& attempt_dir, int rank) {
  if (attempt_dir.empty()) return std::nullopt;
  const auto text = ReadStart(CrashPath(attempt_dir, rank), kMaxLineBytes);
  if (!text.ok()) return std::nullopt;  // killed from outside: nothing could be left behind
  auto failure = ParseFailureJson(*text);
  if (!failure.ok()) return std::nullopt;
  return *std::move(failure);
}

// The program's own reasons; every other one may be the machine's.
bool IsOwnFault(const Failure& failure) {
  switch (static_cast<ErrorKind>(failure.exit)) {
    case ErrorKind::kUsage:
    case ErrorKind::kData:
    case ErrorKind::kInternal:
    case ErrorKind::kConfig:
    case ErrorKind::kNoRequeue:
      return true;
    default:
      return false;
  }
}

std::string What(const Failure& failure) {
  return failure.signal != 0 ? StrCat("signal ", failure.signal) : StrCat("exit ", failure.exit);
}

}  // namespace

std::string CrashPath(const std::string& attempt_dir, int rank) {
  char number[16];
  std::snprintf(number, sizeof(number), "r%05d", rank);
  return StrCat(attempt_dir, "/crash/", number, ".json");
}

bool IsFailure(const Status& outcome) {
  if (outcome.ok()) return false;
  switch (outcome.kind()) {
    case ErrorKind::kTempFail:
    case ErrorKind::kNoRequeue:
    case ErrorKind::kInterrupted:
      return false;
    default:
      return true;
  }
}

Verdict MakeVerdict(const Status& outcome, const FailureFacts& facts,
                    const std::string& attempt_dir) {
  Verdict verdict;
  verdict.exit = outcome.ok() ? 0 : static_cast<int>(outcome.kind());
  verdict.verdict = Name(NextStepOf(verdict.exit));
  if (outcome.ok()) return verdict;
  verdict.reason = outcome.message();
  std::set<std::string> hosts;
  for (const Suspect& suspect : facts.suspects) {
    const std::optional<Failure> failure = ReadFailure(attempt_dir, suspect.rank);
    if (!verdict.first) {
      verdict.first = suspect;
      verdict.first_failure = failure;
    }
    if (failure && IsOwnFault(*failure)) continue;
    if (hosts.insert(suspect.host).second) {
      verdict.suspect_hosts += StrCat(verdict.suspect_hosts.empty() ? "" : ",", suspect.host);
    }
  }
  if (verdict.first_failure) {
    verdict.reason += StrCat("; rank ", verdict.first->rank, " itself (",
                             What(*verdict.first_failure), "): ", verdict.first_failure->message);
  }
  return verdict;
}

bool Suspects(const FailureFacts& facts, int rank) {
  return std::any_of(facts.suspects.begin(), facts.suspects.end(),
                     [&](const Suspect& suspect) { return suspect.rank == rank; });
}

const char* EndState(const Verdict& verdict) {
  return verdict.verdict == "done" ? "done" : "failed";
}

Result<bool> WriteVerdictOnce(const std::string& attempt_dir, const RunIdentity& who,
                              const Verdict& verdict, unsigned mode) {
  const char* level = verdict.exit == 0 ? "info" : "error";
  return CreateFileOnce(attempt_dir + "/verdict.json",
                        VerdictJson(who, {Timestamp(), 1, level}, verdict) + "\n", mode);
}

Status WriteVerdictForRankZero(const std::string& attempt_dir, RunStatus last,
                               const Verdict& verdict, unsigned mode) {
  std::this_thread::sleep_for(kTurn * std::min(last.identity.rank - 1, kMostTurns));
  struct stat info {};
  if (::stat((attempt_dir + "/verdict.json").c_str(), &info) == 0) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const bool there,
                         WriteVerdictOnce(attempt_dir, last.identity, verdict, mode));
  if (there) return Status::Ok();
  last.attempt_dir = "attempts" + attempt_dir.substr(attempt_dir.rfind('/'));
  last.state = EndState(verdict);
  last.verdict = verdict;
  const std::string run_dir = FolderOf(FolderOf(attempt_dir));
  return ReplaceFile(run_dir + "/STATUS.json", StatusJson(last) + "\n", true, mode);
}

}  // namespace gaccd
