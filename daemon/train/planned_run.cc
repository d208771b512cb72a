#include "daemon/train/planned_run.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/node_share.h"
#include "daemon/engine/planned_memory.h"
#include "daemon/models/graph_network.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/memory_table.h"
#include "daemon/tensor/group_rules.h"
#include "daemon/tensor/shard_layout.h"
#include "daemon/train/batch_statistics.h"
#include "daemon/train/memory_choice.h"
#include "daemon/train/run_options.h"

namespace gaccd {
namespace {

std::string Field(std::string_view name, const std::string& value) {
  constexpr std::size_t kWidth = 15;  // as in PlanText()
  return StrCat("  ", name, std::string(kWidth - name.size(), ' '), value, "\n");
}

std::string UpdatesText(const UpdateSchedule& schedule) {
  const ScheduleRequest& asked = schedule.request();
  const std::int64_t rest = asked.dataset_size % asked.batch;
  const std::int64_t whole = asked.dataset_size / asked.batch;
  std::string text = Field("updates", StrCat(schedule.updates(), " of the run"));
  std::string epoch = StrCat(asked.dataset_size, " samples an epoch: ", whole, " updates");
  if (rest > 0 && asked.last_cycle == LastCycle::kUpdate) {
    epoch += StrCat(", then one of ", rest);
  } else if (rest > 0) {
    epoch +=
        StrCat(", ", rest,
               asked.last_cycle == LastCycle::kDrop ? " are left out" : " go into the next epoch");
  }
  return text + Field("", epoch);
}

struct OpenedRun {
  TrainingData data;
  Model model;
  UpdateSchedule schedule;

  [[nodiscard]] PlannedTraining Of(const Job& job) const {
    return {.job = job, .model = model, .data = data, .schedule = schedule};
  }
};

Result<OpenedRun> Open(const Job& job, const Plan& plan) {
  NodeShare unchecked = NodeShare::Unchecked();
  GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job, {}, &unchecked));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         ScheduleOf(job, plan.effective_batch(), data.train->size()));
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, BatchSpecOf(job, *data.train)));
  GACCD_RETURN_IF_ERROR(model.ApplyRules(job.optimizer));
  return OpenedRun{std::move(data), std::move(model), schedule};
}

// The state of the optimiser for so many parameters.
std::int64_t StateBytes(const Job& job, std::int64_t parameters) {
  return StateElements(job.optimizer, parameters) * std::int64_t{sizeof(float)};
}

// That of the rank that has the most of it.
std::int64_t StateOfARank(const Job& job, const FlatLayout& layout, std::int64_t world) {
  if (job.shard == Sharding::kNone) return StateBytes(job, layout.trainable_size());
  return StateBytes(job, ShardLayout::Make(layout, static_cast<int>(world)).most_state_elements());
}

// What a rank keeps of the model, and what it must at least send in an update, whichever way the
// sums take: of W ranks each sends (W - 1) / W of what is reduced and scattered, or gathered.
std::string BytesText(const Job& job, const FlatLayout& layout, std::int64_t world) {
  const std::int64_t parameters = layout.size() * std::int64_t{sizeof(float)};
  const std::int64_t blocks = (layout.size() + FlatLayout::kBlock - 1) / FlatLayout::kBlock;
  const auto sent = [world](std::int64_t bytes) {
    return Megabytes(bytes / world * (world - 1) + bytes % world * (world - 1) / world);
  };
  const std::string weights = StrCat("a rank: weights ", Megabytes(parameters), ", gradients ",
                                     Megabytes(parameters), ", optimizer ");
  const std::string state = Megabytes(StateOfARank(job, layout, world));
  if (job.shard == Sharding::kNone) {
    return Field("sharding", "none: every rank keeps the whole state of the optimizer") +
           Field("bytes", weights + state) +
           Field("wire", StrCat("a rank sends ", sent(2 * parameters),
                                " an update: one all-reduce of the gradients"));
  }
  const std::int64_t norm = blocks * std::int64_t{sizeof(double)};
  return Field("sharding", "optimizer: every rank keeps the state of its own part") +
         Field("bytes", StrCat(weights, state, " of ",
                               Megabytes(StateBytes(job, layout.trainable_size())))) +
         Field("wire", StrCat("a rank sends ", sent(2 * parameters + norm),
                              " an update: gradients reduced")) +
         Field("", StrCat("and scattered ", sent(parameters), ", norms of blocks gathered ",
                          sent(norm), ",")) +
         Field("", StrCat("parameters gathered ", sent(parameters)));
}

// Of rank `rank`, which has the most samples. Maps memory, and uses none of it.
Result<std::int64_t> PlannedBytes(const PlannedTraining& training, const Plan& plan) {
  GACCD_ASSIGN_OR_RETURN(const ReplicaOptions sizes,
                         EngineSizes(training, plan, BusiestRank(plan)));
  GACCD_ASSIGN_OR_RETURN(const EngineMemory memory,
                         PlanEngineMemory(training.model,
                                          {.replica = sizes,
                                           .optimizer = training.job.optimizer,
                                           .shard = training.job.shard,
                                           .numerics = {},
                                           .choice = {.device = Device::kCpu}},
                                          static_cast<int>(plan.world())));
  return memory.host_bytes;
}

Status AddRun(const Job& job, const Plan& plan, std::string* text) {
  GACCD_ASSIGN_OR_RETURN(const OpenedRun run, Open(job, plan));
  *text += UpdatesText(run.schedule);
  *text += Field("weight decay", DecayText(run.model.layout(), job.optimizer));
  if (run.model.update_sums() > 0) {
    *text += Field("statistics", StrCat(UpdateSumsText(run.model), ": ", run.model.update_sums(),
                                        " reductions; the activations of"));
    *text += Field(
        "", StrCat("its ", plan.accum_steps(), " micro-batches are kept until the update ends"));
  }
  if (run.model.micro_values() > 0) {
    *text += Field("statistics", StrCat("MICRO, of each micro-batch by itself, ",
                                        MicroBatchesText(plan), ": the result is"));
    *text += Field("", StrCat("not that of one batch of ", plan.effective_batch(),
                              ", and depends on ranks and micro-batch"));
  }
  if (plan.world() > 1) *text += BytesText(job, run.model.layout(), plan.world());
  GACCD_RETURN_IF_ERROR(CheckBatchStatistics(run.model, plan, run.schedule));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t bytes, PlannedBytes(run.Of(job), plan));
  *text +=
      Field("memory", StrCat(Megabytes(bytes), " a rank on a CPU: model, gradients, optimizer,"));
  *text += Field("", "activations; a checkpoint holds a copy while it is written");
  return Status::Ok();
}

}  // namespace

std::string PlannedRunText(const Job& job, const Plan& plan) {
  std::string text = StrCat("\nThe run of ", job.name, "\n");
  const auto resolved = WithGraphDigest(job);
  const Status known = resolved.ok() ? AddRun(*resolved, plan, &text) : resolved.status();
  if (!known.ok()) {
    text += Field("not known", known.message());
  }
  return text;
}

Result<Plan> ChoosePlan(const Job& job, const Plan& whole, const Flags& flags, std::string* table) {
  GACCD_ASSIGN_OR_RETURN(const OpenedRun run, Open(job, whole));
  PlannedTraining training = run.Of(job);
  training.saves = flags.run_dir.has_value() && SavePolicyOf(flags).on();
  training.any_load = flags.speed == "measured" || flags.rebalance == Rebalance::kAuto;
  GACCD_ASSIGN_OR_RETURN(const ChosenPlan chosen, ChooseForPlan(training, whole, MemoryOf(flags)));
  *table = MemoryTableText(chosen.choice,
                           {.flops_per_sample = run.model.FlopsPerSample(),
                            .parameters = run.model.layout().parameters()},
                           chosen.limit.text);
  return chosen.choice.plan();
}

}  // namespace gaccd
