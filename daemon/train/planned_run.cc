#include "daemon/train/planned_run.h"

#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>
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

// Of the rank that has the most samples, on a CPU. Maps memory, and uses none of it.
Result<EngineMemory> PlannedMemory(const PlannedTraining& training, const Plan& plan) {
  GACCD_ASSIGN_OR_RETURN(const ReplicaOptions sizes,
                         EngineSizes(training, plan, BusiestRank(plan)));
  return PlanEngineMemory(training.model,
                          {.replica = sizes,
                           .optimizer = training.job.optimizer,
                           .shard = training.job.shard,
                           .numerics = {},
                           .choice = {.device = Device::kCpu}},
                          static_cast<int>(plan.world()));
}

// The same samples, with the other way to keep activations. Null: the model has no other.
Result<std::optional<Plan>> WithOtherRecompute(const Model& model, const Plan& plan) {
  if (!model.has_blocks()) return std::optional<Plan>();
  PlanRequest other = plan.request();
  const bool blocks = other.recompute == Recompute::kBlocks;
  other.recompute = blocks ? Recompute::kNone : Recompute::kBlocks;
  GACCD_ASSIGN_OR_RETURN(Plan made, Plan::Make(other));
  return std::optional(std::move(made));
}

// What a plan needs, and what the same with the other Recompute would.
struct Needs {
  EngineMemory memory;
  std::optional<Plan> other;
  EngineMemory other_memory;

  // "61.2 MB with --recompute=blocks". REQUIRES: there is another.
  [[nodiscard]] std::string OtherText(std::int64_t bytes) const {
    return StrCat(Megabytes(bytes), " with --recompute=", Name(other->request().recompute));
  }
};

Result<Needs> FindNeeds(const PlannedTraining& training, const Plan& plan) {
  Needs needs;
  GACCD_ASSIGN_OR_RETURN(needs.memory, PlannedMemory(training, plan));
  GACCD_ASSIGN_OR_RETURN(needs.other, WithOtherRecompute(training.model, plan));
  if (needs.other) {
    GACCD_ASSIGN_OR_RETURN(needs.other_memory, PlannedMemory(training, *needs.other));
  }
  return needs;
}

std::string StatisticsText(const Model& model, const Plan& plan) {
  std::string text;
  if (model.update_sums() > 0) {
    const bool kept = plan.accum_steps() > 1;
    text += Field("statistics", StrCat(UpdateSumsText(model), ": ", model.update_sums(),
                                       " reductions", kept ? "; what lives from one to the" : ""));
    if (kept) {
      text += Field("", StrCat("next is kept of ", plan.accum_steps(), " micro-batches a rank"));
    }
  }
  if (model.micro_values() > 0) {
    text += Field("statistics", StrCat("MICRO, of each micro-batch by itself, ",
                                       MicroBatchesText(plan), ": the result is"));
    text += Field("", StrCat("not that of one batch of ", plan.effective_batch(),
                             ", and depends on ranks and micro-batch"));
  }
  return text;
}

std::string MemoryText(const Model& model, const Plan& plan, const Needs& needs) {
  std::string text;
  if (model.update_sums() > 0 && plan.accum_steps() > 1) {
    text += Field("kept",
                  StrCat(Megabytes(needs.memory.kept_bytes),
                         needs.other ? "; " + needs.OtherText(needs.other_memory.kept_bytes) : ""));
  }
  text += Field("memory", StrCat(Megabytes(needs.memory.host_bytes),
                                 " a rank on a CPU: model, gradients, optimizer,"));
  text += Field("", "activations; a checkpoint holds a copy while it is written");
  if (!needs.other) return text;
  const UpdateCost cost = CostOf(model);
  std::ostringstream factor;
  factor << std::fixed << std::setprecision(2)
         << RelativeTime(*needs.other, cost) / RelativeTime(plan, cost);
  text += Field("recompute", StrCat(Name(plan.request().recompute), "; ",
                                    needs.OtherText(needs.other_memory.host_bytes)));
  return text + Field("", StrCat("in ", factor.str(), " x the time, predicted"));
}

Status AddRun(const Job& job, const Plan& plan, std::string* text) {
  GACCD_ASSIGN_OR_RETURN(const OpenedRun run, Open(job, plan));
  *text += UpdatesText(run.schedule);
  *text += Field("weight decay", DecayText(run.model.layout(), job.optimizer));
  *text += StatisticsText(run.model, plan);
  if (plan.world() > 1) *text += BytesText(job, run.model.layout(), plan.world());
  GACCD_RETURN_IF_ERROR(CheckBatchStatistics(run.model, plan, run.schedule));
  GACCD_ASSIGN_OR_RETURN(const Needs needs, FindNeeds(run.Of(job), plan));
  *text += MemoryText(run.model, plan, needs);
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
  *table = MemoryTableText(chosen.choice, CostOf(run.model), chosen.limit.text);
  return chosen.choice.plan();
}

}  // namespace gaccd
