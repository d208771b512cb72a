// The command line as plain values. `gaccd <verb> [--flag=value ...]`; dashes and underscores in
// flag names are equal. A flag that was not given stays empty, so that the reader knows a default
// from a request. The flags come from proto/flags.proto and from the fields of proto/job.proto that
// have one. gflags only passes on the flags of glog.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"
#include "daemon/config/policies.h"

namespace gaccd {

enum class Verb : std::uint8_t {
  kPlan,
  kTrain,
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
  kHelp,
  kVersion
};
enum class OutputFormat : std::uint8_t {
  kText,
  kJson,
  kTxtpb,
  kCsv,
  kChromeTrace,
  kOtlpJson,
  kTensorboard,
  kPrometheus
};
enum class LogLevel : std::uint8_t { kInfo, kWarning, kError };

[[nodiscard]] std::string_view Name(Verb verb);  // "plan", ...

// "batch.micro" is to be "32"; `given`: "--micro-batch=32", for messages.
struct JobField {
  std::string path;
  std::string value;
  std::string given;
};

// Meaning, range and help of each: proto/flags.proto.
struct Flags {
  Verb verb = Verb::kPlan;
  std::optional<Verb> help_topic;  // of `gaccd help train` and `gaccd train --help`
  bool help_job = false;           // `gaccd help job`

  // The cluster. Outside SLURM an input; inside an assertion against the environment.
  std::optional<std::int64_t> nodes;          // >= 1
  std::optional<std::int64_t> gpus_per_node;  // >= 1

  bool allow_gpu_sharing = false;  // several ranks on one GPU: for tests
  bool time_algorithms = false;    // choose cuBLASLt's algorithms by time, at the start

  // What --set, --epochs, --device and so on say in place of the job, in their order.
  std::vector<JobField> job_fields;
  std::optional<std::string> job;  // path of the job text
  std::optional<std::string> run_dir;
  std::optional<std::string> init_weights;  // safetensors
  std::optional<std::string> save_weights;

  // Checkpoints, in <run_dir>/ckpt. Without a run_dir, or both "every" 0: none are saved.
  std::int64_t save_every_updates = 0;             // >= 0
  std::optional<std::int64_t> save_every_seconds;  // >= 0; not given: kDefaultSaveSeconds
  std::string resume = "auto";                     // "auto", "never", or the path of a generation
  std::int64_t keep = 3;                           // >= 1: the newest so many
  std::int64_t keep_every = 0;                     // >= 0: and one of each so many updates
  std::int64_t failed_saves = 3;                   // >= 1: so many in a row end the run
  bool group_access = false;                       // the group may read them
  std::vector<std::string> words;                  // of `gaccd ckpt ls PATH`: "ls", PATH
  std::optional<std::string> out;                  // of `gaccd ckpt export`, `gaccd export`

  // Stopping: daemon/stop/stop_signals.h, daemon/stop/stop_agreement.h.
  std::vector<int> stop_signals = {SIGUSR1, SIGUSR2, SIGTERM};
  std::int64_t term_budget_seconds = 25;  // >= 0; counted on between SIGTERM and SIGKILL

  // When something is wrong.
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  OnBadRecord on_bad_record = OnBadRecord::kStop;
  std::int64_t bad_record_quota = 100;  // >= 0; records that may be skipped, over the whole run
  std::int64_t digest_every = 100;      // >= 0; updates between two digests; 0 = none

  bool watch = false;  // of `gaccd status`: until the run ends

  // Of `gaccd logs`; of `gaccd export` attempt.
  std::optional<std::int64_t> rank;  // >= 0
  std::optional<std::string> host;
  LogLevel level = LogLevel::kInfo;
  std::optional<std::string> attempt;  // a number, a folder's name, "latest"
  bool follow = false;
  bool events = false;

  // Of `gaccd verdict`.
  std::optional<std::string> attempt_dir;
  std::optional<std::int64_t> srun_rc;  // 0 to 255; none: it never returned

  bool strict = false;                        // refuse a plan that is not exact
  OutputFormat format = OutputFormat::kText;  // which ones: the verb says
  std::int64_t bound_seconds = 60;            // >= 1; the watchdog's deadline
  std::int64_t heartbeat_seconds = 5;         // >= 0; silence after which a rank is lost; 0 = off
};

inline constexpr std::int64_t kDefaultNodes = 1;
inline constexpr std::int64_t kDefaultGpusPerNode = 8;
inline constexpr std::int64_t kDefaultSaveSeconds = 600;

// Whether a flag sets this field of the job.
[[nodiscard]] bool SetsJobField(const Flags& flags, std::string_view path);
// kUsage with the verbs there are.
[[nodiscard]] Result<Verb> ParseVerb(std::string_view word);

// The verb when only flags are given: inside a SLURM step (SLURM_STEP_ID and SLURM_PROCID) or under
// mpirun (OMPI_COMM_WORLD_SIZE) train, elsewhere plan. Without any argument it is help where this
// is plan.
[[nodiscard]] Verb DefaultVerb(const Environment& environment);

// `args` are the arguments after the program's name. Errors are kUsage (kIo for a flag file that
// cannot be read) and quote the argument; those from a flag file begin with file:line. Not
// thread-safe: gflags keeps the values of glog.
[[nodiscard]] Result<Flags> ParseFlags(std::span<const char* const> args,
                                       const Environment& environment);
[[nodiscard]] Result<Flags> ParseFlags(int argc, const char* const* argv);

}  // namespace gaccd
