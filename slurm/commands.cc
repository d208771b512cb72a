#include "slurm/commands.h"

#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"

namespace gaccd {

namespace {

constexpr std::chrono::milliseconds kPollInterval{10};

bool IsJobVariable(std::string_view variable) {
  constexpr std::string_view kPrefixes[] = {"SLURM_", "PMI_", "PMIX_", "PMI2_", "OMPI_", "PRTE_"};
  // Where the cluster is, and the user's token for it.
  const bool of_user = variable.starts_with("SLURM_CONF=") || variable.starts_with("SLURM_JWT=");
  return !of_user &&
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return variable.starts_with(prefix); });
}

// Defaults for flags of SLURM's query programs, such as SQUEUE_PARTITION: a user's filter would
// hide the job that is asked for.
bool IsQueryVariable(std::string_view variable) {
  constexpr std::string_view kPrefixes[] = {"SQUEUE_", "SACCT_", "SINFO_"};
  return std::ranges::any_of(kPrefixes, [&](auto prefix) { return variable.starts_with(prefix); });
}

std::vector<char*> EnvironmentForProgram() {
  std::vector<char*> kept;
  const bool in_job = std::getenv("SLURM_JOB_ID") != nullptr;
  for (char** one = environ; *one != nullptr; ++one) {
    if (!IsQueryVariable(*one) && !(in_job && IsJobVariable(*one))) kept.push_back(*one);
  }
  kept.push_back(nullptr);
  return kept;
}

// A file in memory, so that neither side waits for the other.
Result<FileDescriptor> MemoryFile(std::string_view text) {
  FileDescriptor file(::memfd_create("gaccd", MFD_CLOEXEC));
  if (!file.valid()) return Status(ErrorKind::kOs, StrCat("memfd_create: ", std::strerror(errno)));
  GACCD_RETURN_IF_ERROR(WriteAll(file.get(), text, "memfd"));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return ErrnoStatus("cannot read", "memfd");
  return file;
}

Result<std::string> ReadText(const FileDescriptor& file) {
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return ErrnoStatus("cannot read", "memfd");
  return ReadStart(file.get(), "memfd", kMaxTextBytes);
}

// The exit code; empty if the child has not ended by `end`.
Result<std::optional<int>> WaitUntil(pid_t child, std::chrono::steady_clock::time_point end) {
  while (true) {
    int state = 0;
    const pid_t ended = ::waitpid(child, &state, WNOHANG);
    if (ended == child) {
      return std::optional(WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state));
    }
    // Also of an end that was lost, because this process ignores SIGCHLD.
    if (ended < 0) return Status(ErrorKind::kOs, StrCat("waitpid: ", std::strerror(errno)));
    if (std::chrono::steady_clock::now() > end) return std::optional<int>();
    std::this_thread::sleep_for(kPollInterval);
  }
}

Result<pid_t> Start(const std::vector<std::string>& words,
                    const FileDescriptor* const (&files)[3]) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  for (int i = 0; i < 3; ++i) ::posix_spawn_file_actions_adddup2(&actions, files[i]->get(), i);
  sigset_t defaults;  // gaccd ignores SIGPIPE
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment = EnvironmentForProgram();
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(),
                                   environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error == 0) return child;
  return Status(ErrorKind::kOs, StrCat("cannot start ", words[0], ": ", std::strerror(error)));
}

}  // namespace

Result<ProgramOutput> RunProgram(const std::vector<std::string>& words, const std::string& input,
                                 std::chrono::seconds limit) {
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor in, MemoryFile(input));
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor out, MemoryFile(""));
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor err, MemoryFile(""));
  GACCD_ASSIGN_OR_RETURN(const pid_t child, Start(words, {&in, &out, &err}));
  GACCD_ASSIGN_OR_RETURN(const auto exit,
                         WaitUntil(child, std::chrono::steady_clock::now() + limit));
  if (!exit) {
    ::kill(child, SIGKILL);
    int state = 0;
    ::waitpid(child, &state, 0);
    return Status(ErrorKind::kUnavailable,
                  StrCat(words[0], " gave no answer within ", limit.count(), " s"));
  }
  ProgramOutput output{.exit = *exit};
  GACCD_ASSIGN_OR_RETURN(output.out, ReadText(out));
  GACCD_ASSIGN_OR_RETURN(output.err, ReadText(err));
  return output;
}

namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::size_t kMaxIds = 1000;  // of one command line

// Such as the ids "18_3", and "40+1" in a heterogeneous job.
bool IsPlain(const std::string& text) {
  return std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-:()[],.+").find(c) != std::string_view::npos;
  });
}

// Lines "raw|shown|STATE ...|more", one per job. Adds each job to `jobs` under both ids.
void Parse(std::string_view text, std::string JobState::*more, JobStates* jobs) {
  for (const std::string& line : Split(text, '\n')) {
    std::vector<std::string> fields = Split(line, '|');
    fields.resize(4);
    const std::string& raw = fields[0];
    const std::string& shown = fields[1];
    JobState job;
    job.state = fields[2];
    job.*more = fields[3];
    job.state.erase(std::min(job.state.find(' '), job.state.size()));  // "CANCELLED by 1000"
    // "launch failed requeued held"
    std::ranges::replace(job.*more, ' ', '_');
    if (raw.empty() || shown.empty() || job.state.empty()) continue;
    if (!IsPlain(raw) || !IsPlain(shown) || !IsPlain(job.state)) continue;
    if (!IsPlain(job.*more) || job.*more == "None") (job.*more).clear();
    jobs->insert_or_assign(raw, job);
    jobs->insert_or_assign(shown, job);
  }
}

// false: no response. squeue fails for a single unknown job; that counts as a response.
bool AskSqueue(std::span<const std::string> ids, JobStates* jobs) {
  const auto said = RunProgram({"squeue", "--noheader", "--array", "--states=all",
                                StrCat("--format=", kSqueueFormat), "--jobs=" + Join(ids, ",")},
                               "", kPatience);
  if (!said.ok()) return false;
  ParseSqueue(said->out, jobs);
  return said->exit == 0 || said->err.find("Invalid job id") != std::string::npos;
}

void AskSacct(std::span<const std::string> ids, JobStates* jobs) {
  const auto said = RunProgram({"sacct", "--noheader", "--parsable2", "--allocations",
                                StrCat("--format=", kSacctFormat), "--jobs=" + Join(ids, ",")},
                               "", kPatience);
  if (said.ok() && said->exit == 0) ParseSacct(said->out, jobs);
}

}  // namespace

bool IsFinal(std::string_view state) {
  constexpr std::string_view kFinal[] = {"BOOT_FAIL", "CANCELLED",    "COMPLETED", "DEADLINE",
                                         "FAILED",    "NODE_FAIL",    "PREEMPTED", "REVOKED",
                                         "TIMEOUT",   "OUT_OF_MEMORY"};
  return std::ranges::find(kFinal, state) != std::end(kFinal);
}

void ParseSqueue(std::string_view text, JobStates* jobs) { Parse(text, &JobState::reason, jobs); }

void ParseSacct(std::string_view text, JobStates* jobs) { Parse(text, &JobState::exit, jobs); }

std::optional<JobStates> FindJobStates(std::span<const std::string> ids) {
  JobStates jobs;
  for (; !ids.empty(); ids = ids.subspan(std::min(kMaxIds, ids.size()))) {
    const auto some = ids.first(std::min(kMaxIds, ids.size()));
    if (!AskSqueue(some, &jobs)) return std::nullopt;
    std::vector<std::string> missing;
    std::ranges::copy_if(some, std::back_inserter(missing),
                         [&](const std::string& id) { return !jobs.contains(id); });
    if (!missing.empty()) AskSacct(missing, &jobs);
  }
  return jobs;
}

}  // namespace gaccd
