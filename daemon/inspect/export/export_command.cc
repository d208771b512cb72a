#include <cstdlib>
#include <string_view>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/inspect/export/exports.h"
#include "daemon/inspect/export/prometheus.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/inspect/watch/run_folders.h"
#include "daemon/inspect/watch/run_state.h"
#include "daemon/inspect/watch/slurm_facts.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

constexpr double kRecentS = 24 * 3600;
// The collector runs as another user.
constexpr unsigned kForAll = 0644;

// SLURM_JOB_END_TIME in env.json, set by slurm/launch.
std::optional<double> JobEnd(const std::string& attempt_dir) {
  const auto text = ReadSmallFile(attempt_dir + "/env.json", ErrorKind::kData);
  if (!text.ok()) return std::nullopt;
  const auto json = Json::ParseObject(*text);
  const std::string* found = json ? json->text("SLURM_JOB_END_TIME") : nullptr;
  if (found == nullptr) return std::nullopt;
  const double end = std::atof(found->c_str());
  return end > 0 ? std::optional(end) : std::nullopt;
}

// The name of a run, with the folders between it and `top`: "sweep/0-seed=1".
std::string NameBelow(const std::string& top, const std::string& folder) {
  if (folder == top) return FolderName(folder);
  return top == "." ? folder : folder.substr(top.size() + 1);
}

// A run that has not begun has no events.
Result<RunFigures> ReadFigures(const RunState& state, PrometheusState& known) {
  const bool begun = state.has_status || IsFolder(state.folder + "/attempts");
  return begun ? known.ReadFigures(state.folder) : RunFigures();
}

Result<RunMetrics> ReadMetrics(const std::string& top, const RunState& state, WallTime now,
                               PrometheusState& known) {
  GACCD_ASSIGN_OR_RETURN(RunFigures figures, ReadFigures(state, known));
  const std::string attempt = StrCat(state.folder, "/attempts/", state.attempt);
  return RunMetrics{.run = NameBelow(top, state.folder),
                    .state = state,
                    .figures = std::move(figures),
                    .written_s = SecondsSinceEpoch(now) - state.age_s,
                    .job_end_s = JobEnd(attempt),
                    .ranks = NewestRankLines(attempt)};
}

Result<std::vector<std::string>> RunFolders(const std::string& folder) {
  GACCD_RETURN_IF_ERROR(CheckMayRead(folder));
  if (IsRunFolder(folder)) return std::vector{folder};
  GACCD_ASSIGN_OR_RETURN(FoundRuns found, FindRunFolders(folder));
  WarnAboutUnreadable(found);
  return std::move(found.folders);
}

// start: the start of files of this format. --out may only replace such a file.
Status CheckReplacedExport(const std::string& out, std::string_view start) {
  return out.empty() ? Status::Ok() : CheckReplaces(out, start, "an export of this format");
}

Status ExportPrometheus(const ExportRequest& request) {
  GACCD_ASSIGN_OR_RETURN(const auto folders, RunFolders(request.folder));
  const WallTime now = std::chrono::system_clock::now();
  std::vector<RunState> recent;
  for (const std::string& folder : folders) {
    auto state = ReadRunState(folder, now);
    if (!state.ok()) LogWarning(state.status().message());
    if (state.ok() && state->age_s <= kRecentS) recent.push_back(*std::move(state));
  }
  AddSlurmFacts(recent);
  PrometheusState known;
  std::string known_path;
  if (!request.out.empty()) {
    GACCD_ASSIGN_OR_RETURN(known_path, OutputTarget(request.out));
    known_path += ".state";
    std::string problem;
    known = PrometheusState::Read(known_path, &problem);
    if (!problem.empty()) LogWarning(problem);
  }
  std::vector<RunMetrics> runs;
  for (const RunState& state : recent) {
    auto metrics = ReadMetrics(request.folder, state, now, known);
    if (!metrics.ok()) LogWarning(metrics.status().message());
    if (metrics.ok()) runs.push_back(*std::move(metrics));
  }
  GACCD_RETURN_IF_ERROR(CheckReplacedExport(request.out, "# HELP gaccd_"));
  GACCD_ASSIGN_OR_RETURN(TextSink out, TextSink::Open(request.out, kForAll));
  GACCD_RETURN_IF_ERROR(out.Write(PrometheusText(runs)));
  GACCD_RETURN_IF_ERROR(out.Close());
  return known_path.empty() ? Status() : known.Write(known_path);
}

Status ExportEvents(const ExportRequest& request, std::vector<std::string>* notes) {
  if (request.format == ExportFormat::kTensorboard) {
    if (!request.out.empty()) {
      return ExportTensorboard(request.folder, request.attempt, request.out, notes);
    }
    return {ErrorKind::kUsage, "--format=tensorboard writes files: give their folder by --out=DIR"};
  }
  const bool csv = request.format == ExportFormat::kCsv;
  const bool trace = request.format == ExportFormat::kChromeTrace;
  const auto write = csv ? ExportCsv : trace ? ExportChromeTrace : ExportOtlpJson;
  GACCD_RETURN_IF_ERROR(CheckReplacedExport(request.out, csv     ? "attempt_dir"
                                                         : trace ? "{\"displayTimeUnit\""
                                                                 : "{\"resourceMetrics\""));
  GACCD_ASSIGN_OR_RETURN(TextSink out, TextSink::Open(request.out));
  GACCD_RETURN_IF_ERROR(write(request.folder, request.attempt, out, notes));
  return out.Close();
}

}  // namespace

Status RunExportCommand(const ExportRequest& request) {
  if (request.format == ExportFormat::kPrometheus && !request.attempt.empty()) {
    return {ErrorKind::kUsage, "--format=prometheus sums over all attempts: expected no --attempt"};
  }
  if (request.format == ExportFormat::kPrometheus) return ExportPrometheus(request);
  std::vector<std::string> notes;
  const Status status = ExportEvents(request, &notes);
  for (const std::string& note : notes) LogWarning(note);
  return status;
}

}  // namespace gaccd
