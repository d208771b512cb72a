#include "daemon/inspect/watch/doctor.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <map>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/inspect/watch/run_folders.h"
#include "daemon/inspect/watch/slurm_facts.h"
#include "daemon/rundir/attempt_verdict.h"
#include "daemon/rundir/host_names.h"
#include "daemon/rundir/ledger.h"
#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxFailures = 8;  // shown
constexpr std::size_t kMaxWarnings = 5;

// Suspects of the job script, which may know that no host is at fault; else of the ranks.
std::string ReadSuspects(const Attempt& attempt, const std::vector<LedgerEntry>& ledger) {
  const auto entry = std::ranges::find(ledger, attempt.name, &LedgerEntry::attempt);
  if (entry != ledger.end()) return SafeHosts(entry->suspect_hosts);
  const auto verdict = ReadEventFile(attempt.folder + "/verdict.json");
  return verdict ? SafeHosts(std::string(verdict->Text("suspect_hosts"))) : std::string();
}

// The attempt that the state describes, otherwise the newest: a newer one may have been refused
// because this one was running.
const Attempt& FindShown(const std::vector<Attempt>& attempts, const RunState& state) {
  const auto found = std::ranges::find(attempts, state.attempt, &Attempt::name);
  return found == attempts.end() ? attempts.back() : *found;
}

// Hosts of the attempt `shown` first, then by number of attempts.
std::vector<SuspectHost> FindSuspects(const std::vector<Attempt>& attempts,
                                      const std::vector<LedgerEntry>& ledger, const Attempt& shown,
                                      std::string* newest) {
  std::map<std::string, int> counts;
  for (const Attempt& attempt : attempts) {
    const std::string suspects = ReadSuspects(attempt, ledger);
    if (attempt.name == shown.name) *newest = suspects;
    for (const std::string& host : Split(suspects, ',')) ++counts[host];
  }
  std::vector<SuspectHost> suspects;
  for (const auto& [host, count] : counts) suspects.push_back({host, count});
  const auto rank = [&](const SuspectHost& one) {
    return std::pair(!HasPart(*newest, one.host), -one.attempts);
  };
  std::ranges::stable_sort(suspects, {}, rank);
  return suspects;
}

std::string MoreRanks(std::int64_t ranks) {
  if (ranks == 0) return {};
  return StrCat(" and ", Counted(ranks, "more rank"));
}

// Without phase and collective, which may differ between ranks that agree on an error.
std::string_view Code(const RankFailure& failure) {
  return std::string_view(failure.what).substr(0, failure.what.find(','));
}

// If every rank only lost other ranks, lists the first of them.
std::string FailuresText(const std::vector<RankFailure>& failures) {
  std::string text;
  std::size_t shown = 0;
  std::int64_t others = 0;
  const bool has_cause = !std::ranges::all_of(failures, &RankFailure::caused_by_others);
  for (const RankFailure& one : failures) {
    const bool is_cause = has_cause ? !one.caused_by_others : shown == 0;
    if (!is_cause || shown == kMaxFailures) {
      others += 1 + one.more_ranks;
      continue;
    }
    ++shown;
    text += StrCat("  rank ", one.rank, " on ", one.host, MoreRanks(one.more_ranks),
                   ", after update ", one.step, ": ", one.what, "\n    ", one.message, "\n");
  }
  if (others > 0) {
    text += StrCat("  ", shown == 0 ? "" : "and ", Counted(others, "rank"),
                   " that exited because of others, or later\n");
  }
  return text.empty() ? text : StrCat("failures, the first one first\n", text);
}

std::string List(std::string_view head, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += StrCat("  ", line, "\n");
  return text.empty() ? text : StrCat(head, "\n", text);
}

// Sets the facts about the disk. Full: less space than the end of a run needs, or no free inode.
void AddDisk(const std::string& folder, AdviceFacts& facts) {
  constexpr std::uint64_t kMin = 64 << 10;
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return;
  const bool has_inodes = info.f_files == 0 || info.f_favail > 0;  // 0: they have no limit
  facts.disk_full = !has_inodes || std::uint64_t{info.f_bavail} * info.f_frsize < kMin;
  facts.disk_read_only = (info.f_flag & ST_RDONLY) != 0;
}

// True also if the folder cannot be read.
bool HasCheckpoint(const std::string& run_dir) {
  const auto all = ListGenerations(run_dir + "/ckpt");
  return !all.ok() || std::ranges::any_of(*all, &Generation::committed);
}

}  // namespace

RankFailure ParseFailure(const Event& event) {
  const Result<Failure> read = ReadEvent<Failure>(event.line);
  const Failure record = read.ok() ? *read : Failure();
  RankFailure failure{.at = event.at,
                      .rank = event.Whole("rank").value_or(-1),
                      .host = PrintableLine(event.Text("host")),
                      .step = record.step,
                      .message = PrintableLine(record.message)};
  failure.caused_by_others =
      record.exit == static_cast<int>(ErrorKind::kUnavailable) && !record.lost_ranks.empty();
  failure.what =
      record.signal != 0 ? StrCat("signal ", record.signal) : StrCat("exit ", record.exit);
  for (const std::string& place : {record.phase, record.collective}) {
    if (!place.empty()) failure.what += StrCat(", ", PrintableLine(place));
  }
  return failure;
}

bool CountWithSame(const RankFailure& failure, std::vector<RankFailure>* known) {
  const auto same = std::ranges::find_if(*known, [&](const RankFailure& one) {
    return one.message == failure.message && Code(one) == Code(failure);
  });
  if (same == known->end()) return false;
  ++same->more_ranks;
  return true;
}

namespace {

void AddEvent(const Event& event, Diagnosis* diagnosis) {
  if (event.name == "failure") {
    RankFailure failure = ParseFailure(event);
    std::vector<RankFailure>& known = diagnosis->failures;
    if (!CountWithSame(failure, &known)) known.push_back(std::move(failure));
  }
  if (event.name != "log") return;
  std::vector<std::string>& warnings = diagnosis->warnings;
  warnings.push_back(StrCat(event.Text("ts"), " ", PrintableLine(event.Text("msg"))));
  if (warnings.size() > kMaxWarnings) warnings.erase(warnings.begin());
}

}  // namespace

Result<Diagnosis> DiagnoseFiles(const std::string& run_dir, WallTime now, const JobFinder& find) {
  Diagnosis diagnosis;
  GACCD_ASSIGN_OR_RETURN(diagnosis.state, ReadRunState(run_dir, now));
  if (find) AddSlurmFacts({&diagnosis.state, 1}, find);
  const bool is_new = !diagnosis.state.has_status && !IsFolder(run_dir + "/attempts");
  AttemptList list;
  if (!is_new) {
    GACCD_ASSIGN_OR_RETURN(list, ListAttempts(run_dir));
  }
  diagnosis.attempts = CountStarts(list.attempts);
  double attempt_age_s = 0;
  if (!list.attempts.empty()) {
    const Attempt& newest = FindShown(list.attempts, diagnosis.state);
    attempt_age_s = SecondsBetween(newest.started, now);
    diagnosis.newest = newest.name;
    diagnosis.srun_errors = ReadSrunErrors(newest.folder);
    diagnosis.suspects = FindSuspects(list.attempts, ReadLedger(run_dir + "/ledger.jsonl"), newest,
                                      &diagnosis.state.suspect_hosts);
  }
  AdviceFacts facts{.state = diagnosis.state,
                    .stop_file = PathExists(run_dir + "/STOP"),
                    .hold_file = PathExists(run_dir + "/HOLD"),
                    .has_checkpoint = HasCheckpoint(run_dir),
                    .attempt_age_s = attempt_age_s};
  AddDisk(run_dir, facts);
  diagnosis.advice = Advise(facts);
  return diagnosis;
}

Result<Diagnosis> Diagnose(const std::string& run_dir, WallTime now, const JobFinder& find) {
  GACCD_ASSIGN_OR_RETURN(Diagnosis diagnosis, DiagnoseFiles(run_dir, now, find));
  if (diagnosis.newest.empty()) return diagnosis;
  GACCD_ASSIGN_OR_RETURN(EventStream stream, EventStream::Open(run_dir, diagnosis.newest));
  Event event;
  while (stream.Next(&event)) {
    if (event.attempt == diagnosis.newest) AddEvent(event, &diagnosis);
  }
  diagnosis.notes = stream.notes();
  return diagnosis;
}

std::string DiagnosisText(const Diagnosis& diagnosis) {
  std::string text = StateText(diagnosis.state);
  text += FailuresText(diagnosis.failures);
  if (!diagnosis.srun_errors.empty()) text += StrCat("srun\n  ", diagnosis.srun_errors, "\n");
  std::vector<std::string> suspects;
  for (const SuspectHost& one : diagnosis.suspects) {
    suspects.push_back(
        StrCat(one.host, ", in ", one.attempts, " of ", diagnosis.attempts, " attempts"));
  }
  text += List("suspected hosts", suspects);
  text += List("last warnings", diagnosis.warnings);
  text += List("the files of this run", diagnosis.notes);
  std::vector<std::string> advice;
  for (const Advice& one : diagnosis.advice) advice.push_back(one.en);
  return text + List("what to do", advice);
}

Result<int> RunDoctorCommand(const std::string& run_dir) {
  GACCD_ASSIGN_OR_RETURN(const Diagnosis diagnosis,
                         Diagnose(run_dir, std::chrono::system_clock::now(), FindJobStates));
  GACCD_RETURN_IF_ERROR(PrintOut(DiagnosisText(diagnosis)));
  return ExitCode(diagnosis.state.phase);
}

}  // namespace gaccd
