#include "daemon/inspect/watch/run_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/event.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/run_state.h"
#include "daemon/rundir/ledger.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/log.h"

namespace gaccd {

namespace {

constexpr std::size_t kMaxNames = 10'000;

std::string PathIn(const std::string& folder, const std::string& name) {
  return folder == "." ? name : StrCat(folder, "/", name);
}

}  // namespace

bool IsRunFolder(const std::string& folder) {
  const std::initializer_list<const char*> names = {"/STATUS.json", "/submit.jsonl",
                                                    "/ledger.jsonl", "/attempts"};
  return std::ranges::any_of(names, [&](const char* name) { return PathExists(folder + name); });
}

Status CheckMayRead(const std::string& folder) {
  if (::faccessat(AT_FDCWD, (folder + "/.").c_str(), R_OK | X_OK, AT_EACCESS) == 0) return {};
  return errno == EACCES ? ErrnoStatus("no permission to read", folder) : Status::Ok();
}

Status NoRunFolder(const std::string& folder) {
  if (!PathExists(folder)) {
    return {ErrorKind::kUsage,
            StrCat("'", folder, "' does not exist; expected the folder given as --run-dir")};
  }
  if (IsRunFolder(folder)) {
    return {ErrorKind::kUsage, StrCat("the run in '", folder, "' has no attempts yet")};
  }
  std::string inside;
  if (const auto runs = FindRunFolders(folder); runs.ok() && !runs->folders.empty()) {
    inside = StrCat(", as '", runs->folders.front(), "' in it; gaccd runs lists all");
  }
  return {ErrorKind::kUsage,
          StrCat("'", folder,
                 "' is not a run folder: it has no STATUS.json, submit.jsonl, ledger.jsonl and "
                 "attempts; expected the folder given as --run-dir",
                 inside)};
}

Result<FoundRuns> FindRunFolders(const std::string& folder) {
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder, kMaxNames));
  FoundRuns found;
  const auto take = [&found](const std::string& path) {
    const bool readable = CheckMayRead(path).ok();
    if (!readable) found.unreadable.push_back(path);
    const bool is_run = readable && IsRunFolder(path);
    if (is_run) found.folders.push_back(path);
    return is_run || !readable;
  };
  for (const std::string& name : names) {
    const std::string path = PathIn(folder, name);
    if (!IsFolder(path) || take(path)) continue;
    const auto inner = ListFolder(path, kMaxNames);
    if (!inner.ok()) continue;  // too many entries for a sweep
    for (const std::string& one : *inner) {
      if (IsFolder(PathIn(path, one))) (void)take(PathIn(path, one));
    }
  }
  return found;
}

void WarnAboutUnreadable(const FoundRuns& runs) {
  if (runs.unreadable.empty()) return;
  const std::size_t more = runs.unreadable.size() - 1;
  LogWarning(StrCat("no permission to read '", runs.unreadable.front(), "'",
                    more == 0 ? "" : StrCat(" and ", Counted(more, "other"))));
}

namespace {

constexpr std::size_t kMaxAttempts = 10'000;
constexpr std::size_t kMaxMissing = 100'000;  // names of attempts: 10,000 folders 9999-x have 10^8
constexpr std::string_view kLocal = "local-";

bool IsLocal(const Attempt& one) { return one.job.starts_with(kLocal); }

// Sets `started` to the time of the first event, or without events of the folder.
Status FindStart(Attempt& attempt) {
  LineReader lines(attempt.folder + "/events.jsonl", 4096);
  Event event;
  while (const auto line = lines.Next()) {
    attempt.has_events = ParseEvent(*line, &event);
    if (!attempt.has_events) continue;
    attempt.started = event.at;
    return CheckLineVersion(lines.path(), event.Whole("v"));  // one program writes the file
  }
  struct stat info {};
  if (::stat(attempt.folder.c_str(), &info) == 0) {
    const std::chrono::nanoseconds past_second(info.st_mtim.tv_nsec);
    attempt.started = std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec) +
                      std::chrono::duration_cast<WallTime::duration>(past_second);
  }
  return {};
}

// Local attempts are numbered over all local jobs, those of a SLURM job by themselves.
std::string_view NumberedJob(const Attempt& one) {
  return IsLocal(one) ? kLocal : std::string_view(one.job);
}

// By their starts; those that are numbered together by number, as a clock may have been set back.
// Jobs may take turns. The time of a folder without events may be that of a copy.
void SortByStart(std::vector<Attempt>& attempts) {
  std::ranges::sort(attempts, {}, [](const Attempt& one) {
    return std::tuple(NumberedJob(one), one.number, one.started);
  });
  for (std::size_t i = attempts.size(); i-- > 1;) {
    Attempt& one = attempts[i - 1];
    if (!one.has_events && NumberedJob(one) == NumberedJob(attempts[i])) {
      one.started = std::min(one.started, attempts[i].started);
    }
  }
  std::vector<std::pair<WallTime, Attempt>> keyed;  // not before the previous one of its job
  for (Attempt& one : attempts) {
    const bool same_job = !keyed.empty() && NumberedJob(keyed.back().second) == NumberedJob(one);
    const WallTime start = same_job ? std::max(keyed.back().first, one.started) : one.started;
    keyed.emplace_back(start, std::move(one));
  }
  std::ranges::stable_sort(keyed, {}, [](const auto& one) { return one.first; });
  std::ranges::transform(keyed, attempts.begin(), [](auto& one) { return std::move(one.second); });
}

const LedgerEntry* FindEntry(const std::vector<LedgerEntry>& ledger, const Attempt& attempt) {
  const auto found = std::ranges::find(ledger, attempt.name, &LedgerEntry::attempt);
  return found == ledger.end() ? nullptr : &*found;
}

// Without an event log, the job script knows: after a failure of the launch it starts the job
// again.
void FindStarts(const std::vector<LedgerEntry>& ledger, std::vector<Attempt>& attempts) {
  for (Attempt& one : attempts) {
    const LedgerEntry* const entry = FindEntry(ledger, one);
    one.is_start = PathExists(one.folder + "/events.jsonl") ||
                   (entry != nullptr && entry->next != NextStep::kFail);
  }
}

std::vector<std::string> NotesOn(const std::vector<Attempt>& attempts,
                                 const std::vector<LedgerEntry>& ledger) {
  std::vector<std::string> notes;
  std::set<std::string> expected;
  for (const Attempt& one : attempts) {
    const LedgerEntry* const entry = FindEntry(ledger, one);
    if (!one.has_events && !one.is_start && entry != nullptr) {
      notes.push_back(StrCat("attempt ", one.name, " did not start: ", Printable(entry->reason)));
    } else if (!one.has_events) {
      notes.push_back(StrCat("attempt ", one.name, " has no events"));
    }
    if (IsLocal(one)) continue;  // some of these numbers are SLURM's
    // A name that a user gave, such as 20261130-copy.
    if (std::cmp_greater(one.number, kMaxAttempts)) continue;
    for (int number = 0; number < one.number && expected.size() < kMaxMissing; ++number) {
      expected.insert(FormatAttemptName(number, one.job));
    }
  }
  for (const LedgerEntry& entry : ledger) {
    if (ParseAttemptName(entry.attempt)) expected.insert(entry.attempt);
  }
  for (const Attempt& one : attempts) expected.erase(one.name);
  for (const std::string& name : expected) {
    notes.push_back(StrCat("attempt ", name, " has no folder"));
  }
  return notes;
}

Status NoAttempts(const std::string& run_dir) {
  const Status status = NoRunFolder(run_dir);
  const auto submission = NewestSubmission(run_dir);
  if (!submission) return status;
  return {ErrorKind::kUsage,
          StrCat(status.message(), ": job ", submission->jobs, " has not begun")};
}

// As doctor: the attempt of the state, as a newer one may have been refused because this one runs.
std::string NewestOfState(const std::vector<Attempt>& attempts, const std::string& run_dir) {
  if (attempts.empty()) return {};
  const auto state = ReadRunState(run_dir, std::chrono::system_clock::now());
  const bool known = state.ok() && std::ranges::count(attempts, state->attempt, &Attempt::name) > 0;
  return known ? state->attempt : attempts.back().name;
}

bool MatchesFilter(const Attempt& attempt, std::string_view only) {
  const auto number = ToNumber<int>(only);
  return number ? attempt.number == *number : attempt.name == only;
}

}  // namespace

Result<AttemptList> ListAttempts(const std::string& run_dir, std::string_view only) {
  const std::string folder = run_dir + "/attempts";
  GACCD_RETURN_IF_ERROR(CheckMayRead(run_dir));
  if (!IsFolder(folder)) return NoAttempts(run_dir);
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder, kMaxAttempts));
  AttemptList list;
  for (const std::string& name : names) {
    auto parsed = ParseAttemptName(name);
    if (!parsed) continue;  // "latest"
    Attempt attempt{.name = name,
                    .folder = StrCat(folder, "/", name),
                    .number = parsed->number,
                    .job = std::move(parsed->job)};
    GACCD_RETURN_IF_ERROR(FindStart(attempt));
    list.attempts.push_back(std::move(attempt));
  }
  SortByStart(list.attempts);
  const std::vector<LedgerEntry> ledger = ReadLedger(run_dir + "/ledger.jsonl");
  FindStarts(ledger, list.attempts);
  list.notes = NotesOn(list.attempts, ledger);
  if (only.empty()) return list;
  const std::string latest = only == "latest" ? NewestOfState(list.attempts, run_dir) : "";
  if (!latest.empty()) only = latest;
  std::erase_if(list.attempts, [&](const Attempt& one) { return !MatchesFilter(one, only); });
  if (!list.attempts.empty()) return list;
  return Status(ErrorKind::kUsage, StrCat("'", run_dir, "' has no attempt '", only,
                                          "', expected one of: ", Join(names, ", ")));
}

std::size_t CountStarts(const std::vector<Attempt>& attempts) {
  return static_cast<std::size_t>(std::ranges::count(attempts, true, &Attempt::is_start));
}

std::vector<std::string> RankHosts(const Attempt& attempt) {
  const auto text = ReadSmallFile(attempt.folder + "/ranks.tsv", ErrorKind::kData);
  std::vector<std::string> hosts;
  if (!text.ok()) return hosts;
  std::istringstream lines(*text);
  std::string line;
  std::getline(lines, line);  // the names of the columns
  while (std::getline(lines, line)) {
    std::istringstream columns(line);
    std::size_t rank = 0;
    std::string host;
    if (columns >> rank >> host && rank == hosts.size()) hosts.push_back(host);
  }
  return hosts;
}

}  // namespace gaccd
