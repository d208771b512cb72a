// gaccd: reads the command line, runs one verb, and turns its Status into the exit code.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/flags.h"
#include "daemon/config/help.h"
#include "daemon/config/plan_command.h"
#ifdef GACCD_WITH_TRAIN
#include "daemon/train/run.h"
#endif

namespace {

using gaccd::ErrorKind;
using gaccd::Flags;
using gaccd::Result;
using gaccd::Status;
using gaccd::Verb;

// A full disk or a closed pipe must not look like success.
Status Print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return {};
  return {ErrorKind::kIo, "cannot write to standard output"};
}

Status RunPlan(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(const gaccd::PlanOutput output, gaccd::MakePlanOutput(flags));
  GACCD_RETURN_IF_ERROR(Print(output.text));
  return output.verdict;
}

// Libraries whose versions only their own folders know.
std::vector<gaccd::Version> LibraryVersions() { return {}; }

Status RunVerb(const Flags& flags) {
  switch (flags.verb) {
    case Verb::kPlan:
      return RunPlan(flags);
    case Verb::kHelp:
      return Print(gaccd::HelpText(flags.help_topic));
    case Verb::kVersion:
      return Print(gaccd::VersionText(LibraryVersions()));
#ifdef GACCD_WITH_TRAIN
    case Verb::kTrain:
      return gaccd::RunTrain(flags);
    case Verb::kSelftest:
      return gaccd::RunSelftest(flags);
#else
    case Verb::kTrain:
    case Verb::kSelftest:
      return {ErrorKind::kInternal, "this program was built without daemon/train"};
#endif
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

int ExitWith(const Status& status) {
  if (status.ok()) return 0;
  const int code = static_cast<int>(status.kind());
  const std::string hint = status.kind() == ErrorKind::kUsage ? "Try: gaccd help\n" : "";
  // One write, so that the lines of many ranks do not mix.
  const std::string line =
      gaccd::StrCat("gaccd: ", WhoAmI(), "error (", gaccd::ErrorKindName(status.kind()), ", exit ",
                    code, "): ", status.message(), "\n", hint);
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

Status Run(int argc, char** argv) {
  GACCD_ASSIGN_OR_RETURN(const Flags flags, gaccd::ParseFlags(argc, argv));
  return RunVerb(flags);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return ExitWith(Run(argc, argv));
  } catch (const std::exception& error) {  // of a library, or out of memory; ours throws nothing
    std::fprintf(stderr, "gaccd: error (internal, exit 70): %s\n", error.what());
    return static_cast<int>(ErrorKind::kInternal);
  }
}
