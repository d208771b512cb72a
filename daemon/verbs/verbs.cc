#include "daemon/verbs/verbs.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "daemon/checkpoint/ckpt_command.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/config/make_plan.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/infer/commands.h"
#include "daemon/inspect/export/exports.h"
#include "daemon/inspect/report/plot.h"
#include "daemon/inspect/report/report_command.h"
#include "daemon/inspect/watch/doctor.h"
#include "daemon/inspect/watch/logs_command.h"
#include "daemon/inspect/watch/watch_command.h"
#include "daemon/launch/device_choice.h"
#include "daemon/models/graph_network.h"
#include "daemon/selftest/selftest.h"
#include "daemon/submit/submit_command.h"
#include "daemon/submit/verdict_command.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/training_run.h"
#include "daemon/verbs/planned_run.h"

namespace gaccd {
namespace {

// For `gaccd version`: MPI, oneDNN, CUDA's libraries and NCCL, as loaded and as compiled with.
std::vector<Version> LoadedLibraries() {
  std::vector<Version> versions = {{"MPI", MpiVersion()}, {"oneDNN", OneDnnVersion()}};
  for (const LibraryVersions& library : GpuLibraries()) {
    // "NCCL 2.28.9 (compiled with 2.28.9)" without the name.
    std::string text = ToText(library).substr(library.name.size() + 1);
    if (!CheckNotOlder({&library, 1}).ok()) text += "; older, so it is refused";
    versions.emplace_back(library.name, std::move(text));
  }
  if (versions.size() == 2) versions.emplace_back("CUDA", "not built in");
  return versions;
}

// kConfig, with their names, if the job's device is cuda and its model has functions that GPUs do
// not support.
Status CheckPlannedDevice(const Flags& flags) {
  if (!flags.job) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  GACCD_ASSIGN_OR_RETURN(job, WithGraphDigest(std::move(job)));
  return job.device == Device::kCuda ? CheckModelOnGpu(job) : Status::Ok();
}

Status RunPlan(const Flags& flags) {
  GACCD_RETURN_IF_ERROR(CheckPlannedDevice(flags));
  std::string memory;
  const auto choose = [&](const Job& job, const Plan& one_step) {
    return ChoosePlan(job, one_step, flags, &memory);
  };
  GACCD_ASSIGN_OR_RETURN(const PlanOutput output, MakePlanOutput(flags, choose));
  if (output.verdict.ok()) {
    for (const std::string& warning : BatchWarnings(output.job.batch, output.plan)) {
      LogWarning(warning);
    }
  }
  if (flags.job) {
    for (const std::string& warning : ScheduleWarnings(output.job, output.plan)) {
      LogWarning(warning);
    }
  }
  const bool prints_run = flags.job && flags.format == OutputFormat::kText;
  Status run;
  const std::string run_text =
      prints_run ? PlannedRunText(output.job, output.plan, flags, &run) + memory : "";
  GACCD_RETURN_IF_ERROR(PrintOut(output.text + run_text));
  return output.verdict.ok() ? run : output.verdict;
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
  GACCD_ASSIGN_OR_RETURN(const std::string text, JobFieldHelp(flags.words[0]));
  return PrintOut(text);
}

std::string FolderArgument(const Flags& flags) {
  return flags.words.empty() ? "." : flags.words[0];
}

WatchRequest MakeWatchRequest(const Flags& flags) {
  return {.folder = FolderArgument(flags),
          .json = flags.format == OutputFormat::kJson,
          .watch = flags.watch};
}

// The error with which a training would fail with the files of this machine; only a warning for a
// container image, which may have other files.
Status CheckPlannedRun(const Flags& flags, const Job& job, const Plan& plan) {
  Status error;
  [[maybe_unused]] const std::string text = PlannedRunText(job, plan, flags, &error);
  if (error.ok() || !flags.container_image) return error;
  LogWarning(StrCat("with the files that are here the training would end with: ", error.message()));
  return {};
}

Status RunSubmit(const Flags& flags) {
  GACCD_RETURN_IF_ERROR(CheckPlannedDevice(flags));
  return RunSubmitCommand(
      flags, [&](const Job& job, const Plan& plan) { return CheckPlannedRun(flags, job, plan); });
}

Status RunLogs(const Flags& flags) {
  if (flags.compact) return RunThinCommand(FolderArgument(flags), *flags.compact);
  return RunLogsCommand({.folder = FolderArgument(flags),
                         .attempt = flags.attempt.value_or(""),
                         .filter = {.rank = flags.rank,
                                    .host = flags.host.value_or(""),
                                    .least_level = static_cast<int>(flags.level)},
                         .events = flags.events,
                         .follow = flags.follow});
}

// REQUIRES: the format is one of export.
Status RunExport(const Flags& flags) {
  constexpr int kFirst = static_cast<int>(OutputFormat::kCsv);
  return RunExportCommand(
      {.folder = FolderArgument(flags),
       .attempt = flags.attempt.value_or(""),
       .format = static_cast<ExportFormat>(static_cast<int>(flags.format) - kFirst),
       .out = flags.out.value_or("")});
}

Status RunReport(const Flags& flags) {
  return RunReportCommand(
      {.folders = flags.words, .out = flags.out.value_or(""), .language = flags.language});
}

using PlainVerb = Status (*)(const Flags&);  // exit code 0, or that of the error
using ExitVerb = Result<int> (*)(const Flags&);
using RanksVerb = VerbOutcome (*)(const Flags&, const ErrorPrinter&);
struct VerbRun {
  Verb verb;
  std::variant<PlainVerb, ExitVerb, RanksVerb> run;
};

constexpr VerbRun kVerbRuns[] = {
    {Verb::kPlan, RunPlan},
    {Verb::kTrain, RunTrain},
    {Verb::kSubmit, RunSubmit},
    {Verb::kEval, RunEval},
    {Verb::kPredict, RunPredict},
    {Verb::kSamples, RunSamplesCommand},
    {Verb::kData, RunDataCommand},
    {Verb::kSelftest, RunSelftest},
    {Verb::kCheck, RunCheck},
    {Verb::kCkpt, RunCkpt},
    {Verb::kVerdict, RunVerdict},
    {Verb::kStatus, [](const Flags& flags) { return RunStatusCommand(MakeWatchRequest(flags)); }},
    {Verb::kRuns, [](const Flags& flags) { return RunRunsCommand(MakeWatchRequest(flags)); }},
    {Verb::kStop,
     [](const Flags& flags) {
       return RunRequestCommand(MakeWatchRequest(flags), RunRequest::kStop);
     }},
    {Verb::kSave,
     [](const Flags& flags) {
       return RunRequestCommand(MakeWatchRequest(flags), RunRequest::kSave);
     }},
    {Verb::kLogs, RunLogs},
    {Verb::kDoctor, [](const Flags& flags) { return RunDoctorCommand(FolderArgument(flags)); }},
    {Verb::kExport, RunExport},
    {Verb::kReport, RunReport},
    {Verb::kPlot, [](const Flags& flags) { return RunPlotCommand(FolderArgument(flags)); }},
    {Verb::kHelp, RunHelp},
    {Verb::kVersion, [](const Flags&) { return PrintOut(VersionText(LoadedLibraries())); }}};
static_assert(HasEveryVerb(kVerbRuns));

}  // namespace

VerbOutcome RunVerb(const Flags& flags, const ErrorPrinter& print) {
  const auto& run = kVerbRuns[static_cast<std::size_t>(flags.verb)].run;
  if (const auto* on_ranks = std::get_if<RanksVerb>(&run)) return (*on_ranks)(flags, print);
  if (const auto* exits = std::get_if<ExitVerb>(&run)) return {(*exits)(flags)};
  const Status status = std::get<PlainVerb>(run)(flags);
  if (status.ok()) return {};
  return {status};
}

}  // namespace gaccd
