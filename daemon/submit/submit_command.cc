#include "daemon/submit/submit_command.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/config/job_text.h"
#include "daemon/inspect/watch/doctor.h"
#include "daemon/rundir/host_names.h"
#include "daemon/rundir/ledger.h"
#include "daemon/stop/stop_requests.h"
#include "daemon/submit/sbatch_script.h"
#include "daemon/submit/signal_lead.h"
#include "daemon/submit/slurm_site.h"
#include "daemon/submit/start_checks.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/log.h"
#include "slurm/commands.h"
#include "slurm/launch_text.h"

namespace gaccd {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience{100};  // slurmctld may be busy
// Variables of slurm/launch that the script sets to their current values.
constexpr const char* kLaunchVariables[] = {"GACCD_MPI", "GACCD_CHECK", "GACCD_MAX_REQUEUE",
                                            "GACCD_COMMENT"};

// Runs SLURM's query programs. Warns once if one fails: the others mostly fail for the same reason.
class SiteQueries {
 public:
  // The output of the program; empty if it fails.
  std::string Run(const std::vector<std::string>& words) {
    const auto answer = RunProgram(words, "", kPatience);
    if (answer.ok() && answer->exit == 0) return answer->out + answer->err;
    if (!warned_) {
      LogWarning(StrCat("SLURM gave no answer: ", answer.ok() ? StrCat(words[0], ": ", answer->err)
                                                              : answer.status().message()));
    }
    warned_ = true;
    return {};
  }

 private:
  bool warned_ = false;
};

// Whether the job uses GPUs; with device auto, whether the nodes have some.
bool WantsGpus(const Flags& flags, Device device, SiteQueries& slurm) {
  if (device != Device::kAuto) return device == Device::kCuda;
  std::vector<std::string> words = {"sinfo", "--noheader", "--format=%G"};
  const std::string partition = GetPartition(flags);
  if (!partition.empty()) words.push_back("--partition=" + partition);
  const bool gpus = slurm.Run(words).find("gpu") != std::string::npos;
  return gpus;
}

SiteOutputs QuerySite(SiteQueries& slurm) {
  return {.partitions = slurm.Run({"scontrol", "--oneliner", "show", "partition"}),
          .mpi_types = slurm.Run({"srun", "--mpi=list"}),
          .config = slurm.Run({"scontrol", "show", "config"})};
}

void LogSiteWarnings(const Flags& flags, const SiteOutputs& site) {
  const char* mpi = std::getenv("GACCD_MPI");
  for (const std::string& warning :
       SiteWarnings(site, GetPartition(flags), mpi == nullptr ? "pmix" : mpi)) {
    LogWarning(warning);
  }
}

// Hosts suspected by earlier attempts: "n3,n7".
std::string FindSuspects(const std::vector<std::string>& run_folders) {
  std::set<std::string> hosts;
  for (const std::string& folder : run_folders) {
    const auto diagnosis = Diagnose(folder, std::chrono::system_clock::now());
    if (!diagnosis.ok()) {
      const bool is_new = diagnosis.status().kind() == ErrorKind::kUsage;
      if (!is_new) LogWarning(StrCat("--exclude-suspects: ", diagnosis.status().message()));
      continue;
    }
    for (const SuspectHost& one : diagnosis->suspects) {
      if (!SafeHosts(one.host).empty()) hosts.insert(one.host);
    }
  }
  if (hosts.empty()) LogWarning("--exclude-suspects: no earlier attempt suspects a host");
  return Join(hosts, ",");
}

Result<SignalLead> FindLead(const Flags& flags, const PlannedSubmission& submission,
                            const SiteOutputs& site) {
  GACCD_ASSIGN_OR_RETURN(std::optional<std::int64_t> limit, GivenTimeLimit(flags));
  const bool given = flags.time || FindOption(flags.words, "--time", 't');
  if (!given) limit = DefaultTimeLimit(site, GetPartition(flags));
  std::optional<MeasuredTimes> longest;
  for (const std::string& folder : submission.RunFolders()) {
    const auto times = MeasureRun(folder);
    if (!times) continue;
    if (!longest) longest.emplace();
    longest->update_p99_s = std::max(longest->update_p99_s, times->update_p99_s);
    longest->save_s = std::max(longest->save_s, times->save_s);
  }
  SignalLead lead = ComputeLead(longest, limit);
  if (lead.short_time) LogWarning("the time limit is short for the saves: " + lead.reason);
  return lead;
}

// The signal with which SLURM announces the end of the job: SIGUSR2, or the first of `stops` that
// is not SIGTERM. After SIGTERM, as from scancel, the ranks expect SIGKILL within --term-budget,
// not at the job's end. Empty: none.
std::optional<int> AnnouncingSignal(const std::vector<int>& stops) {
  if (std::ranges::find(stops, SIGUSR2) != stops.end()) return SIGUSR2;
  const auto first = std::ranges::find_if(stops, [](int signal) { return signal != SIGTERM; });
  return first == stops.end() ? std::nullopt : std::optional(*first);
}

std::vector<std::pair<std::string, std::string>> MakeVariables(const Flags& flags) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const char* name : kLaunchVariables) {
    if (const char* value = std::getenv(name)) variables.emplace_back(name, value);
  }
  const char* given = std::getenv("GACCD");
  if (!flags.container_image) {
    std::error_code ignored;
    const fs::path self = fs::read_symlink("/proc/self/exe", ignored);
    variables.emplace_back("GACCD", given == nullptr ? self.string() : given);
    return variables;
  }
  if (given != nullptr) variables.emplace_back("GACCD", given);
  variables.emplace_back("GACCD_CONTAINER", *flags.container_image);
  // The job in the run folder refers to data next to the job text.
  const std::string data = AbsolutePath(ParentFolder(*flags.job));
  const char* mounts = std::getenv("GACCD_CONTAINER_MOUNTS");
  variables.emplace_back(
      "GACCD_CONTAINER_MOUNTS",
      StrCat(data, ":", data, mounts == nullptr ? "" : ",", mounts == nullptr ? "" : mounts));
  return variables;
}

// Logs the problems of every run, each once.
Status LogStartProblems(const Flags& flags, const PlannedSubmission& submission,
                        const SiteOutputs& site, bool gpus) {
  std::set<std::string> logged;
  const std::vector<SweepTask> one(1);
  for (const SweepTask& task : submission.tasks.empty() ? one : submission.tasks) {
    Flags with = flags;
    with.job_fields.insert(with.job_fields.end(), task.job_fields.begin(), task.job_fields.end());
    GACCD_ASSIGN_OR_RETURN(const Job job, OverlayFlags(submission.job, with));
    GACCD_ASSIGN_OR_RETURN(const auto problems, StartProblems(with, job, site, gpus));
    for (const std::string& problem : problems) {
      if (logged.insert(problem).second) LogWarning(problem);
    }
  }
  return {};
}

Result<SbatchScript> MakeScript(const Flags& flags, const PlannedSubmission& submission,
                                const SiteOutputs& site, SiteQueries& slurm) {
  SbatchScript script;
  script.plan = submission.plan;
  GACCD_ASSIGN_OR_RETURN(const SignalLead lead, FindLead(flags, submission, site));
  GACCD_ASSIGN_OR_RETURN(const Job job, OverlayFlags(submission.job, flags));
  script.job_name = SafeJobName(submission.name);
  script.nodes = flags.nodes.value_or(kDefaultNodes);
  script.ranks_per_node = flags.gpus_per_node.value_or(kDefaultGpusPerNode);
  script.gpus = WantsGpus(flags, job.device, slurm);
  script.time = flags.time.value_or("");
  script.partition = flags.partition.value_or("");
  script.account = flags.account.value_or("");
  if (flags.exclude_suspects) script.exclude = FindSuspects(submission.RunFolders());
  script.more_flags = flags.words;
  script.lead_s = lead.seconds;
  script.lead_reason = lead.reason;
  GACCD_ASSIGN_OR_RETURN(const std::vector<int> signals, ParseSignals(flags.stop_signals));
  if (const auto signal = AnnouncingSignal(signals)) {
    script.signal = SignalName(*signal).substr(3);
  } else {
    script.lead_s = 0;
    script.lead_reason =
        "No signal before the end: SIGTERM is also that of scancel, after which SIGKILL comes "
        "sooner. The ranks stop by the job's end time.";
  }
  script.folder = submission.folder;
  script.work_folder = submission.work_folder;
  script.variables = MakeVariables(flags);
  if (const auto rules = ReadRequeueRules(site)) {
    script.expedite = rules->may_expedite;
    script.requeue_note = rules->Text();
  }
  script.train_arguments = submission.train_arguments;
  script.chain = flags.chain > 1;
  script.tasks = submission.tasks;
  GACCD_RETURN_IF_ERROR(LogStartProblems(flags, submission, site, script.gpus));
  return script;
}

Status WriteFiles(const PlannedSubmission& submission, const std::string& script,
                  const Modes& modes) {
  for (const std::string& folder : submission.RunFolders()) {
    GACCD_RETURN_IF_ERROR(MakeFolders(folder, modes.folder));
  }
  const std::string job =
      StrCat("# Written by gaccd submit.\n", JobText(WithAbsolutePaths(submission.job)));
  const std::pair<std::string_view, std::string_view> files[] = {
      {kJobFile, job}, {kLaunchFile, LaunchText()}, {kScriptFile, script}};
  for (const auto& [name, text] : files) {
    GACCD_RETURN_IF_ERROR(ReplaceFile(StrCat(submission.folder, name), text, true, modes.file));
  }
  return {};
}

// The job id: "17" in the output "17;cluster". Plugins and wrappers of a site may print lines
// before.
Result<std::string> Sbatch(const std::vector<std::string>& words) {
  const auto ran = RunProgram(words, "", kPatience);
  if (!ran.ok() && ran.status().kind() == ErrorKind::kUnavailable) {
    return Status(ErrorKind::kUnavailable,
                  StrCat(ran.status().message(),
                         "; the job may be queued all the same: check with squeue --me"));
  }
  if (!ran.ok()) return ran.status();
  const ProgramOutput& output = *ran;
  const std::size_t end = output.out.find_last_not_of('\n');
  const std::size_t before = output.out.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::string id = output.out.substr(begin, output.out.find_first_of(";\n", begin) - begin);
  if (output.exit == 0 && !id.empty() && id.find_first_not_of("0123456789") == std::string::npos) {
    return id;
  }
  return Status(ErrorKind::kOs, StrCat("sbatch: exit ", output.exit, ": ", output.err, output.out));
}

// Adds the jobs of the chain to *jobs, also if a later one fails.
Status SubmitAll(const Flags& flags, const PlannedSubmission& submission,
                 std::vector<std::string>* jobs) {
  for (std::int64_t link = 0; link < flags.chain; ++link) {
    std::vector<std::string> words = {"sbatch", "--parsable"};
    if (!jobs->empty()) words.push_back("--dependency=afterany:" + jobs->back());
    words.push_back(StrCat(submission.folder, kScriptFile));
    GACCD_ASSIGN_OR_RETURN(std::string job, Sbatch(words));
    jobs->push_back(std::move(job));
  }
  return {};
}

std::string JoinJobs(const std::vector<std::string>& jobs, const std::string& suffix) {
  std::string list;
  for (const std::string& job : jobs) list += StrCat(list.empty() ? "" : ",", job, suffix);
  return list;
}

// Records the jobs in each run folder and prints them, whatever fails: they are queued. Returns the
// first error. at: before the first one.
Status Record(const Flags& flags, const PlannedSubmission& submission, const std::string& at,
              const std::vector<std::string>& jobs, const Modes& modes) {
  Status recorded;
  std::string text;
  const std::vector<std::string> folders = submission.RunFolders();
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const std::string list = JoinJobs(jobs, submission.tasks.empty() ? "" : StrCat("_", i));
    const Status one = AppendSubmission(folders[i], {at, list}, modes.file);
    if (recorded.ok() && !one.ok()) {
      recorded = {one.kind(),
                  StrCat("job ", list, " is submitted, but not recorded: ", one.message())};
    }
    if (flags.format == OutputFormat::kJson) {
      JsonObject out;
      out("folder", folders[i]);
      out("jobs", list);
      out("script", StrCat(submission.folder, kScriptFile));
      text += out.Finish() + "\n";
    } else {
      text += StrCat("submitted: job ", list, ", ", Printable(folders[i]), "\n");
    }
  }
  const Status printed = PrintOut(text);
  return recorded.ok() ? printed : recorded;
}

Status TestOnly(const std::string& script) {
  GACCD_ASSIGN_OR_RETURN(const ProgramOutput output,
                         RunProgram({"sbatch", "--test-only"}, script, kPatience));
  const std::string text = output.err + output.out;
  if (output.exit == 0) return PrintOut(text);
  return {ErrorKind::kOs, StrCat("sbatch --test-only: exit ", output.exit, ": ", text)};
}

}  // namespace

Status RunSubmitCommand(const Flags& flags, const PlannedRunCheck& check) {
  GACCD_ASSIGN_OR_RETURN(const PlannedSubmission submission, PlanSubmission(flags, check));
  SiteQueries slurm;
  const SiteOutputs site = QuerySite(slurm);
  GACCD_ASSIGN_OR_RETURN(const SbatchScript script, MakeScript(flags, submission, site, slurm));
  LogSiteWarnings(flags, site);
  for (const std::string& name : OverridingVariables(script)) ::unsetenv(name.c_str());
  const std::string text = Render(script);
  const bool print_only = flags.dry_run || flags.test_only;
  if (print_only || flags.format != OutputFormat::kJson) GACCD_RETURN_IF_ERROR(PrintOut(text));
  if (flags.dry_run) return {};
  if (flags.test_only) return TestOnly(text);
  const Modes modes = flags.group_access ? kGroupMayRead : Modes{};
  GACCD_RETURN_IF_ERROR(WriteFiles(submission, text, modes));
  const std::string at = Timestamp();
  std::vector<std::string> jobs;
  const Status submitted = SubmitAll(flags, submission, &jobs);
  if (jobs.empty()) return submitted;
  const Status recorded = Record(flags, submission, at, jobs, modes);
  return submitted.ok() ? recorded : submitted;
}

}  // namespace gaccd
