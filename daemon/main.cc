// gaccd: reads the command line, runs one verb, and turns its Status into the exit code.
#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/environment.h"
#include "collectives/base/memory.h"
#include "collectives/base/output.h"
#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/flags.h"
#include "daemon/verbs/local_ranks.h"
#include "daemon/verbs/verbs.h"
#include "slurm/environment.h"

namespace {

using gaccd::ErrorKind;
using gaccd::Flags;
using gaccd::Result;
using gaccd::Status;
using gaccd::Verb;

// "rank 17 on node3: " from the variables of the launcher, as MPI may not be initialised.
std::string RankPrefix() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr && std::getenv("SLURM_STEP_ID") != nullptr) {
    rank = std::getenv("SLURM_PROCID");
  }
  if (rank == nullptr) return {};
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) return gaccd::StrCat("rank ", rank, ": ");
  return gaccd::StrCat("rank ", rank, " on ", host.data(), ": ");
}

// `verb`: the verb whose help is named in a usage error.
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
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

int ExitCode(const Result<int>& exit) {
  return exit.ok() ? *exit : static_cast<int>(exit.status().kind());
}

// --group-access is stronger than a umask that takes the group's rights away.
void AllowGroupRead() {
  const mode_t mask = ::umask(077);
  ::umask(mask & ~static_cast<mode_t>(S_IRGRP | S_IXGRP));
}

// The verb in arguments that do not parse; empty if there is none.
std::string_view FindVerbName(std::span<char*> args) {
  if (args.size() < 2) return {};
  const auto verb = gaccd::ParseVerb(args[1]);
  return verb.ok() ? Name(*verb) : std::string_view();
}

// If the caller has closed them, files and sockets of this program would get their numbers.
void OpenStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

int Run(int argc, char** argv) {
  const Result<Flags> flags = gaccd::ParseFlags(argc, argv);
  const std::string_view name =
      flags.ok() ? Name(flags->verb) : FindVerbName({argv, static_cast<std::size_t>(argc)});
  const auto end = [name](const Result<int>& exit, const std::string& who) {
    if (!exit.ok()) PrintError(exit.status(), who, name);
    return ExitCode(exit);
  };
  if (!flags.ok()) return end(flags.status(), RankPrefix());
  if (flags->group_access) AllowGroupRead();
  const gaccd::Environment environment = gaccd::ProcessEnvironment();
  if (gaccd::StartsLocalRanks(*flags, environment)) {
    return end(gaccd::RunLocalRanks(*flags, argv, environment), "");
  }
  const gaccd::VerbOutcome outcome =
      gaccd::RunVerb(*flags, [name](const Status& status) { PrintError(status, "", name); });
  if (outcome.exit.ok() && *outcome.exit == 0 &&
      flags->verb != Verb::kTrain) {  // its results are files
    const Status printed = gaccd::CheckPrinted();
    if (!printed.ok()) return end(printed, RankPrefix());
  }
  return outcome.printed ? ExitCode(outcome.exit) : end(outcome.exit, RankPrefix());
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardDescriptors();
  gaccd::UnsetReservedStep();
  google::protobuf::SetLogHandler(nullptr);  // our own errors report damaged files
  std::signal(SIGCHLD, SIG_DFL);  // if the caller ignores it, exit codes of children are lost
  std::signal(SIGPIPE, SIG_IGN);  // if a reader exits, the write fails, see PrintOut
  try {
    return Run(argc, argv);
  } catch (const std::bad_alloc&) {
    const Status status = gaccd::NoMemory("the program", 0);
    PrintError(status, RankPrefix(), {});
    return ExitCode(status);
  } catch (const std::exception& error) {  // from a library; gaccd throws none
    const Status status(ErrorKind::kInternal, error.what());
    PrintError(status, RankPrefix(), {});
    return ExitCode(status);
  }
}
