#include <algorithm>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/flags.h"

namespace gaccd {
namespace {

constexpr Verb kVerbs[] = {Verb::kPlan, Verb::kTrain,   Verb::kSelftest, Verb::kCheck,
                           Verb::kCkpt, Verb::kVerdict, Verb::kHelp,     Verb::kVersion};

using Names = std::vector<std::string_view>;
const Names kSelftestFlags = {"nodes", "gpus_per_node", "micro_batch", "target_batch", "format"};
const Names kCheckFlags = {"nodes",  "gpus_per_node",     "device",
                           "format", "allow_gpu_sharing", "bound"};
const Names kCkptFlags = {"keep", "keep_every", "out", "group_access", "format"};
const Names kVerdictFlags = {"attempt_dir", "srun_rc", "format"};
const Names kNotOfTraining = {"attempt_dir", "srun_rc", "out"};

bool Holds(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool TakesFlag(Verb verb, std::string_view flag) {
  switch (verb) {
    case Verb::kPlan:  // the command line of a training with another verb shows its plan
    case Verb::kTrain:
      return !Holds(kNotOfTraining, flag);
    case Verb::kSelftest:
      return Holds(kSelftestFlags, flag);
    case Verb::kCheck:
      return Holds(kCheckFlags, flag);
    case Verb::kCkpt:
      return Holds(kCkptFlags, flag);
    case Verb::kVerdict:
      return Holds(kVerdictFlags, flag);
    case Verb::kHelp:
    case Verb::kVersion:
      break;
  }
  return true;
}

std::string_view Name(Verb verb) {
  switch (verb) {
    case Verb::kPlan:
      return "plan";
    case Verb::kTrain:
      return "train";
    case Verb::kSelftest:
      return "selftest";
    case Verb::kCheck:
      return "check";
    case Verb::kCkpt:
      return "ckpt";
    case Verb::kVerdict:
      return "verdict";
    case Verb::kHelp:
      return "help";
    case Verb::kVersion:
      return "version";
  }
  return "?";
}

Result<Verb> ParseVerb(std::string_view word) {
  std::vector<std::string_view> names;
  std::string list;
  for (const Verb verb : kVerbs) {
    if (Name(verb) == word) return verb;
    names.push_back(Name(verb));
    list += StrCat(list.empty() ? "" : ", ", Name(verb));
  }
  return Status(ErrorKind::kUsage, StrCat("unknown verb '", word, "'", Suggestion(word, names),
                                          "; the verbs are ", list));
}

Verb DefaultVerb(const Environment& environment) {
  const bool slurm_step =
      environment("SLURM_STEP_ID").has_value() && environment("SLURM_PROCID").has_value();
  const bool mpirun = environment("OMPI_COMM_WORLD_SIZE").has_value();
  return slurm_step || mpirun ? Verb::kTrain : Verb::kPlan;
}

}  // namespace gaccd
