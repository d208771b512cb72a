#include "slurm/job_states.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <vector>

#include "collectives/base/strings.h"
#include "slurm/run_program.h"

namespace gaccd {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kMaxIds = 1000;  // of one command line

bool IsPlain(const std::string& text) {
  return std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-:()[],.").find(c) != std::string_view::npos;
  });
}

// Lines "raw|shown|STATE ...|more", one per job. Adds each job to `jobs` under both ids.
void Parse(std::string_view text, std::string JobState::*more, JobStates* jobs) {
  for (const std::string& line : Split(text, '\n')) {
    std::vector<std::string> fields = Split(line, '|');
    fields.resize(4);
    const std::string& raw = fields[0];
    const std::string& shown = fields[1];
    JobState job;
    job.state = fields[2];
    job.*more = fields[3];
    job.state.erase(std::min(job.state.find(' '), job.state.size()));  // "CANCELLED by 1000"
    // "launch failed requeued held"
    std::ranges::replace(job.*more, ' ', '_');
    if (raw.empty() || shown.empty() || job.state.empty()) continue;
    if (!IsPlain(raw) || !IsPlain(shown) || !IsPlain(job.state)) continue;
    if (!IsPlain(job.*more) || job.*more == "None") (job.*more).clear();
    jobs->insert_or_assign(raw, job);
    jobs->insert_or_assign(shown, job);
  }
}

// false: no response. squeue fails for a single unknown job; that counts as a response.
bool AskSqueue(std::span<const std::string> ids, JobStates* jobs) {
  const auto said = RunProgram({"squeue", "--noheader", "--array", "--states=all",
                                StrCat("--format=", kSqueueFormat), "--jobs=" + Join(ids, ",")},
                               "", kPatience);
  if (!said.ok()) return false;
  ParseSqueue(said->out, jobs);
  return said->exit == 0 || said->err.find("Invalid job id") != std::string::npos;
}

void AskSacct(std::span<const std::string> ids, JobStates* jobs) {
  const auto said = RunProgram({"sacct", "--noheader", "--parsable2", "--allocations",
                                StrCat("--format=", kSacctFormat), "--jobs=" + Join(ids, ",")},
                               "", kPatience);
  if (said.ok() && said->exit == 0) ParseSacct(said->out, jobs);
}

}  // namespace

bool IsFinal(std::string_view state) {
  constexpr std::string_view kFinal[] = {"BOOT_FAIL", "CANCELLED",    "COMPLETED", "DEADLINE",
                                         "FAILED",    "NODE_FAIL",    "PREEMPTED", "REVOKED",
                                         "TIMEOUT",   "OUT_OF_MEMORY"};
  return std::ranges::find(kFinal, state) != std::end(kFinal);
}

void ParseSqueue(std::string_view text, JobStates* jobs) { Parse(text, &JobState::reason, jobs); }

void ParseSacct(std::string_view text, JobStates* jobs) { Parse(text, &JobState::exit, jobs); }

std::optional<JobStates> FindJobStates(std::span<const std::string> ids) {
  JobStates jobs;
  for (; !ids.empty(); ids = ids.subspan(std::min(kMaxIds, ids.size()))) {
    const auto some = ids.first(std::min(kMaxIds, ids.size()));
    if (!AskSqueue(some, &jobs)) return std::nullopt;
    std::vector<std::string> missing;
    std::ranges::copy_if(some, std::back_inserter(missing),
                         [&](const std::string& id) { return !jobs.contains(id); });
    if (!missing.empty()) AskSacct(missing, &jobs);
  }
  return jobs;
}

}  // namespace gaccd
