// gaccd: reads the command line, runs one verb, and turns its Status into the exit code.
#include <google/protobuf/stubs/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/print.h"
#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/ckpt_command.h"
#include "daemon/config/flags.h"
#include "daemon/config/help.h"
#include "daemon/config/plan_command.h"
#include "daemon/export/export_command.h"
#include "daemon/selftest/selftest_command.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/check.h"
#include "daemon/train/run.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/verdict_command.h"
#include "daemon/watch/doctor.h"
#include "daemon/watch/logs_command.h"
#include "daemon/watch/watch_command.h"

namespace {

using gaccd::ErrorKind;
using gaccd::Flags;
using gaccd::PrintOut;
using gaccd::Result;
using gaccd::Status;
using gaccd::Verb;

Status RunPlan(const Flags& flags) {
  GACCD_RETURN_IF_ERROR(gaccd::CheckPlannedDevice(flags));
  GACCD_ASSIGN_OR_RETURN(const gaccd::PlanOutput output, gaccd::MakePlanOutput(flags));
  if (flags.job) {
    for (const std::string& warning : gaccd::ScheduleWarnings(output.job, output.plan)) {
      gaccd::LogWarning(warning);
    }
  }
  GACCD_RETURN_IF_ERROR(PrintOut(output.text));
  return output.verdict;
}

Status RunCkpt(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(gaccd::CkptRequest request,
                         gaccd::MakeCkptRequest(flags.words, flags.out.value_or(""),
                                                {.newest = flags.keep, .every = flags.keep_every}));
  request.json = flags.format == gaccd::OutputFormat::kJson;
  if (flags.group_access) request.out_mode = gaccd::kGroupMayRead.file;
  GACCD_ASSIGN_OR_RETURN(const gaccd::CkptOutput output, gaccd::RunCkptCommand(request));
  GACCD_RETURN_IF_ERROR(PrintOut(output.text));
  return output.verdict;
}

Status RunVerdict(const Flags& flags) {
  if (!flags.attempt_dir) return {ErrorKind::kUsage, "verdict needs --attempt-dir=DIR"};
  gaccd::VerdictRequest request{
      .attempt_dir = *flags.attempt_dir,
      .nodelist = gaccd::ProcessEnvironment()("SLURM_JOB_NODELIST").value_or(""),
      .json = flags.format == gaccd::OutputFormat::kJson};
  if (flags.srun_rc) request.srun_rc = static_cast<int>(*flags.srun_rc);
  GACCD_ASSIGN_OR_RETURN(const std::string text, gaccd::RunVerdictCommand(request));
  return PrintOut(text);
}

gaccd::WatchRequest WatchRequestOf(const Flags& flags) {
  return {.folder = flags.words.empty() ? "." : flags.words[0],
          .json = flags.format == gaccd::OutputFormat::kJson,
          .watch = flags.watch};
}

gaccd::LogsRequest LogsRequestOf(const Flags& flags) {
  return {.folder = flags.words.empty() ? "." : flags.words[0],
          .attempt = flags.attempt.value_or(""),
          .filter = {.rank = flags.rank,
                     .host = flags.host.value_or(""),
                     .least_level = static_cast<int>(flags.level)},
          .events = flags.events,
          .follow = flags.follow};
}

// REQUIRES: the format is one of export.
gaccd::ExportRequest ExportRequestOf(const Flags& flags) {
  constexpr int kFirst = static_cast<int>(gaccd::OutputFormat::kCsv);
  return {.folder = flags.words.empty() ? "." : flags.words[0],
          .attempt = flags.attempt.value_or(""),
          .format = static_cast<gaccd::ExportFormat>(static_cast<int>(flags.format) - kFirst),
          .out = flags.out.value_or("")};
}

// Every verb but status, doctor and those of many ranks, which print their own errors.
Status RunVerb(const Flags& flags) {
  switch (flags.verb) {
    case Verb::kPlan:
      return RunPlan(flags);
    case Verb::kHelp:
      return PrintOut(gaccd::HelpText(flags.help_topic, flags.help_job));
    case Verb::kVersion:
      return PrintOut(gaccd::VersionText(gaccd::LoadedLibraries()));
    case Verb::kSelftest:
      return gaccd::RunSelftest(flags);
    case Verb::kCkpt:
      return RunCkpt(flags);
    case Verb::kVerdict:
      return RunVerdict(flags);
    case Verb::kRuns:
      return gaccd::RunRunsCommand(WatchRequestOf(flags));
    case Verb::kStop:
      return gaccd::RunRequestCommand(WatchRequestOf(flags), gaccd::RunRequest::kStop);
    case Verb::kSave:
      return gaccd::RunRequestCommand(WatchRequestOf(flags), gaccd::RunRequest::kSave);
    case Verb::kLogs:
      return gaccd::RunLogsCommand(LogsRequestOf(flags));
    case Verb::kExport:
      return gaccd::RunExportCommand(ExportRequestOf(flags));
    case Verb::kTrain:
    case Verb::kCheck:
    case Verb::kStatus:
    case Verb::kDoctor:
      break;
  }
  return {ErrorKind::kInternal, "unknown verb"};
}

// "rank 17 on node3: " as far as the launcher says so, which is before MPI knows.
std::string WhoAmI() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr && std::getenv("SLURM_STEP_ID") != nullptr) {
    rank = std::getenv("SLURM_PROCID");
  }
  if (rank == nullptr) return {};
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) return gaccd::StrCat("rank ", rank, ": ");
  return gaccd::StrCat("rank ", rank, " on ", host.data(), ": ");
}

// `verb`: the help of which explains the command line.
void PrintError(const Status& status, const std::string& who, std::string_view verb) {
  if (status.message().empty()) return;  // the reader of the output is gone
  std::string hint;
  if (verb == Name(Verb::kHelp)) verb = {};
  if (status.kind() == ErrorKind::kUsage) {
    hint = gaccd::StrCat("Try: gaccd help", verb.empty() ? "" : " ", verb, "\n");
  }
  // One write, so that the lines of many ranks do not mix.
  const std::string line = gaccd::StrCat(
      "gaccd: ", gaccd::Printable(who), "error (", gaccd::ErrorKindName(status.kind()), ", exit ",
      static_cast<int>(status.kind()), "): ", gaccd::Printable(status.message()), "\n", hint);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int ExitCode(const Status& status) { return status.ok() ? 0 : static_cast<int>(status.kind()); }

// --group-access is stronger than a umask that takes the group's rights away.
void LetGroupRead() {
  const mode_t mask = ::umask(077);
  ::umask(mask & ~static_cast<mode_t>(S_IRGRP | S_IXGRP));
}

// Of arguments that do not parse; empty when there is none.
std::string_view VerbOf(std::span<char*> args) {
  if (args.size() < 2) return {};
  const auto verb = gaccd::ParseVerb(args[1]);
  return verb.ok() ? Name(*verb) : std::string_view();
}

int Run(int argc, char** argv) {
  const Result<Flags> flags = gaccd::ParseFlags(argc, argv);
  const std::string_view name =
      flags.ok() ? Name(flags->verb) : VerbOf({argv, static_cast<std::size_t>(argc)});
  if (flags.ok() && flags->group_access) LetGroupRead();
  if (flags.ok() && (flags->verb == Verb::kTrain || flags->verb == Verb::kCheck)) {
    const auto verb = flags->verb == Verb::kTrain ? gaccd::RunTrain : gaccd::RunCheck;
    const gaccd::RanksOutcome outcome =
        verb(*flags, [name](const Status& status) { PrintError(status, "", name); });
    if (!outcome.status.ok() && !outcome.printed) PrintError(outcome.status, WhoAmI(), name);
    return ExitCode(outcome.status);
  }
  if (flags.ok() && (flags->verb == Verb::kStatus || flags->verb == Verb::kDoctor)) {
    const gaccd::WatchRequest request = WatchRequestOf(*flags);
    const Result<int> exit = flags->verb == Verb::kStatus ? gaccd::RunStatusCommand(request)
                                                          : gaccd::RunDoctorCommand(request.folder);
    if (exit.ok()) return *exit;
    PrintError(exit.status(), "", name);
    return ExitCode(exit.status());
  }
  const Status status = flags.ok() ? RunVerb(*flags) : flags.status();
  if (!status.ok()) PrintError(status, WhoAmI(), name);
  return ExitCode(status);
}

}  // namespace

int main(int argc, char** argv) {
  google::protobuf::SetLogHandler(nullptr);  // what it says of a damaged file, our errors say
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves is an error of the write, see PrintOut
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // of a library, or out of memory; ours throws nothing
    std::fprintf(stderr, "gaccd: error (internal, exit 70): %s\n",
                 gaccd::Printable(error.what()).c_str());
    return static_cast<int>(ErrorKind::kInternal);
  }
}
