// The parsed command line: `gaccd <verb> [--flag=value ...]`; dashes and underscores in flag names
// are equal. The flags are defined by proto/flags.proto and by the fields of proto/job.proto that
// have one. gflags is only used to pass on the flags of glog.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/verb.h"

namespace google::protobuf {
class FieldDescriptor;
}

namespace gaccd {

// Pages of `gaccd help`: `help`, `help VERB`; `help job`: the fields of the job; `help man`:
// gaccd.1 for man; `help bash`: the completion for bash.
enum class HelpPage : std::uint8_t { kVerb, kJob, kManual, kBash };

// Sets "batch.micro" to "32"; given: "--micro-batch=32", for messages.
struct JobField {
  std::string path;
  std::string value;
  std::string given;
};

// Several values of one job field, each for a separate run.
struct SweptField {
  std::string path;
  std::vector<std::string> values;  // at least two
};

// The flags of proto/flags.proto (flags_spec.h is generated from it), and others.
struct Flags : FlagsSpec {
  Verb verb = Verb::kPlan;
  std::optional<Verb> help_topic;  // for `gaccd help train` and `gaccd train --help`
  HelpPage help_page = HelpPage::kVerb;

  // The values of --set, --epochs, --device and so on, which override the job, in order.
  std::vector<JobField> job_fields;
  // --micro-batch=auto, or --set batch.micro=auto: chosen by memory. job_fields then do not contain
  // batch.micro.
  bool micro_batch_auto = false;
  std::vector<std::string> words;  // of `gaccd ckpt ls PATH`: "ls", PATH
  std::vector<SweptField> sweep;   // of submit --array: each --set with several values
  // For submit: the flags for `gaccd train`, without the job, the run folder and swept fields.
  std::vector<std::string> train_arguments;
};

// Values of flags that were not given, which are stored as empty to distinguish defaults from
// requests.
inline constexpr std::int64_t kDefaultNodes = 1;
inline constexpr std::int64_t kDefaultGpusPerNode = 8;
inline constexpr std::int64_t kDefaultSaveSeconds = 600;

// Whether a flag sets this field of the job.
[[nodiscard]] bool SetsJobField(const Flags& flags, std::string_view path);

// args: the arguments after the program's name. kUsage (kIo for a flag file that cannot be read),
// quoting the argument; errors in a flag file begin with file:line. Not thread-safe: gflags keeps
// the values of glog.
[[nodiscard]] Result<Flags> ParseFlags(std::span<const char* const> args,
                                       const Environment& environment);
[[nodiscard]] Result<Flags> ParseFlags(int argc, const char* const* argv);

// The table of all flags, from proto/flags.proto and the fields of proto/job.proto with a flag.
struct FlagRow {
  std::string name;  // "micro-batch"
  const google::protobuf::FieldDescriptor* field;
  std::string job_path;  // "batch.micro"; empty: a field of proto::Flags

  [[nodiscard]] bool is_bool() const;
  [[nodiscard]] bool IsListedFor(Verb verb) const;   // in its help
  [[nodiscard]] bool IsAcceptedBy(Verb verb) const;  // also those added by VerbArguments
};
// In the order of the two files. Thread-safe.
[[nodiscard]] const std::vector<FlagRow>& FlagTable();
// nullptr: not found.
[[nodiscard]] const FlagRow* FindFlag(std::string_view name);

// "name: value" for every flag that must be equal on all ranks, as text proto.
[[nodiscard]] std::string SharedFlagsText(const Flags& flags);

}  // namespace gaccd
