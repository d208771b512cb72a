// The table of verbs, from which parsing, help, the manual page and the bash completion are
// derived. daemon/verbs/verbs.cc runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"

namespace gaccd {

enum class Verb : std::uint8_t {
  kPlan,
  kTrain,
  kSubmit,
  kEval,
  kPredict,
  kSamples,
  kData,
  kSelftest,
  kCheck,
  kCkpt,
  kVerdict,
  kStatus,
  kRuns,
  kStop,
  kSave,
  kLogs,
  kDoctor,
  kExport,
  kReport,
  kPlot,
  kHelp,
  kVersion  // the last
};

// Arguments of a verb. A flag declares the verbs that accept it (`verbs` in proto/field.proto).
struct VerbArguments {
  std::size_t words = 0;          // maximum number of arguments without dashes
  std::string_view actions;       // valid first words, "ls verify"; empty: anything
  std::string_view json_actions;  // those that support other formats than the first; empty: all
  OutputFormat first_format = OutputFormat::kText;
  OutputFormat last_format = OutputFormat::kText;
  bool flags_of_train = false;  // besides its own flags, for the command line of a training
};

struct VerbRow {
  Verb verb;
  std::string_view name;
  std::string_view summary;
  VerbArguments takes;
  std::string_view usage;  // after "gaccd name"; the flags are added from proto/
};
[[nodiscard]] std::span<const VerbRow> VerbTable();  // in the order of Verb
[[nodiscard]] const VerbRow& GetVerbRow(Verb verb);
[[nodiscard]] inline std::string_view Name(Verb verb) { return GetVerbRow(verb).name; }
// The names from first to last: "text, json or txtpb".
[[nodiscard]] std::string ListFormats(OutputFormat first, OutputFormat last);

// Whether a table has one row per verb, in the order of Verb, so that it can be indexed.
template <typename Rows>
consteval bool HasEveryVerb(const Rows& rows) {
  std::size_t next = 0;
  for (const auto& row : rows) {
    if (row.verb != static_cast<Verb>(next++)) return false;
  }
  return next == static_cast<std::size_t>(Verb::kVersion) + 1;
}

// Whether `word` is in a list of words separated by blanks.
[[nodiscard]] bool HasWord(std::string_view list, std::string_view word);

// kUsage with the list of verbs.
[[nodiscard]] Result<Verb> ParseVerb(std::string_view word);

// The verb if only flags are given: train inside a SLURM step (SLURM_STEP_ID and SLURM_PROCID) or
// under mpirun (OMPI_COMM_WORLD_SIZE), otherwise plan; ParseFlags() without any arguments: help.
[[nodiscard]] Verb DefaultVerb(const Environment& environment);

inline constexpr std::size_t kMaxReportedRuns = 32;

// How a verb ends.

// Prints an error for users on stderr. The message already contains rank and host.
using ErrorPrinter = std::function<void(const Status&)>;

// For a verb that runs on all ranks: an error shared by all ranks is printed by one of them, any
// other error by every rank that has it. In the second case the other ranks are aborted
// (Communicator::Abort) and the verb does not return. An error before the ranks are connected is
// returned unprinted, and no rank is aborted.
struct VerbOutcome {
  Result<int> exit = 0;  // the exit code, 0 for most verbs; or the error
  bool printed = false;  // the error was printed, by this rank or another
};

}  // namespace gaccd
