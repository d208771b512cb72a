#include "daemon/inspect/watch/slurm_facts.h"

#include <algorithm>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/rundir/attempt_verdict.h"

namespace gaccd {
namespace {

bool IsSlurmJob(const std::string& id) {
  return !id.empty() && id.find_first_not_of("0123456789_") == std::string::npos;
}

// A job that SLURM stopped is requeued, unless the folder has STOP or HOLD.
bool WillBeRequeued(const RunState& state) {
  return state.phase == RunPhase::kStopped && !state.job.starts_with("local-") &&
         SelectNextStep(state.exit.value_or(0)) == NextStep::kRequeue &&
         !PathExists(state.folder + "/STOP") && !PathExists(state.folder + "/HOLD");
}

// All jobs of the submission of the current job: the next ones of a chain wait for it. A task of an
// array ("17_0") has a job id of its own, which its submission does not have.
std::vector<std::string> ChainJobs(const RunState& state) {
  std::vector<std::string> jobs = Split(state.submitted, ',');
  if (std::ranges::find(jobs, state.job) != jobs.end()) return jobs;
  if (jobs.empty() || jobs.front().find('_') == std::string::npos) return {state.job};
  jobs.insert(jobs.begin(), state.job);
  return jobs;
}

// A job that ended with 93 stays in the queue, held, if slurm.conf has RequeueExitHold=93. Only
// SLURM knows.
bool MayBeHeld(const RunState& state) {
  return (state.phase == RunPhase::kStopped || state.phase == RunPhase::kFailed) &&
         state.exit == static_cast<int>(ErrorKind::kNoRequeue);
}

// The jobs to query: those that may still write into the folder. Empty if the files are sufficient.
std::vector<std::string> OpenJobs(const RunState& state) {
  std::vector<std::string> jobs;
  switch (state.phase) {
    case RunPhase::kSubmitted:
      jobs = Split(state.submitted, ',');
      break;
    case RunPhase::kStarting:
      if (state.no_rank_yet) jobs = {state.job};
      break;
    case RunPhase::kStale:
      jobs = ChainJobs(state);
      break;
    case RunPhase::kStopped:
      if (SelectNextStep(state.exit.value_or(0)) == NextStep::kRequeue) jobs = ChainJobs(state);
      break;
    default:
      break;
  }
  if (MayBeHeld(state)) jobs = {state.job};
  std::erase_if(jobs, [](const std::string& job) { return !IsSlurmJob(job); });
  return jobs;
}

std::string Describe(const std::string& id, const JobState& job) {
  std::string text = StrCat("job ", id, " is ", job.state);
  if (!job.reason.empty() && !IsFinal(job.state)) text += StrCat(" (", job.reason, ")");
  if (!job.exit.empty() && job.exit != "0:0") text += StrCat(" (exit ", job.exit, ")");
  return text;
}

RunPhase PhaseAfterJob(const RunState& state, const JobState* last) {
  const bool complete = PathExists(state.folder + "/DONE");
  if (last == nullptr) return complete ? RunPhase::kDone : RunPhase::kFailed;
  if (last->state == "COMPLETED" && complete) return RunPhase::kDone;
  const bool failed = last->state == "FAILED" || last->state == "COMPLETED" ||
                      last->state == "OUT_OF_MEMORY" || last->state == "DEADLINE";
  return failed ? RunPhase::kFailed : RunPhase::kStopped;
}

void UpdateState(RunState& state, const std::vector<std::string>& jobs, const JobStates& known) {
  const JobState* last = nullptr;
  for (const std::string& id : jobs) {
    const auto found = known.find(id);
    if (found == known.end()) continue;
    last = &found->second;
    state.slurm = Describe(id, *last);
    if (IsFinal(last->state)) continue;
    const bool begun = last->state == "RUNNING" || last->state == "COMPLETING";
    if (state.phase == RunPhase::kSubmitted && begun) {
      state.exit.reset();  // of an older attempt
      state.phase = RunPhase::kStarting;
      state.no_rank_yet = true;
      state.job = id;
    }
    // The files show that the job has begun, so they are newer than SLURM's state.
    if (state.phase == RunPhase::kStarting) state.slurm.clear();
    return;
  }
  if (MayBeHeld(state)) {
    state.slurm.clear();  // it ended, and the files say how
    return;
  }
  state.gone_in_slurm = true;
  if (last == nullptr) state.slurm = StrCat("job ", jobs.back(), " is not in the queue");
  if (state.phase == RunPhase::kStopped) return;  // the files have the reason
  if (state.phase == RunPhase::kStale && state.has_status && last == nullptr) return;
  state.phase = PhaseAfterJob(state, last);
  state.no_rank_yet = false;
  state.exit.reset();
  if (state.phase == RunPhase::kDone) return;
  state.reason = StrCat("SLURM: ", state.slurm, ", and it wrote nothing here about how it ended");
}

}  // namespace

void AddSlurmFacts(std::span<RunState> runs, const JobFinder& find) {
  std::vector<std::string> all;
  for (const RunState& state : runs) {
    const std::vector<std::string> jobs = OpenJobs(state);
    all.insert(all.end(), jobs.begin(), jobs.end());
  }
  if (all.empty()) return;
  const auto known = find(all);
  if (!known) return;
  for (RunState& state : runs) {
    const std::vector<std::string> jobs = OpenJobs(state);
    if (!jobs.empty()) UpdateState(state, jobs, *known);
  }
}

std::optional<JobStates> ThrottledFinder::operator()(std::span<const std::string> ids) {
  constexpr std::chrono::seconds kBetween{30};
  const auto now = std::chrono::steady_clock::now();
  const std::vector<std::string> wanted(ids.begin(), ids.end());
  if (!asked_ || now - *asked_ >= kBetween || wanted != ids_) {
    answer_ = FindJobStates(ids);
    asked_ = now;
    ids_ = wanted;
  }
  return answer_;
}

bool IsPermanentlyEnded(const RunState& state) {
  const bool ended = state.phase == RunPhase::kDone || state.phase == RunPhase::kStopped ||
                     state.phase == RunPhase::kFailed;
  return state.gone_in_slurm || (ended && !WillBeRequeued(state));
}

}  // namespace gaccd
