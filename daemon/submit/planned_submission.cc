#include "daemon/submit/planned_submission.h"

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/job_text.h"
#include "daemon/config/make_plan.h"
#include "daemon/inspect/watch/run_state.h"
#include "daemon/rundir/safe_place.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

namespace fs = std::filesystem;

Status Usage(std::string message) { return {ErrorKind::kUsage, std::move(message)}; }

// The plan is for the nodes and ranks of gaccd's own flags; sbatch must not allocate others.
Status CheckJobShape(const Flags& flags) {
  const auto check = [&](std::string_view name, char letter, std::int64_t planned,
                         std::string_view flag) -> Status {
    const auto found = FindOption(flags.words, name, letter);
    if (!found) return {};
    const std::size_t dash = found->find('-');  // "2-4": SLURM decides
    const auto least = ToCount(found->substr(0, dash));
    const auto most = dash == std::string::npos ? least : ToCount(found->substr(dash + 1));
    if (!least || !most || (*least <= planned && planned <= *most)) return {};
    return Usage(StrCat(name, " after --: expected ", planned, ", as in the plan, found ", *found,
                        "; set ", flag, " before --"));
  };
  if (const auto array = FindOption(flags.words, "--array", 'a'); array && !flags.array) {
    return Usage(StrCat("--array ", *array, " after --: all tasks would train in one run folder; ",
                        "gaccd submit --array --set=FIELD=VALUE,VALUE gives each run its own"));
  }
  const std::int64_t nodes = flags.nodes.value_or(kDefaultNodes);
  const std::int64_t ranks = flags.gpus_per_node.value_or(kDefaultGpusPerNode);
  GACCD_RETURN_IF_ERROR(check("--nodes", 'N', nodes, "--nodes"));
  GACCD_RETURN_IF_ERROR(check("--ntasks", 'n', nodes * ranks, "--nodes and --gpus-per-node"));
  return check("--ntasks-per-node", '\0', ranks, "--gpus-per-node");
}

Status CheckWords(const Flags& flags) {
  if (!flags.job) return Usage("submit needs --job=FILE");
  const std::optional<std::string>* const texts[] = {&flags.time, &flags.partition, &flags.account,
                                                     &flags.container_image};
  for (const auto* text : texts) {
    if (*text && HasControlCharacters(**text)) {
      return Usage(StrCat("expected text without control characters, found '", **text, "'"));
    }
  }
  for (const std::string& word : flags.words) {
    if (word.empty() || HasControlCharacters(word)) {
      return Usage(StrCat(
          "a script cannot give sbatch an empty flag or control characters, found '", word, "'"));
    }
    if (flags.exclude_suspects && (word.starts_with("--exclude") || word.starts_with("-x"))) {
      return Usage(StrCat("--exclude-suspects and ", word, " cannot be combined: use one of them"));
    }
  }
  if (!flags.words.empty() && !flags.words[0].starts_with('-')) {
    return Usage(StrCat("unexpected argument '", flags.words[0],
                        "': flags begin with --; arguments after -- are passed to sbatch"));
  }
  if (flags.array && flags.sweep.empty()) {
    std::string fields;
    for (const JobField& field : flags.job_fields) {
      if (field.given.find("--set ") != std::string::npos) fields += StrCat(" '", field.given, "'");
    }
    return Usage(StrCat("--array needs a --set with several values, separated by commas, found",
                        fields.empty() ? " none" : fields));
  }
  return {};
}

// kIo: the folder was removed. Relative paths then have no meaning.
Result<std::string> WorkFolder() {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  if (!error) return folder.string();
  return Status(ErrorKind::kIo, StrCat("the current folder cannot be found: ", error.message(),
                                       ": was it removed? Change to another folder (cd)"));
}

// As WithAbsolutePaths(), in the values of --set.
void UseAbsolutePaths(const std::string& folder, std::vector<std::string>& train_arguments) {
  for (std::size_t i = 1; i < train_arguments.size(); ++i) {
    std::string& word = train_arguments[i];
    if (train_arguments[i - 1] == "--set") word = WithAbsolutePath(word, folder);
  }
}

Result<PlannedSubmission> MakeSubmission(const Flags& flags) {
  if (!flags.run && !flags.run_dir) return Usage("submit needs --run=NAME or --run-dir=DIR");
  PlannedSubmission submission{.name = flags.run.value_or("")};
  GACCD_ASSIGN_OR_RETURN(submission.work_folder, WorkFolder());
  if (flags.run &&
      (submission.name.find('/') != std::string::npos || submission.name.starts_with('.'))) {
    return Usage(
        StrCat("--run: expected a name of a folder without / that does not begin with a "
               "dot, found '",
               submission.name, "'"));
  }
  submission.folder =
      AbsolutePath(flags.run_dir ? fs::path(*flags.run_dir) : fs::path("runs") / submission.name);
  while (submission.folder.size() > 1 && submission.folder.ends_with('/')) {
    submission.folder.pop_back();
  }
  if (!flags.run) submission.name = fs::path(submission.folder).filename();
  GACCD_RETURN_IF_ERROR(CheckRunFolder(submission.folder));
  for (const std::string& mount : {submission.folder, AbsolutePath(ParentFolder(*flags.job))}) {
    if (!flags.container_image || mount.find_first_of(",:") == std::string::npos) continue;
    return Usage(StrCat("a container cannot mount '", mount, "': expected a path without , and :"));
  }
  GACCD_ASSIGN_OR_RETURN(submission.tasks, MakeSweep(flags.sweep));
  GACCD_ASSIGN_OR_RETURN(submission.job, LoadJob(*flags.job));
  submission.train_arguments = flags.train_arguments;
  UseAbsolutePaths(submission.job.folder, submission.train_arguments);
  for (SweepTask& task : submission.tasks) {
    UseAbsolutePaths(submission.job.folder, task.train_arguments);
  }
  return submission;
}

// kConfig for an active run or the files STOP or HOLD; run_dir may not exist yet.
Status CheckIsFree(const std::string& run_dir) {
  GACCD_RETURN_IF_ERROR(CheckSafeRunFolder(run_dir));
  for (const char* name : {"/STOP", "/HOLD"}) {
    if (!PathExists(run_dir + name)) continue;
    return {ErrorKind::kConfig, StrCat("the job would not train: remove '", run_dir, name, "'")};
  }
  const auto state = ReadRunState(run_dir, std::chrono::system_clock::now());
  if (!state.ok()) return {};
  const bool is_active = state->phase == RunPhase::kStarting || state->phase == RunPhase::kRunning;
  if (is_active && !state->no_rank_yet) {
    return {ErrorKind::kConfig, StrCat("job ", state->job, " is training in '", run_dir,
                                       "': stop it first (gaccd stop), or give another --run")};
  }
  if (state->phase == RunPhase::kDone) {
    LogWarning(StrCat("the run in '", run_dir,
                      "' is complete: it only continues if the job has more epochs"));
  }
  if (state->phase == RunPhase::kSubmitted || state->no_rank_yet) {
    LogWarning(
        StrCat("job ", state->no_rank_yet ? state->job : state->submitted, " of '", run_dir,
               "' has not begun: if it is still pending, it will use the new job text, too"));
  }
  return {};
}

std::string PlanLine(const Plan& plan, bool by_memory) {
  const PlanRequest& request = plan.request();
  const std::string steps = by_memory ? "as many micro-steps as the memory requires"
                                      : Counted(plan.accum_steps(), "micro-step");
  return StrCat(Counted(request.nodes, "node"), " x ", request.gpus_per_node, " = ",
                Counted(plan.world(), "rank"), ", ", Counted(plan.effective_batch(), "sample"),
                " an update (target ", request.target_batch, ") in ", steps);
}

// Plans and checks every run, and logs each warning once. Returns the line of the first one.
Result<std::string> PlanRuns(const Flags& flags, const PlannedSubmission& submission,
                             const PlannedRunCheck& check) {
  std::string line;
  std::set<std::string> warned;
  std::map<std::string, std::string> folders;  // by the text of the job
  const std::vector<SweepTask> one(1);
  for (const SweepTask& task : submission.tasks.empty() ? one : submission.tasks) {
    Flags with = flags;
    with.job_fields.insert(with.job_fields.end(), task.job_fields.begin(), task.job_fields.end());
    with.format = OutputFormat::kText;
    GACCD_ASSIGN_OR_RETURN(const PlanOutput output, MakePlanOutput(with));
    GACCD_RETURN_IF_ERROR(output.verdict);
    GACCD_RETURN_IF_ERROR(check(output.job, output.plan));
    // Different words may have the same meaning: "1" and "01", or the same field set twice.
    const auto [same, is_new] = folders.try_emplace(JobText(output.job), task.folder);
    if (!is_new) {
      return Usage(StrCat("--array: expected runs that differ, found ", same->second, " and ",
                          task.folder, " with the same job"));
    }
    if (line.empty()) line = PlanLine(output.plan, with.micro_batch_auto);
    for (const std::string& warning : BatchWarnings(output.job.batch, output.plan)) {
      if (warned.insert(warning).second) LogWarning(warning);
    }
  }
  if (!submission.tasks.empty()) {
    line += StrCat("; the first of ", submission.tasks.size(), " runs");
  }
  return line;
}

}  // namespace

std::vector<std::string> PlannedSubmission::RunFolders() const {
  if (tasks.empty()) return {folder};
  std::vector<std::string> folders;
  for (const SweepTask& task : tasks) folders.push_back(StrCat(folder, "/", task.folder));
  return folders;
}

Result<PlannedSubmission> PlanSubmission(const Flags& flags, const PlannedRunCheck& check) {
  GACCD_RETURN_IF_ERROR(CheckWords(flags));
  GACCD_RETURN_IF_ERROR(CheckJobShape(flags));
  GACCD_ASSIGN_OR_RETURN(PlannedSubmission submission, MakeSubmission(flags));
  for (const std::string& folder : submission.RunFolders()) {
    GACCD_RETURN_IF_ERROR(CheckIsFree(folder));
  }
  GACCD_ASSIGN_OR_RETURN(submission.plan, PlanRuns(flags, submission, check));
  return submission;
}

}  // namespace gaccd
