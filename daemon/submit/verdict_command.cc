#include "daemon/submit/verdict_command.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/config/flat_json.h"
#include "daemon/rundir/attempt_verdict.h"
#include "daemon/rundir/host_names.h"
#include "daemon/rundir/ledger.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/run_status.h"
#include "slurm/hostlist.h"

namespace gaccd {
namespace {

// SLURM's names of these hosts: a host named n3.cluster.example may be n3 in SLURM, and --exclude
// only accepts that. Without a host that may be one of several nodes.
std::string SlurmNames(const std::string& hosts, const std::string& nodelist) {
  const auto nodes = ExpandHostlist(nodelist);
  if (!nodes.ok()) return hosts;
  std::string names;
  for (const std::string& host : Split(hosts, ',')) {
    const auto is_host = [&](const std::string& node) { return IsSameHost(node, host); };
    auto node = std::ranges::find(*nodes, host);
    if (node == nodes->end() && std::ranges::count_if(*nodes, is_host) == 1) {
      node = std::ranges::find_if(*nodes, is_host);
    }
    if (node != nodes->end()) names += StrCat(names.empty() ? "" : ",", *node);
  }
  return names;
}

// The nodes of the attempt. A later job, which asks for the verdict of an attempt whose script was
// lost, has other nodes.
std::string ReadNodelist(const std::string& attempt_dir, const std::string& otherwise) {
  const Result<std::string> text = ReadSmallFile(attempt_dir + "/env.json", ErrorKind::kData);
  const auto json = text.ok() ? Json::ParseObject(*text) : std::nullopt;
  const std::string* const nodes = json ? json->text("SLURM_JOB_NODELIST") : nullptr;
  return nodes == nullptr ? otherwise : *nodes;
}

// Whether the file DONE is from before the attempt, which writes env.json at its start.
bool IsDoneOlder(const std::string& run_dir, const std::string& attempt_dir) {
  struct stat done {};
  struct stat start {};
  if (::stat((run_dir + "/DONE").c_str(), &done) != 0) return false;
  if (::stat((attempt_dir + "/env.json").c_str(), &start) != 0) return true;
  return std::pair(done.st_mtim.tv_sec, done.st_mtim.tv_nsec) <
         std::pair(start.st_mtim.tv_sec, start.st_mtim.tv_nsec);
}

std::optional<WrittenVerdict> ReadVerdict(const std::string& attempt_dir) {
  const Result<std::string> text = ReadSmallFile(attempt_dir + "/verdict.json", ErrorKind::kData);
  if (!text.ok()) return std::nullopt;
  const Result<Verdict> verdict = ReadEvent<Verdict>(*text, {"verdict", "exit"});
  if (!verdict.ok() || verdict->verdict.empty()) return std::nullopt;
  WrittenVerdict written{.exit = std::clamp(verdict->exit, 0, 255),
                         .reason = PrintableLine(verdict->reason),
                         .suspect_hosts = SafeHosts(verdict->suspect_hosts)};
  if (verdict->killed) {
    written.killed = {.step = verdict->last_step, .memory_bytes = verdict->first->memory_bytes};
  }
  return written;
}

// The error of a rank that ended before the run folder existed.
std::string ReadRankError(const std::string& attempt_dir) {
  constexpr std::size_t kMaxBytes = 64 << 10;
  constexpr std::size_t kMaxFiles = 100'000;
  std::vector<std::string> files = {"/check.txt"};
  if (const auto names = ListFolder(attempt_dir + "/rank", kMaxFiles); names.ok()) {
    for (const std::string& name : *names) {
      if (name.ends_with(".err")) files.push_back("/rank/" + name);
    }
  }
  for (const std::string& file : files) {
    const Result<std::string> text = ReadStart(attempt_dir + file, kMaxBytes);
    const std::string error = text.ok() ? GaccdError(*text) : std::string();
    if (!error.empty()) return error;
  }
  return StrCat("output of the ranks: ", PrintableLine(attempt_dir));
}

std::optional<LastStatus> ReadLastStatus(const std::string& run_dir, const std::string& attempt) {
  const Result<std::string> text = ReadSmallFile(run_dir + "/STATUS.json", ErrorKind::kData);
  const auto status = text.ok() ? ReadStatus(*text) : std::nullopt;
  if (!status || !status->attempt_dir.ends_with(attempt)) return std::nullopt;
  return LastStatus{PrintableLine(status->state), PrintableLine(status->identity.host),
                    status->last.step};
}

// The time of the first event; empty: unknown.
std::string ReadStartTime(const std::string& attempt_dir) {
  constexpr std::size_t kMaxLine = 4096;
  const Result<std::string> start = ReadStart(attempt_dir + "/events.jsonl", kMaxLine);
  if (!start.ok()) return {};
  const auto json = Json::ParseObject(start->substr(0, start->find('\n')));
  const std::string* const at = json ? json->text("ts") : nullptr;
  return at == nullptr ? std::string() : PrintableLine(*at);
}

// The step of the committed checkpoint with the highest writer epoch. Older checkpoints may have
// larger steps, if the run was sent back or its checkpoints were damaged.
CommittedStep NewestCheckpoint(const std::string& run_dir) {
  const auto all = ListGenerations(run_dir + "/ckpt");
  if (!all.ok()) return {};
  const auto newest =
      std::find_if(all->begin(), all->end(), [](const Generation& one) { return one.committed; });
  if (newest == all->end()) return {};
  return {newest->step, newest->micro_step};
}

struct Attempt {
  std::string run_dir;
  std::string name;
};

// A second start within one attempt of the job has its own folder, "NNN-<job>.2", the target of
// `latest`.
Result<Attempt> FindAttempt(const std::string& attempt_dir) {
  const auto refuse = [&](std::string_view why) {
    return Status(ErrorKind::kUsage, StrCat("--attempt-dir=", attempt_dir, ": ", why,
                                            "; expected <run>/attempts/NNN-<job>"));
  };
  char resolved[PATH_MAX];
  if (::realpath(attempt_dir.c_str(), resolved) == nullptr) return refuse(std::strerror(errno));
  const std::string path = resolved;
  const std::string attempts = ParentFolder(path);
  if (!attempts.ends_with("/attempts")) return refuse("is not in a folder 'attempts'");
  Attempt attempt{ParentFolder(attempts), path.substr(attempts.size() + 1)};
  const std::string latest = LatestAttempt(attempt.run_dir);
  if (latest.starts_with(attempt.name + ".")) attempt.name = latest;
  return attempt;
}

// Whether the file system is full, which may be why there is no verdict.
bool IsFull(const std::string& run_dir) {
  constexpr std::uint64_t kAnyFile = 64 << 10;
  struct statvfs info {};
  return ::statvfs(run_dir.c_str(), &info) == 0 &&
         std::uint64_t{info.f_bavail} * info.f_frsize < kAnyFile;
}

// Readable for the group if the attempt's folder is, as with --group-access.
unsigned AttemptFileMode(const std::string& attempt_dir) {
  struct stat info {};
  const bool group = ::stat(attempt_dir.c_str(), &info) == 0 && (info.st_mode & S_IRGRP) != 0;
  return group ? kGroupMayRead.file : kFileMode;
}

std::string JudgementText(const AttemptJudgement& judgement) {
  std::string text = StrCat(Name(judgement.next), "\n", judgement.reason, "\n");
  if (!judgement.suspect_hosts.empty()) text += StrCat("--exclude=", judgement.suspect_hosts, "\n");
  return text;
}

std::string JudgementJson(const std::string& attempt, const AttemptJudgement& judgement) {
  JsonObject json;
  json("attempt", attempt);
  json("verdict", Name(judgement.next));
  json("exit", judgement.exit);
  json("held", judgement.held);
  json("reason", judgement.reason);
  json("suspect_hosts", judgement.suspect_hosts);
  return json.FinishLine();
}

}  // namespace

Result<std::string> RunVerdictCommand(const VerdictRequest& request) {
  GACCD_ASSIGN_OR_RETURN(const Attempt attempt, FindAttempt(request.attempt_dir));
  const std::string attempt_dir = StrCat(attempt.run_dir, "/attempts/", attempt.name);
  const std::string ledger = attempt.run_dir + "/ledger.jsonl";
  AttemptFacts facts{.srun_rc = request.srun_rc,
                     .written = ReadVerdict(attempt_dir),
                     .sign = ReadLastStatus(attempt.run_dir, attempt.name),
                     .srun_errors = ReadSrunErrors(attempt_dir),
                     .stop_file = PathExists(attempt.run_dir + "/STOP"),
                     .done_file = PathExists(attempt.run_dir + "/DONE"),
                     .done_is_older = IsDoneOlder(attempt.run_dir, attempt_dir),
                     .before = ReadLedger(ledger),
                     .committed = NewestCheckpoint(attempt.run_dir)};
  const std::string nodelist = ReadNodelist(attempt_dir, request.nodelist);
  if (facts.written && !nodelist.empty()) {
    facts.written->suspect_hosts = SafeHosts(SlurmNames(facts.written->suspect_hosts, nodelist));
  }
  if (!facts.written) facts.rank_error = ReadRankError(attempt_dir);
  const unsigned mode = AttemptFileMode(attempt_dir);
  const auto entry = std::ranges::find(facts.before, attempt.name, &LedgerEntry::attempt);
  const bool recorded = entry != facts.before.end();
  if (recorded) {  // asked again: uses the facts of that time
    facts.committed = entry->last;
    facts.before.erase(entry, facts.before.end());
  }
  AttemptJudgement judgement = JudgeAttempt(facts);
  if (!facts.written && IsFull(attempt.run_dir)) {
    judgement.reason =
        StrCat("the file system of '", attempt.run_dir, "' is full; ", judgement.reason);
  }
  ReleaseDiskSpace(attempt_dir);
  if (!recorded) {
    const Status written =
        AppendToLedger(ledger,
                       {.attempt = attempt.name,
                        .started = ReadStartTime(attempt_dir),
                        .ended = Timestamp(),
                        .first = facts.before.empty() ? CommittedStep() : facts.before.back().last,
                        .last = facts.committed,
                        .exit = judgement.exit,
                        .next = judgement.next,
                        .reason = judgement.reason,
                        .suspect_hosts = judgement.suspect_hosts,
                        .killed = facts.written ? facts.written->killed : std::nullopt},
                       mode);
    if (!written.ok()) judgement.reason = StrCat(written.message(), "; ", judgement.reason);
  }
  if (judgement.held && !recorded) {
    GACCD_RETURN_IF_ERROR(
        ReplaceFile(attempt.run_dir + "/HOLD", judgement.reason + "\n", /*durable=*/true, mode));
  }
  return request.json ? JudgementJson(attempt.name, judgement) : JudgementText(judgement);
}

}  // namespace gaccd
