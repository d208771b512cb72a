#include "daemon/train/run_options.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/flag_values.h"
#include "daemon/config/job_text.h"
#include "daemon/models/graph_network.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

// Folder in which timed algorithm choices are kept between runs; empty: none.
std::string CacheFolder(const Environment& environment) {
  if (const auto own = environment("GACCD_CACHE_DIR")) return *own;
  const std::string cache = environment("XDG_CACHE_HOME").value_or("");
  if (!cache.empty()) return cache + "/gaccd";
  const std::string home = environment("HOME").value_or("");
  return home.empty() ? std::string() : home + "/.cache/gaccd";
}

// "a,b" -> a, b.
std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts = Split(text, ',');
  std::erase(parts, "");
  return parts;
}

// kUsage: flags of checkpoints, or of the files of a run, without a run folder.
Status CheckCheckpointFlags(const Flags& flags) {
  if (flags.run_dir) return Status::Ok();
  if (flags.group_access && !flags.save_weights) {
    return {ErrorKind::kUsage,
            "--group-access is for the files of --run-dir=DIR or --save-weights=FILE, which are "
            "not set"};
  }
  const FlagsSpec usual;
  const bool asked = flags.save_every_updates > 0 || flags.save_every_seconds.value_or(0) > 0 ||
                     flags.keep != usual.keep || flags.keep_every != usual.keep_every ||
                     flags.failed_saves != usual.failed_saves;
  const bool resumes = flags.resume != "auto" && flags.resume != "never";
  if (!asked && !resumes) return Status::Ok();
  return {ErrorKind::kUsage, "checkpoints need --run-dir=DIR: they are kept in DIR/ckpt"};
}

Status CheckWeightFlags(const Flags& flags) {
  if (flags.init_weights || !(flags.new_weights || flags.unused_weights)) return Status::Ok();
  return {ErrorKind::kUsage, "--new-weights and --unused-weights need --init-weights=PATH"};
}

}  // namespace

Result<Job> ReadTrainingJob(const Flags& flags) {
  if (!flags.job) return Status(ErrorKind::kUsage, "train needs --job=FILE");
  GACCD_RETURN_IF_ERROR(CheckCheckpointFlags(flags));
  GACCD_RETURN_IF_ERROR(CheckWeightFlags(flags));
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  return WithGraphDigest(std::move(job));
}

WeightRules MakeWeightRules(const Flags& flags) {
  return {.new_weights = SplitList(flags.new_weights.value_or("")),
          .unused = SplitList(flags.unused_weights.value_or(""))};
}

std::optional<std::int64_t> MemoryFlag(const Flags& flags) {
  if (!flags.memory) return std::nullopt;
  const auto bytes = ParseMemory(*flags.memory);  // validated with the flags
  return bytes.ok() ? std::optional(*bytes) : std::nullopt;
}

TrainGuards MakeTrainGuards(const Flags& flags) {
  return {.on_nonfinite = flags.on_nonfinite, .digest_every = flags.digest_every};
}

LoadChanges MakeLoadChanges(const Flags& flags) {
  return {.once = flags.speed == "measured", .always = flags.rebalance == Rebalance::kAuto};
}

SavePolicy MakeSavePolicy(const Flags& flags) {
  return {.every_updates = flags.save_every_updates,
          .every_seconds = flags.save_every_seconds.value_or(kDefaultSaveSeconds)};
}

OwnerPatience MakeOwnerPatience(const Flags& flags) {
  OwnerPatience patience;
  const std::chrono::milliseconds bound = std::chrono::seconds(flags.bound);
  patience.own_job = std::min(patience.own_job, bound / 2);
  return patience;
}

CheckpointOptions MakeCheckpointOptions(const Flags& flags, const Job& job) {
  return {
      .folder = *flags.run_dir + "/ckpt",
      .group_access = flags.group_access,
      .keep = {.newest = flags.keep, .every = flags.keep_every, .best = job.evaluation.keep_best},
      .fail_limit = flags.failed_saves,
      .lease_patience = MakeOwnerPatience(flags)};
}

StopOptions MakeStopOptions(const Flags& flags, const SlurmEnvironment& slurm, const Clocks& clocks,
                            StopSignals* signals, bool checkpoints, double checkpoint_bytes) {
  // Estimate until a save was measured: a second of fixed cost, and the bytes at 200 MB/s. An
  // underestimate is harmless: an incomplete save leaves the previous one.
  constexpr double kBytesPerSecond = 200e6;
  std::optional<Clocks::Steady::time_point> job_end;
  if (slurm.end_time_s) job_end = clocks.Deadline(*slurm.end_time_s);
  return {.signals = signals,
          .run_dir = flags.run_dir.value_or(""),
          .job_end = job_end,
          .term_budget = std::chrono::seconds(flags.term_budget),
          .checkpoints = checkpoints,
          .warn = [](const std::string& text) { LogWarning(text); },
          .save_guess = std::chrono::duration<double>(1 + checkpoint_bytes / kBytesPerSecond)};
}

void SetTiming(const Flags& flags, const Environment& environment, EngineChoice* choice) {
  // Times measured while another rank uses the same GPU are meaningless.
  if (choice->device == Device::kCpu || choice->gpu_sharing) return;
  const std::string folder = CacheFolder(environment);
  choice->time_algorithms = flags.time_algorithms.value_or(!folder.empty());
  if (choice->time_algorithms) choice->choices_folder = folder;
}

}  // namespace gaccd
