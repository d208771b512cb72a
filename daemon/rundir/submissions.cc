#include "daemon/rundir/submissions.h"

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"

namespace gaccd {
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
