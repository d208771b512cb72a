#include "daemon/verbs/planned_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/node_share.h"
#include "daemon/engine/planned_memory.h"
#include "daemon/models/graph_network.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan_text.h"
#include "daemon/tensor/group_rules.h"
#include "daemon/train/run_options.h"
#include "daemon/train/training_checks.h"

namespace gaccd {
namespace {

std::string UpdatesText(const UpdateSchedule& schedule) {
  const ScheduleRequest& request = schedule.request();
  const std::int64_t rest = request.dataset_size % request.batch;
  const std::int64_t full_updates = request.dataset_size / request.batch;
  std::string text = PlanField("updates", StrCat(schedule.updates(), " of the run"));
  if (schedule.stages().size() > 1) {
    return text +
           PlanField("", StrCat("samples of an update: ", BatchesText(schedule, schedule.updates()),
                                ";")) +
           PlanField("", StrCat(request.dataset_size, " samples an epoch"));
  }
  std::string epoch =
      StrCat(request.dataset_size, " samples an epoch: ", Counted(full_updates, "update"));
  if (rest > 0 && request.last_cycle == LastCycle::kUpdate) {
    epoch += StrCat(", then one of ", rest);
  } else if (rest > 0) {
    epoch += StrCat(
        ", ", rest,
        request.last_cycle == LastCycle::kDrop ? " are left out" : " go into the next epoch");
  }
  return text + PlanField("", epoch);
}

struct OpenedRun {
  TrainingData data;
  Model model;
  UpdateSchedule schedule;

  [[nodiscard]] PlannedTraining MakeTraining(const Job& job) const {
    return {.job = job, .model = model, .data = data, .schedule = schedule};
  }
};

Result<OpenedRun> Open(const Job& job, const Plan& plan) {
  NodeShare unchecked = NodeShare::Unchecked();
  GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job, {}, &unchecked));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         MakeUpdateSchedule(job, plan, data.train->size()));
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, MakeBatchSpec(job, *data.train)));
  GACCD_RETURN_IF_ERROR(model.ApplyRules(job.optimizer));
  return OpenedRun{std::move(data), std::move(model), schedule};
}

// The device of the printed values: for device auto the CPU, unless only GPUs have the precision.
Device PlannedDevice(const Job& job) {
  const bool on_gpu = job.device == Device::kCuda || job.precision == Precision::kFP16;
  return on_gpu ? Device::kCuda : Device::kCpu;
}

// Bytes on PlannedDevice(job).
std::int64_t DeviceBytes(const EngineMemory& memory, const Job& job) {
  return PlannedDevice(job) == Device::kCuda ? memory.device_bytes : memory.host_bytes;
}

// For the rank with the most samples. Maps memory without touching it.
Result<EngineMemory> PlannedMemory(const PlannedTraining& training, const Plan& plan,
                                   Device device) {
  GACCD_ASSIGN_OR_RETURN(const ReplicaOptions sizes,
                         EngineSizes(training, plan, BusiestRank(plan, training.schedule)));
  const auto& stage = training.model.stage();
  return PlanEngineMemory(
      training.model,
      {.replica = sizes,
       .optimizer = training.job.optimizer,
       .shard = training.job.shard,
       .numerics = device == Device::kCuda ? GetNumerics(training.job) : Numerics(),
       .choice = {.device = device}},
      CountStateParts(training.job, plan, stage ? static_cast<std::int64_t>(stage->stage) : 0));
}

// The plan with recomputation switched on or off; empty: the model does not support it.
Result<std::optional<Plan>> WithOtherRecompute(const Model& model, const Plan& plan) {
  if (!model.has_blocks()) return std::optional<Plan>();
  PlanRequest other = plan.request();
  const bool blocks = other.recompute == Recompute::kBlocks;
  other.recompute = blocks ? Recompute::kNone : Recompute::kBlocks;
  GACCD_ASSIGN_OR_RETURN(Plan made, Plan::Make(other));
  return std::optional(std::move(made));
}

// The memory of a plan, and of the same plan with the other Recompute.
struct Needs {
  EngineMemory memory;
  std::optional<Plan> other;
  EngineMemory other_memory;

  // "61.2 MB with --recompute=blocks". REQUIRES: other.
  [[nodiscard]] std::string OtherText(std::int64_t bytes) const {
    return StrCat(Megabytes(bytes), " with --recompute=", Name(other->request().recompute));
  }
};

Result<Needs> FindNeeds(const PlannedTraining& training, const Plan& plan) {
  Needs needs;
  GACCD_ASSIGN_OR_RETURN(needs.memory, PlannedMemory(training, plan, PlannedDevice(training.job)));
  GACCD_ASSIGN_OR_RETURN(needs.other, WithOtherRecompute(training.model, plan));
  if (needs.other) {
    GACCD_ASSIGN_OR_RETURN(needs.other_memory,
                           PlannedMemory(training, *needs.other, PlannedDevice(training.job)));
  }
  return needs;
}

std::string StatisticsText(const Model& model, const Plan& plan) {
  std::string text;
  if (model.update_sums() > 0) {
    const bool kept = plan.accum_steps() > 1;
    text +=
        PlanField("statistics", StrCat(UpdateSumsText(model), ": ", model.update_sums(),
                                       " reductions", kept ? "; kept from one to the next:" : ""));
    if (kept) {
      text += PlanField("", StrCat(plan.accum_steps(), " micro-batches a rank"));
    }
  }
  if (model.micro_values() > 0) {
    text += PlanField("statistics", StrCat("MICRO, of each micro-batch by itself, ",
                                           MicroBatchesText(plan), ": the result is"));
    text += PlanField("", StrCat("not that of one batch of ", plan.effective_batch(),
                                 ", and depends on ranks and micro-batch"));
  }
  return text;
}

std::string MemoryText(const Job& job, const Model& model, const Plan& plan, const Needs& needs) {
  const bool on_gpu = PlannedDevice(job) == Device::kCuda;
  std::string text;
  if (model.update_sums() > 0 && plan.accum_steps() > 1) {
    text += PlanField(
        "kept", StrCat(Megabytes(needs.memory.kept_bytes),
                       needs.other ? "; " + needs.OtherText(needs.other_memory.kept_bytes) : ""));
  }
  const bool has_state = StateElements(job.optimizer, 1) > 0;
  text += PlanField("memory", StrCat(Megabytes(DeviceBytes(needs.memory, job)), " a rank on a ",
                                     on_gpu ? "GPU" : "CPU", ": model, gradients,",
                                     has_state ? " optimizer," : ""));
  text += PlanField("", on_gpu ? "activations; without scratch of kernels, and libraries"
                               : "activations; without program, data, batches and checkpoints");
  if (!needs.other) return text;
  const UpdateCost cost = ComputeUpdateCost(model);
  const double factor = RelativeTime(*needs.other, cost) / RelativeTime(plan, cost);
  text += PlanField("recompute", StrCat(Name(plan.request().recompute), "; ",
                                        needs.OtherText(DeviceBytes(needs.other_memory, job))));
  return text + PlanField("", Format("in %.2f x the time, predicted", factor));
}

Status AddRun(const Job& job, const Plan& plan, const Flags& flags, std::string* text) {
  GACCD_ASSIGN_OR_RETURN(const OpenedRun run, Open(job, plan));
  *text += UpdatesText(run.schedule);
  *text += PlanField("weight decay", DecayText(run.model.layout(), job.optimizer));
  *text += StatisticsText(run.model, plan);
  GACCD_RETURN_IF_ERROR(CheckTraining(job, run.model, plan, run.schedule, run.data.eval.get()));
  GACCD_RETURN_IF_ERROR(
      CheckTrainingFlags(job, run.model, plan, MakeTrainGuards(flags), MakeLoadChanges(flags)));
  if (plan.stages() > 1) {
    const StageMemory memory = [&](const Job& of, const Plan& with,
                                   const Model& stage) -> Result<std::int64_t> {
      const PlannedTraining training{
          .job = of, .model = stage, .data = run.data, .schedule = run.schedule};
      GACCD_ASSIGN_OR_RETURN(const EngineMemory planned,
                             PlannedMemory(training, with, PlannedDevice(job)));
      return DeviceBytes(planned, job);
    };
    GACCD_ASSIGN_OR_RETURN(const std::string stages, PipelineText(job, run.model, plan, memory));
    *text += stages;
    if (job.shard != Sharding::kNone) {
      const std::int64_t parts = CountStateParts(job, plan);
      *text += PlanField(
          "sharding", StrCat(Name(job.shard), ": the state of a stage in ", Counted(parts, "part"),
                             ", among the ", plan.pipelines(), " ranks that have it"));
    }
    *text += OtherPipelinesText(job, run.model, plan, memory);
    return Status::Ok();
  }
  GACCD_ASSIGN_OR_RETURN(const Needs needs, FindNeeds(run.MakeTraining(job), plan));
  if (plan.world() > 1) {
    *text += ShardingText(job, run.model.layout(), plan, DeviceBytes(needs.memory, job));
  }
  *text += MemoryText(job, run.model, plan, needs);
  return Status::Ok();
}

// Whether a training would fail with this error on any machine. The nodes may have other files and
// more memory than this machine.
bool EndsTraining(const Status& error) {
  if (error.kind() == ErrorKind::kConfig) return !error.lacks_memory();
  return error.kind() == ErrorKind::kData;
}

// Appends the table of sharding modes to the error that no micro-batch fits.
Status WithModes(const Status& error, const std::string& modes) {
  return {error.kind(), modes.empty() ? error.message() : StrCat(error.message(), "\n", modes)};
}

}  // namespace

std::string PlannedRunText(const Job& job, const Plan& plan, const Flags& flags, Status* error) {
  std::string text = StrCat("\nThe run of ", job.name, "\n");
  const auto resolved = WithGraphDigest(job);
  const Status known = resolved.ok() ? AddRun(*resolved, plan, flags, &text) : resolved.status();
  if (!known.ok()) {
    text += PlanField("not known", known.message());
    if (error != nullptr && EndsTraining(known)) *error = known;
  }
  return text;
}

Result<Plan> ChoosePlan(const Job& job, const Plan& one_step, const Flags& flags,
                        std::string* table) {
  GACCD_ASSIGN_OR_RETURN(const OpenedRun run, Open(job, one_step));
  PlannedTraining training = run.MakeTraining(job);
  const bool may_save = MakeSavePolicy(flags).on();
  training.saves = may_save && flags.run_dir;
  training.any_load = MakeLoadChanges(flags).any();
  const auto memory = MemoryFlag(flags);
  const auto chosen = ChooseForPlan(training, one_step, memory);
  std::string modes;
  if (memory && one_step.world() > 1) {
    GACCD_ASSIGN_OR_RETURN(modes, FittingModesText(training, one_step, *memory,
                                                   chosen.ok() ? chosen->process_bytes : 0));
  }
  if (!chosen.ok()) return WithModes(chosen.status(), modes);
  *table = MemoryTableText(chosen->choice, ComputeUpdateCost(run.model), chosen->limit.text);
  if (PlannedDevice(job) == Device::kCpu) {
    *table += "memory: with program, data and batches.\n";
    if (may_save && !flags.run_dir) {
      *table += "memory: without the copies of a checkpoint, which --run-dir=DIR includes.\n";
    }
  }
  *table += modes;
  return chosen->choice.plan();
}

}  // namespace gaccd
