#include "daemon/watch/watch_command.h"

#include <unistd.h>

#include <thread>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/print.h"
#include "collectives/base/strings.h"
#include "daemon/rundir/next_step.h"
#include "daemon/telemetry/log.h"
#include "daemon/watch/run_state.h"
#include "daemon/watch/state_text.h"

namespace gaccd {
namespace {

constexpr std::size_t kMostRuns = 10'000;
constexpr std::chrono::seconds kRefresh{2};

bool Ended(RunPhase phase) {
  return phase == RunPhase::kDone || phase == RunPhase::kStopped || phase == RunPhase::kFailed;
}

// A job that SLURM stopped goes back to the queue, unless its folder says otherwise.
bool WillGoOn(const RunState& state) {
  return state.phase == RunPhase::kStopped && !state.job.starts_with("local-") &&
         NextStepOf(state.exit.value_or(0)) == NextStep::kRequeue &&
         !PathExists(state.folder + "/STOP") && !PathExists(state.folder + "/HOLD");
}

std::string_view WhatFollows(RunPhase phase, RunRequest what) {
  if (what == RunRequest::kSave) return "the run saves after its next update and removes the file";
  switch (phase) {
    case RunPhase::kSubmitted:
      return "its jobs end as soon as they begin, with 93; remove the file before it is submitted "
             "again";
    case RunPhase::kStopped:
      return "the run has stopped, and is not started again while the file is there";
    case RunPhase::kStale:
      return "if the run still lives, it saves after its next update and exits with 93; it is not "
             "started again while the file is there";
    default:
      return "the run saves after its next update and exits with 93; remove the file before it is "
             "started again";
  }
}

}  // namespace

Result<int> RunStatusCommand(const WatchRequest& request) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  while (true) {
    GACCD_ASSIGN_OR_RETURN(const RunState state,
                           ReadRunState(request.folder, std::chrono::system_clock::now()));
    const std::string text = request.json ? StateJson(state) : StateText(state);
    const bool redraw = request.watch && terminal && !request.json;
    GACCD_RETURN_IF_ERROR(PrintOut(redraw ? StrCat("\x1b[H\x1b[J", text) : text));
    const bool ended = Ended(state.phase) && !WillGoOn(state);
    if (!request.watch || ended) return ExitOf(state.phase);
    std::this_thread::sleep_for(kRefresh);
  }
}

Status RunRunsCommand(const WatchRequest& request) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         ListFolder(request.folder, kMostRuns));
  std::vector<RunState> runs;
  for (const std::string& name : names) {
    const std::string folder = request.folder == "." ? name : StrCat(request.folder, "/", name);
    if (!PathExists(folder + "/STATUS.json") && !PathExists(folder + "/submit.jsonl")) continue;
    auto state = ReadRunState(folder, std::chrono::system_clock::now());
    if (state.ok()) {
      runs.push_back(*std::move(state));
    } else {
      LogWarning(state.status().message());
    }
  }
  if (runs.empty()) {
    return {ErrorKind::kUsage,
            StrCat("'", request.folder,
                   "' holds no run folders; expected folders with STATUS.json or submit.jsonl")};
  }
  if (!request.json) return PrintOut(RunsTable(runs));
  std::string text;
  for (const RunState& state : runs) text += StateJson(state);
  return PrintOut(text);
}

Status RunRequestCommand(const WatchRequest& request, RunRequest what) {
  const bool stop = what == RunRequest::kStop;
  GACCD_ASSIGN_OR_RETURN(const RunState state,
                         ReadRunState(request.folder, std::chrono::system_clock::now()));
  const bool waits = state.phase == RunPhase::kStopped || state.phase == RunPhase::kStale;
  if (Ended(state.phase) && !(stop && waits)) {
    return {ErrorKind::kUsage, StrCat("'", request.folder, "' is ", Name(state.phase),
                                      ": there is nothing to ", stop ? "stop" : "save")};
  }
  const std::string path = request.folder + (stop ? "/STOP" : "/SAVE");
  GACCD_ASSIGN_OR_RETURN(const bool was_there, CreateFileOnce(path, ""));
  return PrintOut(StrCat("'", path, was_there ? "' was there already" : "' is written", ": ",
                         WhatFollows(state.phase, what), "\n"));
}

}  // namespace gaccd
