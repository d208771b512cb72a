// The command line as plain values. `gaccd <verb> [--flag=value ...]`; dashes and underscores in
// flag names are equal. The flags come from proto/flags.proto and from the fields of
// proto/job.proto that have one. gflags only passes on the flags of glog.
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

namespace gaccd {

// `gaccd help`, `help VERB`; `help job`: the fields of the job; `help man`: gaccd.1 for man;
// `help bash`: the completion for bash.
enum class HelpPage : std::uint8_t { kVerb, kJob, kManual, kBash };

// "batch.micro" is to be "32"; `given`: "--micro-batch=32", for messages.
struct JobField {
  std::string path;
  std::string value;
  std::string given;
};

// Values of one field of the job, each for a run of its own.
struct SweptField {
  std::string path;
  std::vector<std::string> values;  // at least two
};

// Those of proto/flags.proto, by its names (flags_spec.h is generated from it), and the flags
// outside of it.
struct Flags : FlagsSpec {
  Verb verb = Verb::kPlan;
  std::optional<Verb> help_topic;  // of `gaccd help train` and `gaccd train --help`
  HelpPage help_page = HelpPage::kVerb;

  // The values of --set, --epochs, --device and so on, which override the job, in their order.
  std::vector<JobField> job_fields;
  // --micro-batch=auto, or --set batch.micro=auto: the memory decides. Then job_fields have no
  // batch.micro.
  bool micro_batch_auto = false;
  std::vector<std::string> words;  // of `gaccd ckpt ls PATH`: "ls", PATH
  std::vector<SweptField> sweep;   // of submit --array: each --set with several values
  // Of submit: the flags for `gaccd train`, but for the job, the run folder and what is swept.
  std::vector<std::string> train_arguments;
};

// Of flags that are empty when they were not given, to distinguish a default from a request.
inline constexpr std::int64_t kDefaultNodes = 1;
inline constexpr std::int64_t kDefaultGpusPerNode = 8;
inline constexpr std::int64_t kDefaultSaveSeconds = 600;

// Whether a flag sets this field of the job.
[[nodiscard]] bool SetsJobField(const Flags& flags, std::string_view path);

// `args` are the arguments after the program's name. Errors are kUsage (kIo for a flag file that
// cannot be read) and quote the argument; those from a flag file begin with file:line. Not
// thread-safe: gflags keeps the values of glog.
[[nodiscard]] Result<Flags> ParseFlags(std::span<const char* const> args,
                                       const Environment& environment);
[[nodiscard]] Result<Flags> ParseFlags(int argc, const char* const* argv);

}  // namespace gaccd
