#include "daemon/train/run_stages.h"

#include <chrono>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/same_on_all.h"
#include "collectives/comm/nccl_comm.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/config/help.h"
#include "daemon/config/job_checks.h"
#include "daemon/config/job_text.h"
#include "daemon/data/class_names.h"
#include "daemon/data/tokenizer.h"
#include "daemon/model/safetensors.h"
#include "daemon/preflight/cpu_bf16.h"
#include "daemon/preflight/gpu_libraries.h"
#include "daemon/rundir/agreement.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/done_marker.h"
#include "daemon/train/final_weights.h"
#include "daemon/train/launch.h"
#include "daemon/train/nccl_environment.h"
#include "daemon/train/open_data.h"
#include "daemon/train/run_checkpoints.h"
#include "daemon/train/storage_limits.h"
#include "daemon/train/weight_source.h"

namespace gaccd {
namespace {

std::chrono::seconds BoundOf(const Flags& flags) { return std::chrono::seconds(flags.bound); }

// Where the timed choices of algorithms are kept from run to run, or nothing.
std::string CacheFolder(const Environment& environment) {
  if (const auto own = environment("GACCD_CACHE_DIR")) return *own;
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/gaccd";
  if (const auto home = environment("HOME")) return *home + "/.cache/gaccd";
  return {};
}

// Until a save was measured: a second for its fixed cost, and a rank's bytes over a slow disk. Too
// little does no harm: a save that is cut off leaves the one before.
std::chrono::duration<double> GuessSave(const Session& session) {
  constexpr double kBytesPerSecond = 200e6;
  const double bytes = CheckpointBytes(session);
  return std::chrono::duration<double>(1 + bytes / session.comm.size() / kBytesPerSecond);
}

// "a,b" -> a, b.
std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

Status CheckWeightFlags(const Flags& flags) {
  if (flags.init_weights || !(flags.new_weights || flags.unused_weights)) return Status::Ok();
  return {ErrorKind::kUsage, "--new-weights and --unused-weights need --init-weights=PATH"};
}

}  // namespace

WeightRules WeightRulesOf(const Flags& flags) {
  return {.fresh = SplitList(flags.new_weights.value_or("")),
          .unused = SplitList(flags.unused_weights.value_or(""))};
}

Result<Job> ReadTrainingJob(const Flags& flags) {
  if (!flags.job) return Status(ErrorKind::kUsage, "train needs --job=FILE");
  GACCD_RETURN_IF_ERROR(CheckCheckpointFlags(flags));
  GACCD_RETURN_IF_ERROR(CheckWeightFlags(flags));
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  return OverlayFlags(std::move(job), flags);
}

Agreement CheckSaveWeights(const Flags& flags, Communicator& comm) {
  Status fits;
  if (flags.save_weights && comm.rank() == 0) {
    fits = CheckWeightsFile(*flags.save_weights).WithContext("--save-weights");
  }
  return AgreeOn(comm, fits);
}

Agreement OpenTraining(const Flags& flags, Session& session) {
  Setup& setup = *session.setup;
  const BadRecordRules rules{
      .policy = flags.on_bad_record, .quota = flags.bad_record_quota, .seed = setup.job.seed};
  const Status fits =
      session.comm.rank() == 0
          ? CheckTokenizers(setup.job, WeightsFileOf(flags.init_weights.value_or("")))
          : Status::Ok();
  if (Agreement all = AgreeOn(session.comm, fits); !all.status.ok()) return all;
  TrainingData data;
  Agreement opened = OpenSharedData(session.comm, setup.job, rules, &data);
  if (!opened.status.ok()) return opened;
  auto trainer = Trainer::Open(session.comm, setup.job, setup.plan, std::move(data));
  if (trainer.ok()) setup.trainer = *std::move(trainer);
  return AgreeOn(session.comm, trainer.status());
}

Status CheckAllTheSame(const Flags& flags, const Job& job, Communicator& comm) {
  GACCD_RETURN_IF_ERROR(CheckSameOnAllRanks(comm, "binary", BuildId()));
  return CheckSameOnAllRanks(comm, "flags", JobDigest(job, flags));
}

Status ResolveJob(Communicator& comm, Job* job) {
  Result<std::string> mine = std::string();
  if (comm.rank() == 0) {
    const auto names = ReadClassNames(*job);
    mine = names.ok() ? Result<std::string>(ClassNamesText(names->names)) : names.status();
  }
  GACCD_ASSIGN_OR_RETURN(const std::string names, ShareFromRankZero(comm, mine));
  *job = WithAbsolutePaths(*job);
  job->data.class_name = ParseClassNames(names);
  return Status::Ok();
}

Status SelectDevice(const Flags& flags, const Job& job, Session& session) {
  Communicator& comm = session.comm;
  const GpuProbe probe = job.device == Device::kCpu ? GpuProbe() : ProbeGpus(comm.size());
  GACCD_ASSIGN_OR_RETURN(session.device,
                         ChooseDevice(comm, job.device, flags.allow_gpu_sharing, probe));
  if (session.device.device == Device::kCpu) {
    GACCD_RETURN_IF_ERROR(CheckNumericsOfCpu(NumericsOf(job), session.device.text));
    if (job.precision != Precision::kBF16) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(session.bf16, CheckBf16OnCpus(comm, Bf16OfCpu(), flags.allow_emulation));
    return Status::Ok();
  }
  GACCD_RETURN_IF_ERROR(CheckModelOnGpu(job));
  GACCD_ASSIGN_OR_RETURN(const bool attention, HasAttention(job));
  if (attention) {
    GACCD_ASSIGN_OR_RETURN(session.attention,
                           ChooseAttention(comm, job.precision, FindAttentionLibrary()));
  }
  if (comm.size() == 1) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(session.between_gpus,
                         MakeNccl(comm, {.comm = {.bound = BoundOf(flags)},
                                         .device = session.device.gpu->device,
                                         .gpu_sharing = flags.allow_gpu_sharing,
                                         .windows = NcclWindowsWanted(ProcessEnvironment())}));
  return Status::Ok();
}

EngineChoice EngineChoiceOf(const Flags& flags, const Session& session) {
  EngineChoice choice{.device = session.device.device};
  if (session.device.gpu) {
    choice.gpu = session.device.gpu->device;
    choice.gpu_sharing = flags.allow_gpu_sharing;
    choice.sdpa = session.attention.library;
    choice.reduction_multiprocessors = NcclMaxCtas(ProcessEnvironment());
    // Times taken together with another rank on the same GPU say nothing.
    choice.time_algorithms = flags.time_algorithms && !choice.gpu_sharing;
    if (choice.time_algorithms) choice.choices_folder = CacheFolder(ProcessEnvironment());
  }
  return choice;
}

Status PrepareTrainer(const Flags& flags, Session& session) {
  Trainer& trainer = *session.setup->trainer;
  trainer.SetGuards({.on_nonfinite = flags.on_nonfinite, .digest_every = flags.digest_every});
  return trainer.Prepare(EngineChoiceOf(flags, session), session.between_gpus.get());
}

Agreement LoadInitWeights(const Flags& flags, Session& session) {
  if (!flags.init_weights) return {};
  Trainer& trainer = *session.setup->trainer;
  LoadedWeights loaded;
  Agreement all =
      LoadWeightsTogether(session.comm, trainer.engine(), trainer.model(), session.setup->job,
                          {.path = *flags.init_weights, .rules = WeightRulesOf(flags)}, &loaded);
  if (session.comm.rank() == 0) session.init_weights = std::move(loaded.report);
  return all;
}

Status WriteResults(const Flags& flags, Session& session, const TrainingSummary& summary,
                    const Checkpointer* checkpointer) {
  const Setup& setup = *session.setup;
  const auto limit = LimitOfResults(BoundOf(flags));
  const unsigned mode = flags.group_access ? kGroupMayRead.file : kFileMode;
  if (flags.save_weights) {
    GACCD_ASSIGN_OR_RETURN(std::vector<float> parameters, setup.trainer->FinalParameters());
    GACCD_RETURN_IF_ERROR(SaveFinalWeights(
        setup.trainer->model().layout(), std::move(parameters),
        {.path = *flags.save_weights,
         .mode = mode,
         .class_names = setup.job.data.class_name,
         .limit = limit,
         .checkpoint = CheckpointAfter(summary.updates, flags, session, checkpointer),
         .run_dir = flags.run_dir.value_or("")}));
  }
  if (!flags.run_dir) return Status::Ok();
  return WriteWithin(
      limit, *flags.run_dir,
      [run_dir = *flags.run_dir, job = setup.job, mode,
       text = StrCat(summary.updates, " updates, ", summary.samples, " samples",
                     summary.stopped_early.empty() ? "" : "; ", summary.stopped_early)] {
        return MarkDone(run_dir, text, job, mode);
      });
}

StopOptions StopOptionsOf(const Flags& flags, const Session& session, const Clocks& clocks) {
  std::optional<Clocks::Steady::time_point> job_end;
  if (session.slurm.end_time_s) job_end = clocks.Deadline(*session.slurm.end_time_s);
  return {.signals = session.signals,
          .run_dir = flags.run_dir.value_or(""),
          .job_end = job_end,
          .term_budget = std::chrono::seconds(flags.term_budget),
          .checkpoints = session.lease.has_value(),
          .warn = [](const std::string& text) { LogWarning(text); },
          .save_guess = GuessSave(session)};
}

}  // namespace gaccd
