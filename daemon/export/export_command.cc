#include "daemon/export/export_command.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/output_file.h"
#include "collectives/base/strings.h"
#include "daemon/export/chrome_trace.h"
#include "daemon/export/csv.h"
#include "daemon/export/otlp_json.h"
#include "daemon/export/prometheus.h"
#include "daemon/export/prometheus_state.h"
#include "daemon/export/tensorboard.h"
#include "daemon/export/text_sink.h"
#include "daemon/telemetry/log.h"
#include "daemon/watch/event_stream.h"
#include "daemon/watch/rank_lines.h"
#include "daemon/watch/run_state.h"

namespace gaccd {
namespace {

constexpr std::size_t kMostRuns = 10'000;
constexpr double kRecentS = 24 * 3600;
// The collector runs as a user of its own.
constexpr unsigned kForAll = 0644;

// SLURM_JOB_END_TIME, which slurm/launch sets.
std::optional<double> JobEnd(const std::string& attempt_dir) {
  const auto text = ReadSmallFile(attempt_dir + "/env.json", ErrorKind::kData);
  if (!text.ok()) return std::nullopt;
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto found = json.find("SLURM_JOB_END_TIME");
  if (found == json.end() || !found->is_string()) return std::nullopt;
  const double end = std::atof(found->get<std::string>().c_str());
  return end > 0 ? std::optional(end) : std::nullopt;
}

// Nothing for a run that is not recent.
Result<std::optional<RunMetrics>> MetricsOf(const std::string& folder, WallTime now,
                                            PrometheusState& known) {
  GACCD_ASSIGN_OR_RETURN(const RunState state, ReadRunState(folder, now));
  if (state.age_s > kRecentS) return std::optional<RunMetrics>();
  GACCD_ASSIGN_OR_RETURN(RunFigures figures, known.FiguresOf(folder));
  const std::string attempt = StrCat(folder, "/attempts/", state.attempt);
  return std::optional(RunMetrics{.run = FolderName(folder),
                                  .state = state,
                                  .figures = std::move(figures),
                                  .written_s = SecondsOf(now) - state.age_s,
                                  .job_end_s = JobEnd(attempt),
                                  .ranks = NewestRankLines(attempt)});
}

Result<std::vector<std::string>> RunFolders(const std::string& folder) {
  if (PathExists(folder + "/STATUS.json")) return std::vector{folder};
  GACCD_ASSIGN_OR_RETURN(const auto names, ListFolder(folder, kMostRuns));
  std::vector<std::string> folders;
  for (const std::string& name : names) {
    std::string run = StrCat(folder, "/", name);
    if (PathExists(run + "/STATUS.json")) folders.push_back(std::move(run));
  }
  return folders;
}

Status ExportPrometheus(const ExportRequest& request) {
  GACCD_ASSIGN_OR_RETURN(const auto folders, RunFolders(request.folder));
  PrometheusState known;
  std::string state;
  if (!request.out.empty()) {
    GACCD_ASSIGN_OR_RETURN(state, OutputTarget(request.out));
    state += ".state";
    std::string problem;
    known = PrometheusState::Read(state, &problem);
    if (!problem.empty()) LogWarning(problem);
  }
  std::vector<RunMetrics> runs;
  for (const std::string& folder : folders) {
    auto metrics = MetricsOf(folder, std::chrono::system_clock::now(), known);
    if (!metrics.ok()) LogWarning(metrics.status().message());
    if (metrics.ok() && *metrics) runs.push_back(**std::move(metrics));
  }
  GACCD_ASSIGN_OR_RETURN(TextSink out, TextSink::Open(request.out, kForAll));
  GACCD_RETURN_IF_ERROR(out.Write(PrometheusText(runs)));
  GACCD_RETURN_IF_ERROR(out.Close());
  return state.empty() ? Status() : known.Write(state);
}

Status ExportEvents(const ExportRequest& request, std::vector<std::string>* notes) {
  if (request.format == ExportFormat::kTensorboard) {
    if (!request.out.empty()) {
      return ExportTensorboard(request.folder, request.attempt, request.out, notes);
    }
    return {ErrorKind::kUsage, "--format=tensorboard writes files: give their folder by --out=DIR"};
  }
  const auto write = request.format == ExportFormat::kCsv           ? ExportCsv
                     : request.format == ExportFormat::kChromeTrace ? ExportChromeTrace
                                                                    : ExportOtlpJson;
  GACCD_ASSIGN_OR_RETURN(TextSink out, TextSink::Open(request.out));
  GACCD_RETURN_IF_ERROR(write(request.folder, request.attempt, out, notes));
  return out.Close();
}

}  // namespace

Status RunExportCommand(const ExportRequest& request) {
  if (request.format == ExportFormat::kPrometheus) return ExportPrometheus(request);
  std::vector<std::string> notes;
  const Status status = ExportEvents(request, &notes);
  for (const std::string& note : notes) LogWarning(note);
  return status;
}

}  // namespace gaccd
