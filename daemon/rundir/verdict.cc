#include "daemon/rundir/verdict.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/rundir/attempt_verdict.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {
namespace {

constexpr std::chrono::milliseconds kTurn{20};
constexpr int kMaxTurns = 25;

// Crash records of ranks, each read once.
class Records {
 public:
  explicit Records(std::string attempt_dir) : attempt_dir_(std::move(attempt_dir)) {}

  const std::optional<Failure>& Find(int rank) {
    std::optional<Failure>& failure = read_[rank];
    if (!failure) failure = Read(rank);
    return failure;
  }

 private:
  [[nodiscard]] std::optional<Failure> Read(int rank) const {
    if (attempt_dir_.empty()) return std::nullopt;
    const auto text = ReadStart(CrashPath(attempt_dir_, rank), kMaxLineBytes);
    if (!text.ok()) return std::nullopt;  // killed: could not write a record
    auto failure = ReadEvent<Failure>(*text);
    if (!failure.ok() || (failure->exit == 0 && failure->signal == 0)) return std::nullopt;
    return *std::move(failure);
  }

  const std::string attempt_dir_;
  std::map<int, std::optional<Failure>> read_;
};

bool IsPeerLoss(const Failure& failure) {
  return failure.exit == static_cast<int>(ErrorKind::kUnavailable);
}

// A rank that only gave up writes its record a moment later.
void WaitForRecords(const std::vector<int>& gave_up, Records& records) {
  constexpr std::chrono::milliseconds kPause{20};
  constexpr int kPauses = 20;
  const auto there = [&](int rank) { return records.Find(rank).has_value(); };
  for (int i = 0; i < kPauses && std::ranges::none_of(gave_up, there); ++i) {
    std::this_thread::sleep_for(kPause);
  }
}

// The suspects; if there are none, the ranks that gave up. A rank that exited because of others is
// replaced by the ranks in its record: its view of this rank is as good as the reverse.
std::vector<Suspect> FindOrigins(const FailureFacts& facts, Records& records) {
  std::deque<Suspect> open(facts.suspects.begin(), facts.suspects.end());
  const auto add = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    open.push_back({.rank = rank, .host = index < facts.hosts.size() ? facts.hosts[index] : "?"});
  };
  if (open.empty()) {
    WaitForRecords(facts.gave_up, records);
    std::ranges::for_each(facts.gave_up, add);
  }
  std::set<int> seen;
  std::vector<Suspect> origins;
  for (; !open.empty(); open.pop_front()) {
    const Suspect suspect = open.front();
    if (!seen.insert(suspect.rank).second) continue;
    const std::optional<Failure>& record = records.Find(suspect.rank);
    const bool knows = record && IsPeerLoss(*record) && !record->lost_ranks.empty();
    if (knows && std::ranges::count(record->lost_ranks, facts.rank) == 0) {
      std::ranges::for_each(record->lost_ranks, add);
    } else if (record || !std::ranges::count(facts.gave_up, suspect.rank)) {
      origins.push_back(suspect);
    }
  }
  return origins;
}

// Whether the program itself is the cause; all other reasons may be the machine's.
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

std::string DescribeSuspect(const Suspect& suspect) {
  return StrCat("rank ", suspect.rank, " on ", suspect.host);
}

// "; its memory was 412.3 MB, planned 401.0 MB", as far as known.
std::string MemoryText(const Verdict& verdict) {
  if (verdict.first->memory_bytes == 0) return {};
  std::string text = StrCat("; its memory was ", Megabytes(verdict.first->memory_bytes));
  if (verdict.memory_planned_bytes > 0) {
    text += StrCat(", planned ", Megabytes(verdict.memory_planned_bytes));
  }
  return text;
}

std::string KilledText(const Verdict& verdict) {
  return StrCat("; rank ", verdict.first->rank,
                " wrote no crash record, so it was killed from outside (SIGKILL, perhaps by the "
                "kernel for its memory)",
                MemoryText(verdict));
}

// Nodes with several ranks that are all among the origins without a record, with their number of
// ranks.
std::map<std::string, std::int64_t> FindLostNodes(const std::vector<Suspect>& origins,
                                                  const FailureFacts& facts, Records& records) {
  std::map<std::string, std::int64_t> lost;
  for (const Suspect& origin : origins) {
    if (!records.Find(origin.rank)) ++lost[origin.host];
  }
  std::erase_if(lost, [&](const auto& node) {
    const auto& [host, ranks] = node;
    return ranks < 2 || ranks != std::ranges::count(facts.hosts, host);
  });
  return lost;
}

// Adds the records of the origins to what this rank saw. If this rank only saw others lost, the
// exit code of the first failed rank becomes that of the verdict.
void AddCause(const std::vector<Suspect>& origins,
              const std::map<std::string, std::int64_t>& lost_nodes, Verdict* verdict) {
  constexpr std::size_t kMaxNames = 8;
  std::string& reason = verdict->reason;
  const Suspect& first = origins.front();
  const std::optional<Failure>& failure = verdict->first_failure;
  const bool lost = verdict->exit == static_cast<int>(ErrorKind::kUnavailable);
  const auto named = [&](const Suspect& suspect) {
    return reason.find(DescribeSuspect(suspect)) != std::string::npos;
  };
  if (lost && !named(first)) {
    reason =
        StrCat(DescribeSuspect(first), failure ? " failed first: " : " was lost first: ", reason);
  }
  if (failure) {
    reason += StrCat("; rank ", first.rank, " itself (", What(*failure), "): ", failure->message);
    if (lost && failure->exit != 0) verdict->exit = failure->exit;
    verdict->verdict = Name(SelectNextStep(verdict->exit));
  } else if (verdict->killed && !lost_nodes.contains(first.host)) {
    reason += KilledText(*verdict);
  }
  for (const auto& [host, ranks] : lost_nodes) {
    reason += StrCat("; all ", ranks, " ranks on ", host,
                     " were lost and wrote no crash record: the node or its network failed, or all "
                     "of them were killed there");
    if (host == first.host) reason += MemoryText(*verdict);
  }
  std::size_t names = 0;
  for (const Suspect& origin : origins) {
    if (lost_nodes.contains(origin.host) || named(origin)) continue;
    if (++names <= kMaxNames) reason += StrCat("; ", DescribeSuspect(origin), " was lost, too");
  }
  if (names > kMaxNames) reason += StrCat("; and ", names - kMaxNames, " more");
}

}  // namespace

std::string CrashPath(const std::string& attempt_dir, int rank) {
  return attempt_dir + Format("/crash/r%05d.json", rank);
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

void AddRanksLostByPeers(const std::string& attempt_dir, FailureFacts* facts) {
  constexpr std::size_t kMaxRecords = 100'000;
  constexpr std::chrono::milliseconds kMostTime{700};
  const auto until = std::chrono::steady_clock::now() + kMostTime;
  const auto names = ListFolder(attempt_dir + "/crash", kMaxRecords);
  if (!names.ok()) return;
  Records records(attempt_dir);
  for (const std::string& name : *names) {
    int writer = 0;
    if (std::sscanf(name.c_str(), "r%d.json", &writer) != 1) continue;
    if (std::chrono::steady_clock::now() > until) return;
    const std::optional<Failure>& failure = records.Find(writer);
    if (!failure || !IsPeerLoss(*failure)) continue;
    for (const int rank : failure->lost_ranks) {
      const auto index = static_cast<std::size_t>(rank);
      if (Suspects(*facts, rank) || records.Find(rank) || index >= facts->hosts.size()) continue;
      facts->suspects.push_back({.rank = rank, .host = facts->hosts[index]});
    }
  }
}

Verdict MakeVerdict(const Status& outcome, const FailureFacts& facts,
                    const std::string& attempt_dir) {
  Verdict verdict;
  verdict.exit = outcome.ok() ? 0 : static_cast<int>(outcome.kind());
  verdict.verdict = Name(SelectNextStep(verdict.exit));
  if (outcome.ok()) return verdict;
  verdict.reason = outcome.message();
  Records records(attempt_dir);
  const std::vector<Suspect> origins = FindOrigins(facts, records);
  if (origins.empty()) return verdict;
  verdict.first = origins.front();
  verdict.first_failure = records.Find(verdict.first->rank);
  verdict.killed = verdict.first->ended && !verdict.first_failure && !attempt_dir.empty();
  verdict.memory_planned_bytes = facts.memory_planned_bytes;
  std::set<std::string> hosts;
  for (const Suspect& suspect : origins) {
    verdict.lost_ranks.push_back(suspect.rank);
    const std::optional<Failure>& failure = records.Find(suspect.rank);
    if (failure && IsOwnFault(*failure)) continue;
    if (hosts.insert(suspect.host).second) {
      verdict.suspect_hosts += StrCat(verdict.suspect_hosts.empty() ? "" : ",", suspect.host);
    }
  }
  AddCause(origins, FindLostNodes(origins, facts, records), &verdict);
  return verdict;
}

bool Suspects(const FailureFacts& facts, int rank) {
  return std::any_of(facts.suspects.begin(), facts.suspects.end(),
                     [&](const Suspect& suspect) { return suspect.rank == rank; });
}

Result<bool> WriteVerdictOnce(const std::string& attempt_dir, const RunIdentity& who,
                              const Verdict& verdict, unsigned mode) {
  return CreateFileOnce(attempt_dir + "/verdict.json",
                        EventJson(who, {Timestamp(), 1, verdict.level()}, verdict) + "\n", mode);
}

namespace {

// Rank 0 knew more: its speed, device, loads and saves. Another rank knows later updates.
RunStatus WithStatusOfRankZero(RunStatus last, const std::string& path) {
  const auto text = ReadSmallFile(path, ErrorKind::kData);
  std::optional<RunStatus> before = text.ok() ? ReadStatus(*text) : std::nullopt;
  if (!before || before->attempt_dir != last.attempt_dir) return last;
  if (!last.identity.host.empty()) before->identity = last.identity;
  if (last.last.step > before->last.step) {
    last.last.rates = before->last.rates;
    before->last = last.last;
  }
  if (last.last_eval.step > before->last_eval.step) before->last_eval = last.last_eval;
  if (last.best) before->best = last.best;
  return *std::move(before);
}

}  // namespace

bool ShouldWriteVerdictForRankZero(const std::string& attempt_dir, int rank) {
  std::this_thread::sleep_for(kTurn * std::min(rank - 1, kMaxTurns));
  return !PathExists(attempt_dir + "/verdict.json");
}

Status WriteVerdictForRankZero(const std::string& attempt_dir, const RunIdentity& who,
                               RunStatus last, const Verdict& verdict, unsigned mode) {
  struct stat info {};
  if (::stat((attempt_dir + "/verdict.json").c_str(), &info) == 0) return Status::Ok();
  ReleaseDiskSpace(attempt_dir);
  GACCD_ASSIGN_OR_RETURN(const bool there, WriteVerdictOnce(attempt_dir, who, verdict, mode));
  if (there) return Status::Ok();
  last.attempt_dir = "attempts" + attempt_dir.substr(attempt_dir.rfind('/'));
  const std::string path = ParentFolder(ParentFolder(attempt_dir)) + "/STATUS.json";
  last = WithStatusOfRankZero(std::move(last), path);
  Apply(verdict, last);
  return ReplaceFile(path, StatusJson(last) + "\n", true, mode);
}

}  // namespace gaccd
