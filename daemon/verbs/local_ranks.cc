#include "daemon/verbs/local_ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {
namespace {

// Signals that users and schedulers send to a run.
constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU};

sigset_t ForwardedAnd(int signal) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int forwarded : kForwarded) ::sigaddset(&set, forwarded);
  ::sigaddset(&set, signal);
  return set;
}

Status CheckNoLauncher(const Environment& environment) {
  for (const char* variable :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_ID", "SLURM_JOB_ID"}) {
    if (!environment(variable)) continue;
    const bool slurm = std::string_view(variable).starts_with("SLURM");
    return {ErrorKind::kUsage, StrCat("--local-ranks starts the ranks by mpirun, but ",
                                      slurm ? "this is a SLURM job, whose ranks srun starts"
                                            : "mpirun has started this process",
                                      " (", variable, " is set): leave the flag out")};
  }
  return Status::Ok();
}

std::string ProgramPath(const char* given) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : std::string(given);
}

// More ranks than cores, not bound to them: two runs on one machine would share the same cores.
// Waiting ranks yield their core. No ranks by ssh on hosts of a default hostfile.
std::string MpirunOptions() {
  const bool has_prrte = MpiVersionNumbers().loaded[0] >= 5;  // Open MPI
  return StrCat("--allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1 ",
                has_prrte ? "--map-by :OVERSUBSCRIBE --prtemca prte_execute_quiet 1 "
                            "--prtemca prte_default_hostfile none"
                          : "--oversubscribe --quiet --mca plm isolated");
}

std::vector<std::string> CommandFor(std::int64_t ranks, char* const* argv) {
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(ranks)};
  for (std::string& word : Split(MpirunOptions(), ' ')) words.push_back(std::move(word));
  words.push_back(ProgramPath(argv[0]));
  for (char* const* one = argv + 1; *one != nullptr; ++one) words.emplace_back(*one);
  return words;
}

// In the child. Returns only if exec fails, with errno.
int Execute(const std::vector<std::string>& words, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the ranks then end with mpirun
  if (::getppid() != parent) ::_exit(128 + SIGKILL);
  const sigset_t blocked = ForwardedAnd(SIGINT);
  ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return errno;
}

Result<pid_t> Start(const std::vector<std::string>& words) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Status(ErrorKind::kOs, StrCat("pipe2: ", std::strerror(errno)));
  }
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Status(ErrorKind::kOs, StrCat("fork: ", std::strerror(errno)));
  if (child == 0) {
    const int error = Execute(words, parent);
    [[maybe_unused]] const ssize_t reported = ::write(write_end.get(), &error, sizeof(error));
    ::_exit(1);
  }
  (void)write_end.Close();
  int error = 0;
  if (::read(read_end.get(), &error, sizeof(error)) != sizeof(error)) return child;
  ::waitpid(child, nullptr, 0);
  return Status(ErrorKind::kUnavailable,
                StrCat("--local-ranks needs mpirun: ", std::strerror(error),
                       "; install Open MPI (apt install openmpi-bin) and see that it is on PATH"));
}

// The children of a process: the field after name and state in /proc/<pid>/stat is the parent.
std::vector<pid_t> FindChildren(pid_t parent) {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  if (folder == nullptr) return children;
  while (const dirent* entry = ::readdir(folder.get())) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid <= 0) continue;
    const auto stat = ReadStart(StrCat("/proc/", entry->d_name, "/stat"), 4096);
    if (!stat.ok()) continue;
    std::istringstream fields(stat->substr(std::min(stat->rfind(')'), stat->size() - 1) + 1));
    std::string state;
    pid_t parent_of_pid = 0;
    if (fields >> state >> parent_of_pid && parent_of_pid == parent) children.push_back(pid);
  }
  return children;
}

// Forwards signals of this process to the ranks until mpirun ends; returns its wait status. A
// signal that arrives before the ranks exist is sent when they do; a second one kills mpirun.
int ForwardUntilEnd(pid_t mpirun) {
  constexpr timespec kPollInterval{.tv_sec = 0, .tv_nsec = 50'000'000};
  const sigset_t signals = ForwardedAnd(SIGCHLD);
  std::vector<int> pending;
  for (int state = 0;;) {
    const int signal = pending.empty() ? ::sigwaitinfo(&signals, nullptr)
                                       : ::sigtimedwait(&signals, nullptr, &kPollInterval);
    if (::waitpid(mpirun, &state, WNOHANG) == mpirun) return state;
    if (signal > 0 && signal != SIGCHLD) {
      if (!pending.empty()) ::kill(mpirun, SIGKILL);
      pending.push_back(signal);
    }
    if (pending.empty()) continue;
    const std::vector<pid_t> ranks = FindChildren(mpirun);
    for (const pid_t rank : ranks) {
      for (const int one : pending) ::kill(rank, one);
    }
    if (!ranks.empty()) pending.clear();
  }
}

bool IsGaccdExitCode(int code) {
  return code == 0 || (code >= static_cast<int>(ErrorKind::kUsage) &&
                       code <= static_cast<int>(ErrorKind::kNoRequeue));
}

// The folder of the newest attempt; empty: none.
std::string NewestAttempt(const Flags& flags) {
  const std::string name = flags.run_dir ? LatestAttempt(*flags.run_dir) : std::string();
  return name.empty() ? name : StrCat(*flags.run_dir, "/attempts/", name);
}

// The exit code in verdict.json; empty: there is none. If all ranks were killed, VerdictGuard
// writes the file shortly after their end.
std::optional<int> ReadVerdictExitCode(const std::string& attempt_dir) {
  constexpr int kTries = 20;
  constexpr useconds_t kPause = 50'000;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (attempt > 0) ::usleep(kPause);
    const auto text = ReadSmallFile(attempt_dir + "/verdict.json", ErrorKind::kData);
    if (!text.ok()) continue;
    const auto verdict = ReadEvent<Verdict>(*text, {"verdict", "exit"});
    if (!verdict.ok()) continue;  // empty for a moment: CreateFileOnce()
    if (verdict->exit > 0 && IsGaccdExitCode(verdict->exit)) return verdict->exit;
    break;
  }
  return std::nullopt;
}

}  // namespace

bool StartsLocalRanks(const Flags& flags, const Environment& environment) {
  // IsAcceptedBy() is also true for verbs that accept a command line of train, and run once.
  return flags.local_ranks && FindFlag("local-ranks")->IsListedFor(flags.verb) &&
         !environment(kLocalRanksVariable);
}

Result<int> RunLocalRanks(const Flags& flags, char* const* argv, const Environment& environment) {
  const std::int64_t ranks = *flags.local_ranks;
  const std::string before = NewestAttempt(flags);
  GACCD_RETURN_IF_ERROR(CheckNoLauncher(environment));
  ::setenv(kLocalRanksVariable, std::to_string(ranks).c_str(), 1);
  const sigset_t signals = ForwardedAnd(SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  GACCD_ASSIGN_OR_RETURN(const pid_t mpirun, Start(CommandFor(ranks, argv)));
  const int state = ForwardUntilEnd(mpirun);
  const int code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  if (code > 128) {
    // A rank was killed: the verdict of the others contains the cause, the signal does not.
    const std::string attempt_dir = NewestAttempt(flags);
    return attempt_dir == before ? code : ReadVerdictExitCode(attempt_dir).value_or(code);
  }
  if (IsGaccdExitCode(code)) return code;
  return Status(ErrorKind::kUnavailable,
                StrCat("mpirun did not start the ranks and returned ", code,
                       "; expected that 'mpirun -n ", ranks, " --oversubscribe true' works"));
}

}  // namespace gaccd
