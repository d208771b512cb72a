#include "daemon/verbs/verbs.h"

#include <string>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/print.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/ckpt_command.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_command.h"
#include "daemon/export/export_command.h"
#include "daemon/preflight/device_choice.h"
#include "daemon/report/plot.h"
#include "daemon/report/report_command.h"
#include "daemon/selftest/selftest_command.h"
#include "daemon/submit/submit_command.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/planned_run.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/verdict_command.h"
#include "daemon/verbs/loaded_libraries.h"
#include "daemon/watch/doctor.h"
#include "daemon/watch/logs_command.h"
#include "daemon/watch/thin_events.h"
#include "daemon/watch/watch_command.h"

namespace gaccd {
namespace {

// kConfig, naming them, when GPUs are wanted and the job's model has functions that they cannot
// compute.
Status CheckPlannedDevice(const Flags& flags) {
  if (!flags.job) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  return job.device == Device::kCuda ? CheckModelOnGpu(job) : Status::Ok();
}

Status RunPlan(const Flags& flags) {
  GACCD_RETURN_IF_ERROR(CheckPlannedDevice(flags));
  GACCD_ASSIGN_OR_RETURN(const PlanOutput output, MakePlanOutput(flags));
  if (flags.job) {
    for (const std::string& warning : ScheduleWarnings(output.job, output.plan)) {
      LogWarning(warning);
    }
  }
  const bool tells_run = flags.job && flags.format == OutputFormat::kText;
  GACCD_RETURN_IF_ERROR(
      PrintOut(output.text + (tells_run ? PlannedRunText(output.job, output.plan) : "")));
  return output.verdict;
}

Status RunCkpt(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(CkptRequest request,
                         MakeCkptRequest(flags.words, flags.out.value_or(""),
                                         {.newest = flags.keep, .every = flags.keep_every}));
  request.json = flags.format == OutputFormat::kJson;
  request.transformers = flags.transformers;
  request.without_tokenizer = flags.without_tokenizer;
  request.best = flags.best;
  request.raw_weights = flags.raw_weights;
  if (flags.group_access) request.out_modes = kGroupMayRead;
  GACCD_ASSIGN_OR_RETURN(const CkptOutput output, RunCkptCommand(request));
  GACCD_RETURN_IF_ERROR(PrintOut(output.text));
  return output.verdict;
}

Status RunVerdict(const Flags& flags) {
  if (!flags.attempt_dir) return {ErrorKind::kUsage, "verdict needs --attempt-dir=DIR"};
  VerdictRequest request{.attempt_dir = *flags.attempt_dir,
                         .nodelist = ProcessEnvironment()("SLURM_JOB_NODELIST").value_or(""),
                         .json = flags.format == OutputFormat::kJson};
  if (flags.srun_rc) request.srun_rc = static_cast<int>(*flags.srun_rc);
  GACCD_ASSIGN_OR_RETURN(const std::string text, RunVerdictCommand(request));
  return PrintOut(text);
}

Status RunHelp(const Flags& flags) {
  if (flags.help_page != HelpPage::kJob || flags.words.empty()) {
    return PrintOut(HelpText(flags.help_page, flags.help_topic));
  }
  GACCD_ASSIGN_OR_RETURN(const std::string text, JobHelpOf(flags.words[0]));
  return PrintOut(text);
}

WatchRequest WatchRequestOf(const Flags& flags) {
  return {.folder = flags.words.empty() ? "." : flags.words[0],
          .json = flags.format == OutputFormat::kJson,
          .watch = flags.watch};
}

LogsRequest LogsRequestOf(const Flags& flags) {
  return {.folder = flags.words.empty() ? "." : flags.words[0],
          .attempt = flags.attempt.value_or(""),
          .filter = {.rank = flags.rank,
                     .host = flags.host.value_or(""),
                     .least_level = static_cast<int>(flags.level)},
          .events = flags.events,
          .follow = flags.follow};
}

// REQUIRES: the format is one of export.
ExportRequest ExportRequestOf(const Flags& flags) {
  constexpr int kFirst = static_cast<int>(OutputFormat::kCsv);
  return {.folder = flags.words.empty() ? "." : flags.words[0],
          .attempt = flags.attempt.value_or(""),
          .format = static_cast<ExportFormat>(static_cast<int>(flags.format) - kFirst),
          .out = flags.out.value_or("")};
}

Status RunPlainVerb(const Flags& flags) {
  switch (flags.verb) {
    case Verb::kPlan:
      return RunPlan(flags);
    case Verb::kHelp:
      return RunHelp(flags);
    case Verb::kVersion:
      return PrintOut(VersionText(LoadedLibraries()));
    case Verb::kSubmit:
      GACCD_RETURN_IF_ERROR(CheckPlannedDevice(flags));
      return RunSubmitCommand(flags);
    case Verb::kSelftest:
      return RunSelftest(flags);
    case Verb::kCkpt:
      return RunCkpt(flags);
    case Verb::kVerdict:
      return RunVerdict(flags);
    case Verb::kRuns:
      return RunRunsCommand(WatchRequestOf(flags));
    case Verb::kStop:
      return RunRequestCommand(WatchRequestOf(flags), RunRequest::kStop);
    case Verb::kSave:
      return RunRequestCommand(WatchRequestOf(flags), RunRequest::kSave);
    case Verb::kLogs:
      if (flags.compact) return RunThinCommand(WatchRequestOf(flags).folder, *flags.compact);
      return RunLogsCommand(LogsRequestOf(flags));
    case Verb::kExport:
      return RunExportCommand(ExportRequestOf(flags));
    case Verb::kReport:
      return RunReportCommand(
          {.folders = flags.words, .out = flags.out.value_or(""), .language = flags.language});
    case Verb::kPlot:
      return RunPlotCommand(WatchRequestOf(flags).folder);
    case Verb::kTrain:
    case Verb::kEval:
    case Verb::kPredict:
    case Verb::kCheck:
    case Verb::kStatus:
    case Verb::kDoctor:
      break;
  }
  return {ErrorKind::kInternal, StrCat("the verb ", Name(flags.verb), " is not run here")};
}

}  // namespace

Result<int> RunVerb(const Flags& flags) {
  if (flags.verb == Verb::kStatus) return RunStatusCommand(WatchRequestOf(flags));
  if (flags.verb == Verb::kDoctor) return RunDoctorCommand(WatchRequestOf(flags).folder);
  GACCD_RETURN_IF_ERROR(RunPlainVerb(flags));
  return 0;
}

}  // namespace gaccd
