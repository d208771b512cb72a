#include "daemon/inspect/watch/watch_command.h"

#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/run_folders.h"
#include "daemon/inspect/watch/run_state.h"
#include "daemon/inspect/watch/slurm_facts.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

constexpr std::chrono::seconds kRefresh{2};

bool Ended(RunPhase phase) {
  return phase == RunPhase::kDone || phase == RunPhase::kStopped || phase == RunPhase::kFailed;
}

std::string_view EffectText(RunPhase phase, RunRequest what) {
  if (what == RunRequest::kSave) return "the run saves after its next update and removes the file";
  switch (phase) {
    case RunPhase::kSubmitted:
      return "its jobs exit with 93 as soon as they start; remove the file before submitting it "
             "again";
    case RunPhase::kStopped:
      return "the run has stopped; it does not start again while the file exists";
    case RunPhase::kStale:
      return "if the run is still alive, it saves after its next update and exits with 93; it does "
             "not "
             "start again while the file exists";
    default:
      return "the run saves after its next update and exits with 93; remove the file before "
             "starting it again";
  }
}

}  // namespace

Result<int> RunStatusCommand(const WatchRequest& request) {
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  ThrottledFinder finder;
  while (true) {
    GACCD_ASSIGN_OR_RETURN(RunState state,
                           ReadRunState(request.folder, std::chrono::system_clock::now()));
    AddSlurmFacts({&state, 1}, std::ref(finder));
    const std::string text = request.json ? StateJson(state) : StateText(state);
    const bool redraw = request.watch && terminal && !request.json;
    GACCD_RETURN_IF_ERROR(PrintOut(redraw ? StrCat("\x1b[H\x1b[J", text) : text));
    if (!request.watch || IsPermanentlyEnded(state)) return ExitCode(state.phase);
    std::this_thread::sleep_for(kRefresh);
  }
}

Status RunRunsCommand(const WatchRequest& request) {
  GACCD_ASSIGN_OR_RETURN(const FoundRuns found, FindRunFolders(request.folder));
  WarnAboutUnreadable(found);
  std::vector<RunState> runs;
  for (const std::string& folder : found.folders) {
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
  AddSlurmFacts(runs);
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
  // The file would prevent a complete run from being continued.
  const bool moves = state.phase == RunPhase::kStarting || state.phase == RunPhase::kRunning;
  const bool complete = !moves && PathExists(request.folder + "/DONE");
  if (complete || (Ended(state.phase) && !(stop && waits))) {
    const bool submitted = state.phase == RunPhase::kSubmitted;
    return {ErrorKind::kUsage,
            StrCat("'", request.folder, "' is ", Name(complete ? RunPhase::kDone : state.phase),
                   ": there is nothing to ", stop ? "stop" : "save",
                   submitted ? StrCat("; its waiting jobs: scancel ", state.submitted) : "")};
  }
  const std::string path = request.folder + (stop ? "/STOP" : "/SAVE");
  GACCD_ASSIGN_OR_RETURN(const bool was_there, CreateFileOnce(path, ""));
  return PrintOut(StrCat("'", path, was_there ? "' already exists" : "' written", ": ",
                         EffectText(state.phase, what), "\n"));
}

}  // namespace gaccd
