#include "daemon/rundir/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"

namespace gaccd {

namespace {

constexpr std::size_t kMaxReason = 1000;

// One description for reading and writing.
void VisitFields(auto& fields, auto& entry) {
  std::string verdict(Name(entry.next));
  fields.Computed("v", 1);
  fields("attempt", entry.attempt);
  fields.When(!entry.started.empty(), [&] { fields("start_ts", entry.started); });
  fields("end_ts", entry.ended);
  // The newest checkpoint at the start and at the end of the attempt; -1: none.
  fields("first_step", entry.first.step);
  fields("first_micro_step", entry.first.micro_step);
  fields("last_step", entry.last.step);
  fields("last_micro_step", entry.last.micro_step);
  fields("exit", entry.exit);
  fields("verdict", verdict);
  fields("reason", entry.reason);
  fields.When(!entry.suspect_hosts.empty(), [&] { fields("suspect_hosts", entry.suspect_hosts); });
  fields.Group("killed_step", entry.killed, [&](auto& killed) {
    fields("killed_step", killed.step);
    fields("killed_memory_bytes", killed.memory_bytes);
  });
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(entry)>>) {
    for (const NextStep next : {NextStep::kDone, NextStep::kRequeue, NextStep::kNoRequeue}) {
      if (verdict == Name(next)) entry.next = next;
    }
  }
}

std::optional<LedgerEntry> ParseEntry(std::string_view line) {
  const std::optional<Json> object = Json::ParseObject(line);
  if (!object) return std::nullopt;
  LedgerEntry entry;
  JsonFields fields(*object);
  VisitFields(fields, entry);
  constexpr std::string_view kRequired[] = {"attempt", "exit"};
  if (!fields.FindProblem(kRequired).empty() || entry.attempt.empty()) return std::nullopt;
  return entry;
}

// The last kMaxTextBytes of a file: the rest of a line, which is no entry, and whole lines.
Result<std::string> ReadLastLines(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::string text(std::min<std::uint64_t>(file.size(), kMaxTextBytes), '\0');
  const std::uint64_t from = file.size() - text.size();
  GACCD_RETURN_IF_ERROR(file.ReadAt(from, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

std::vector<LedgerEntry> ReadLedger(const std::string& path) {
  std::vector<LedgerEntry> entries;
  const Result<std::string> text = ReadLastLines(path);
  if (!text.ok()) return entries;
  for (const std::string& line : Split(*text, '\n')) {
    if (auto entry = ParseEntry(line)) entries.push_back(*std::move(entry));
  }
  return entries;
}

Status AppendToLedger(const std::string& path, LedgerEntry entry, unsigned mode) {
  entry.reason.resize(std::min(entry.reason.size(), kMaxReason));
  JsonObject out;
  VisitFields(out, std::as_const(entry));
  return AppendLine(path, out.FinishLine(), mode);
}

namespace {

std::string SubmissionsPath(const std::string& run_dir) { return run_dir + "/submit.jsonl"; }

std::optional<Submission> ParseSubmission(const std::string& line) {
  const auto json = Json::ParseObject(line);
  if (!json) return std::nullopt;
  const std::string* at = json->text("ts");
  const std::string* jobs = json->text("jobs");
  if (at == nullptr || jobs == nullptr) return std::nullopt;
  Submission submission{*at, *jobs};
  // They are displayed and passed to a shell.
  const bool ids = submission.jobs.find_first_not_of("0123456789_,") == std::string::npos;
  return ids && !submission.jobs.empty() ? std::optional(submission) : std::nullopt;
}

}  // namespace

Status AppendSubmission(const std::string& run_dir, const Submission& submission, unsigned mode) {
  JsonObject out;
  out("v", 1);
  out("ts", submission.at);
  out("jobs", submission.jobs);
  return AppendLine(SubmissionsPath(run_dir), out.FinishLine(), mode);
}

std::optional<Submission> NewestSubmission(const std::string& run_dir) {
  const auto text = ReadSmallFile(SubmissionsPath(run_dir), ErrorKind::kData);
  if (!text.ok()) return std::nullopt;
  std::optional<Submission> newest;
  for (const std::string& line : Split(*text, '\n')) {
    if (auto one = ParseSubmission(line)) newest = std::move(one);
  }
  return newest;
}

}  // namespace gaccd
