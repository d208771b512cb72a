#include "daemon/train/planned_run.h"

#include <utility>

#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"
#include "daemon/data/index_source.h"
#include "daemon/data/node_share.h"
#include "daemon/data/sample_order.h"
#include "daemon/tensor/group_rules.h"
#include "daemon/train/batch_statistics.h"
#include "daemon/train/trainer.h"

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

// Rank 0, unless the ranks have different speeds.
int BusiestRank(const Plan& plan) {
  int rank = 0;
  while (plan.Load(rank) != plan.ranks_hi_samples()) ++rank;
  return rank;
}

// Of rank `rank`, which has the most samples. Maps memory, and uses none of it.
Result<std::int64_t> PlannedBytes(const Job& job, const Plan& plan, const Model& model,
                                  const BatchFeed& feed, int rank, const Dataset* eval) {
  const auto comm = MakeSingle();
  ReplicaOptions replica{.micro_batches = feed.BatchSizes(),
                         .micro_steps_per_update = feed.most_micro_steps(),
                         .effective_batch = plan.effective_batch(),
                         .rank_samples = feed.most_samples()};
  if (eval != nullptr) {
    replica.eval_batches =
        EvalBatchSizes(ShardOf(eval->size(), rank, plan.world()), job.batch.micro);
  }
  GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(*comm, model,
                                                       {.replica = replica,
                                                        .optimizer = job.optimizer,
                                                        .numerics = {},
                                                        .choice = {.device = Device::kCpu}}));
  return engine->memory().host_bytes;
}

Status AddRun(const Job& job, const Plan& plan, std::string* text) {
  NodeShare unchecked = NodeShare::Unchecked();
  GACCD_ASSIGN_OR_RETURN(const TrainingData data, OpenTrainingData(job, {}, &unchecked));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         ScheduleOf(job, plan.effective_batch(), data.train->size()));
  *text += UpdatesText(schedule);
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, BatchSpecOf(job, *data.train)));
  GACCD_RETURN_IF_ERROR(model.ApplyRules(job.optimizer));
  *text += Field("weight decay", DecayText(model.layout(), job.optimizer));
  if (model.update_sums() > 0) {
    *text += Field("statistics", StrCat(UpdateSumsText(model), ": ", model.update_sums(),
                                        " reductions; the activations of"));
    *text += Field(
        "", StrCat("its ", plan.accum_steps(), " micro-batches are kept until the update ends"));
  }
  if (model.micro_values() > 0) {
    *text += Field("statistics", StrCat("MICRO, of each micro-batch by itself, ",
                                        MicroBatchesText(plan), ": the result is"));
    *text += Field("", StrCat("not that of one batch of ", plan.effective_batch(),
                              ", and depends on ranks and micro-batch"));
  }
  GACCD_RETURN_IF_ERROR(CheckBatchStatistics(model, plan, schedule));
  const SampleOrder order(job.seed, data.train->size(), job.data.shuffle);
  const int busiest = BusiestRank(plan);
  GACCD_ASSIGN_OR_RETURN(const BatchFeed feed,
                         BatchFeed::Make(*data.train, order, schedule, plan, busiest,
                                         GeneratorOf(KindOf(job.model.loss), model.update_sums())));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t bytes,
                         PlannedBytes(job, plan, model, feed, busiest, data.eval.get()));
  *text +=
      Field("memory", StrCat(Megabytes(bytes), " a rank on a CPU: model, gradients, optimizer,"));
  *text += Field("", "activations; a checkpoint holds a copy while it is written");
  return Status::Ok();
}

}  // namespace

std::string PlannedRunText(const Job& job, const Plan& plan) {
  std::string text = StrCat("\nThe run of ", job.name, "\n");
  if (const Status known = AddRun(job, plan, &text); !known.ok()) {
    text += Field("not known", known.message());
  }
  return text;
}

}  // namespace gaccd
