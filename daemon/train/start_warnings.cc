#include "daemon/train/start_warnings.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "daemon/data/update_schedule.h"
#include "daemon/optim/schedule.h"
#include "daemon/rundir/safe_place.h"
#include "daemon/train/run_options.h"

namespace gaccd {
namespace {

// Entries that a user or a batch script may create before the first attempt; names that begin with
// a dot are ignored as well.
constexpr std::array<std::string_view, 8> kRunEntries = {
    "attempts", "ckpt", "job.txtpb", "plan.txtpb", "STOP", "SAVE", "HOLD", "DONE"};

// Other entries of the folder; empty for a run folder and for one that does not exist.
std::string ForeignEntries(const std::string& run_dir) {
  constexpr std::size_t kMaxNames = 10'000;
  const auto names = ListFolder(run_dir, kMaxNames);
  if (!names.ok() || PathExists(run_dir + "/attempts") || PathExists(run_dir + "/ckpt")) return {};
  std::string first;
  std::size_t count = 0;
  for (const std::string& name : *names) {
    if (name.starts_with('.') || std::ranges::find(kRunEntries, name) != kRunEntries.end())
      continue;
    if (count++ == 0) first = name;
  }
  if (count == 0) return {};
  return count == 1 ? StrCat("'", first, "'") : StrCat("'", first, "' and ", count - 1, " more");
}

bool HasLossScale(const Job& job) {
  const LossScaleSpec usual;
  return job.loss_scale.init_scale != usual.init_scale ||
         job.loss_scale.growth_interval != usual.growth_interval ||
         job.loss_scale.least_scale != usual.least_scale;
}

}  // namespace

std::vector<std::string> PlaceWarnings(const Flags& flags) {
  if (!flags.run_dir) {
    if (flags.save_weights) return {};
    return {"nothing of this run will be kept: give --run-dir=DIR or --save-weights=FILE"};
  }
  std::vector<std::string> warnings;
  if (const std::string foreign = ForeignEntries(*flags.run_dir); !foreign.empty()) {
    warnings.push_back(StrCat("--run-dir: '", *flags.run_dir,
                              "' is neither a run folder nor empty; it contains ", foreign,
                              ": the run adds its files there"));
  }
  if (std::string doubt = RunFolderWarning(*flags.run_dir); !doubt.empty()) {
    warnings.push_back(StrCat("--run-dir: ", doubt));
  }
  return warnings;
}

std::string LauncherWarning(const Environment& environment, std::int64_t ranks,
                            const Flags& flags) {
  const bool mpirun = environment("OMPI_COMM_WORLD_SIZE") && !environment("SLURM_STEP_ID");
  if (!mpirun || environment("GACCD_LOCAL_RANKS")) return {};
  if (!flags.run_dir || !MakeSavePolicy(flags).on()) return {};
  // Open MPI 5 has no such setting.
  const bool has_prrte = MpiVersionNumbers().loaded[0] >= 5;
  const std::string seconds = environment("OMPI_MCA_odls_base_sigkill_timeout").value_or("1");
  if (!has_prrte && seconds != "0" && seconds != "1") return {};
  return StrCat("mpirun kills the ranks ", has_prrte ? "half a second" : "one second",
                " after the first Ctrl-C or SIGTERM, before a long "
                "update is saved: start them by gaccd train --local-ranks=",
                ranks, " without mpirun, or end the run by gaccd stop ", *flags.run_dir);
}

std::vector<std::string> ScheduleWarnings(const Job& job, double lr_factor, std::int64_t updates) {
  const std::int64_t warmup = job.schedule.warmup_updates;
  std::vector<std::string> warnings;
  if (warmup > updates) {
    warnings.push_back(StrCat("the warm-up of ", warmup, " updates is longer than the run of ",
                              updates, ": the learning rate never reaches ",
                              job.optimizer.lr * lr_factor));
  }
  // The maximum: at the end of the warm-up, of a first step, or of the run.
  const auto* step = std::get_if<StepDecaySpec>(&job.schedule.shape);
  double highest = 0;
  for (const std::int64_t end : {warmup, step == nullptr ? 1 : step->every_updates, updates}) {
    const std::int64_t at = std::clamp<std::int64_t>(end, 1, updates) - 1;
    highest =
        std::max(highest, LearningRate(job.schedule, job.optimizer.lr, lr_factor, at, updates));
  }
  if (static_cast<float>(highest) == 0) {
    warnings.push_back(
        StrCat("the learning rate is at most ", highest, ", which is 0 in single precision"));
  }
  if (job.precision != Precision::kFP16 && HasLossScale(job)) {
    warnings.push_back(StrCat("loss_scale of the job is ignored: the precision is ",
                              Name(job.precision), ", not fp16"));
  }
  return warnings;
}

std::string LearningRateJump(const RunSchedule& saved, const RunSchedule& now, std::int64_t step) {
  constexpr double kJump = 1.1;  // a small change is expected with more updates
  if (saved.updates == now.updates || step >= now.updates) return {};
  // Their cosines depend on samples, which are not known here.
  if (saved.job.batch.target_schedule || now.job.batch.target_schedule) return {};
  const auto rate = [&](const RunSchedule& run) {
    return LearningRate(run.job.schedule, run.job.optimizer.lr, run.lr_factor,
                        std::min(step, run.updates - 1), run.updates);
  };
  const double before = rate(saved);
  const double after = rate(now);
  if (after <= kJump * before && before <= kJump * after) return {};
  const double saved_lr = saved.job.optimizer.lr;
  const double lr = now.job.optimizer.lr;
  return StrCat(
      "the learning rate jumps from ", before, " to ", after, " at update ", step + 1,
      saved_lr == lr ? "" : StrCat(": optimizer.lr was ", saved_lr, ", it is ", lr, " now"),
      saved_lr == lr ? ":" : ";", " the schedule had ", saved.updates, " updates, it has ",
      now.updates, " now");
}

std::vector<std::string> ScheduleWarnings(const Job& job, const Plan& plan) {
  std::int64_t updates = job.max_updates;
  if (const auto* data = std::get_if<SyntheticSpec>(&job.data.train)) {
    const auto schedule = MakeUpdateSchedule(job, plan, data->samples);
    updates = schedule.ok() ? schedule->updates() : 0;
  }
  if (updates == 0) return {};
  return ScheduleWarnings(job, plan.lr_factor(), updates);
}

}  // namespace gaccd
