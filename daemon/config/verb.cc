#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"
#include "daemon/config/flags.h"

namespace gaccd {
namespace {

constexpr Verb kVerbs[] = {Verb::kPlan, Verb::kTrain,   Verb::kSelftest, Verb::kCheck,
                           Verb::kCkpt, Verb::kVerdict, Verb::kHelp,     Verb::kVersion};

}  // namespace

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
