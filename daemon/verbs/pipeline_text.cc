#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/plan/plan_text.h"
#include "daemon/train/pipeline.h"
#include "daemon/verbs/planned_run.h"

namespace gaccd {
namespace {

constexpr std::size_t kShownActions = 12;

std::string Percent(double ratio) { return Format("%.1f %%", 100 * ratio); }

std::int64_t CountParameters(const FlatLayout& layout, const ShardPart& part) {
  std::int64_t sum = 0;
  for (const FlatEntry& entry : layout.entries()) {
    const bool own = entry.offset >= part.first && entry.offset < part.first + part.elements;
    if (own && !entry.buffer) sum += entry.elements;
  }
  return sum;
}

// Bytes sent to both neighbours per sample. On GPUs activations have the precision of the job.
Result<std::int64_t> SentBytes(const Job& job, const Model& stage) {
  const Precision precision = job.device == Device::kCuda ? job.precision : Precision::kF32;
  GACCD_ASSIGN_OR_RETURN(const TrainingGraph one, stage.RecordTraining({1}, precision));
  std::int64_t bytes = 0;
  for (const auto& sent : {one.ends.sent, one.ends.sent_gradient}) {
    if (sent) bytes += one.graph.value(*sent).spec.bytes();
  }
  return bytes;
}

// Number of ranks of a stage on each node that has any.
std::vector<int> CountRanksOfNodes(const Plan& plan, std::int64_t stage) {
  std::vector<int> ranks;
  std::int64_t last = -1;
  for (std::int64_t rank = stage; rank < plan.world(); rank += plan.stages()) {
    const std::int64_t node = rank / plan.request().gpus_per_node;
    if (node != last) ranks.push_back(0);
    last = node;
    ++ranks.back();
  }
  return ranks;
}

// Bytes of gradients and parameters that a rank of the stage sends in an update: the mean over its
// ranks.
Result<std::int64_t> ReducedBytes(const Job& job, const Model& stage, const Plan& plan) {
  const std::vector<int> ranks =
      CountRanksOfNodes(plan, static_cast<std::int64_t>(stage.stage()->stage));
  GACCD_ASSIGN_OR_RETURN(const CommTraffic all,
                         StageTraffic(job.shard, stage.layout(), *stage.stage(), ranks));
  return all.sent / plan.pipelines();
}

// "F1 F2 B1 F3 B2 B3"
std::string OrderText(const Job& job, std::int64_t stage, std::int64_t micro_batches) {
  const auto actions =
      PipelineActions(job.pipeline.schedule, job.pipeline.stages, stage, micro_batches);
  std::string text;
  for (std::size_t i = 0; i < std::min(actions.size(), kShownActions); ++i) {
    const char letter = "FBW"[static_cast<std::size_t>(actions[i].kind)];
    text += StrCat(text.empty() ? "" : " ", letter, actions[i].micro_batch + 1);
  }
  return actions.size() > kShownActions ? text + " ..." : text;
}

// The sizes of the micro-batches of the pipeline with the most samples.
std::vector<std::int64_t> MicroBatches(const Plan& plan) {
  std::int64_t rank = 0;
  while (plan.Load(rank) != plan.ranks_hi_samples()) rank += plan.stages();
  std::vector<std::int64_t> samples;
  for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
    samples.push_back(plan.MicroBatch(rank, step));
  }
  return samples;
}

// flops: of the matrix products of a stage.
StageCost CostOf(double flops) {
  return {.forward = flops / 3, .backward = flops * 2 / 3, .weights = flops / 3};
}

struct StageNeeds {
  Model model;
  std::int64_t blocks = 0;
  double flops = 0;
  std::int64_t bytes = 0;
};

// What an update needs with this pipeline.
struct PipelineNeeds {
  std::vector<StageNeeds> stages;
  PipelineTime time;
};

Result<PipelineNeeds> FindNeeds(const Job& job, const Model& model, const Plan& plan,
                                const StageMemory& memory) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<double> flops, model.BlockFlops());
  std::vector<std::int64_t> blocks = {std::ssize(flops)};
  if (plan.stages() > 1) {
    GACCD_ASSIGN_OR_RETURN(blocks, AssignBlocks(job, model));
  }
  PipelineNeeds needs;
  std::vector<StageCost> costs;
  auto block = flops.begin();
  for (const std::int64_t count : blocks) {
    StageNeeds stage{.model = model, .blocks = count};
    GACCD_RETURN_IF_ERROR(MakeStage(job, std::ssize(costs), &stage.model));
    GACCD_ASSIGN_OR_RETURN(stage.bytes, memory(job, plan, stage.model));
    stage.flops = std::accumulate(block, block + count, 0.0);
    block += count;
    costs.push_back(CostOf(stage.flops));
    needs.stages.push_back(std::move(stage));
  }
  needs.time = PredictTime(job.pipeline.schedule, costs, MicroBatches(plan));
  return needs;
}

std::int64_t MaxBytes(const PipelineNeeds& needs) {
  return std::ranges::max_element(needs.stages, {}, &StageNeeds::bytes)->bytes;
}

// With so many stages, the blocks divided by gaccd.
Result<PipelineNeeds> FindNeeds(Job job, const Model& model, const Plan& plan, std::int64_t stages,
                                Sharding shard, const StageMemory& memory) {
  if (stages != plan.stages()) job.pipeline.blocks.clear();
  job.pipeline.stages = stages;
  job.shard = shard;
  PlanRequest request = plan.request();
  request.stages = stages;
  GACCD_ASSIGN_OR_RETURN(const Plan other, Plan::Make(request));
  return FindNeeds(job, model, other, memory);
}

// The next smaller and the next larger number of stages that divides the ranks, and 1.
std::vector<std::int64_t> OtherStages(const Plan& plan) {
  const auto divides = [&](std::int64_t stages) { return plan.world() % stages == 0; };
  std::vector<std::int64_t> others;
  std::int64_t fewer = plan.stages() - 1;
  while (!divides(fewer)) --fewer;
  if (fewer > 1) others.push_back(1);
  others.push_back(fewer);
  std::int64_t more = plan.stages() + 1;
  while (more <= plan.world() && !divides(more)) ++more;
  if (more <= plan.world()) others.push_back(more);
  return others;
}

std::string BubbleText(const PipelineTime& time, const Plan& plan) {
  const std::string text =
      PlanField("bubble", StrCat(Percent(time.idle_ratio), " of the stages' time, predicted for ",
                                 plan.accum_steps(), " micro-batches"));
  const bool divisible = plan.accum_steps() < plan.ranks_hi_samples();
  if (!divisible || plan.accum_steps() >= 2 * plan.stages()) return text;
  return text + PlanField("", "a smaller micro-batch gives more of them, which wait less");
}

}  // namespace

Result<std::string> PipelineText(const Job& job, const Model& model, const Plan& plan,
                                 const StageMemory& memory) {
  GACCD_ASSIGN_OR_RETURN(const PipelineNeeds needs, FindNeeds(job, model, plan, memory));
  double all = 0;
  for (const StageNeeds& stage : needs.stages) all += stage.flops;
  std::string table;
  std::string order;
  for (std::int64_t s = 0; s < plan.stages(); ++s) {
    const StageNeeds& stage = needs.stages[static_cast<std::size_t>(s)];
    GACCD_ASSIGN_OR_RETURN(const std::int64_t sent, SentBytes(job, stage.model));
    GACCD_ASSIGN_OR_RETURN(const std::int64_t reduced, ReducedBytes(job, stage.model, plan));
    const std::string text =
        Format("%5ld%8ld%12ld%10s%11ld%12s%14s%16s", s + 1, stage.blocks,
               CountParameters(model.layout(), stage.model.stage()->own()),
               Percent(all > 0 ? stage.flops / all : 0).c_str(),
               MaxInFlight(job, stage.model, plan.accum_steps()), Megabytes(stage.bytes).c_str(),
               Megabytes(sent * plan.ranks_hi_samples()).c_str(), Megabytes(reduced).c_str());
    table += PlanField("", text);
    order += PlanField("", StrCat("stage ", s + 1, ": ", OrderText(job, s, plan.accum_steps())));
  }
  return PlanField("pipeline", StrCat(Counted(plan.pipelines(), "pipeline"), " of ", plan.stages(),
                                      " stages, ", Name(job.pipeline.schedule))) +
         PlanField("", StrCat("stage  blocks  parameters  products  in flight  memory/",
                              job.device == Device::kCuda ? "GPU" : "CPU",
                              "  sends/update  reduces/update")) +
         table +
         PlanField("order", StrCat("F: forward, B: backward of a micro-batch",
                                   job.pipeline.schedule == PipelineSchedule::kZeroBubble
                                       ? ", W: its gradients of weights"
                                       : "")) +
         order + BubbleText(needs.time, plan);
}

std::string OtherPipelinesText(const Job& job, const Model& model, const Plan& plan,
                               const StageMemory& memory) {
  const auto here = FindNeeds(job, model, plan, memory);
  if (!here.ok()) return "";
  std::ostringstream out;
  out << StrCat("    stages  pipelines  shard             memory/",
                job.device == Device::kCuda ? "GPU" : "CPU", "   bubble    time\n");
  const auto row = [&](std::int64_t stages, Sharding shard) {
    const auto needs = FindNeeds(job, model, plan, stages, shard, memory);
    if (!needs.ok()) return;
    out << std::setw(10) << stages << std::setw(11) << plan.world() / stages << "  " << std::left
        << std::setw(14) << Name(shard) << std::right << std::setw(14)
        << Megabytes(MaxBytes(*needs)) << std::setw(9) << Percent(needs->time.idle_ratio)
        << std::setw(8) << std::fixed << std::setprecision(2)
        << needs->time.total / here->time.total
        << (stages == plan.stages() && shard == job.shard ? "  this plan" : "") << "\n";
  };
  row(plan.stages(), job.shard);
  for (const std::int64_t stages : OtherStages(plan)) row(stages, job.shard);
  for (const Sharding mode : kShardingModes) {
    if (mode != job.shard) row(plan.stages(), mode);
  }
  return std::move(out).str() +
         "time: of an update's products, predicted, relative to this plan.\n";
}

}  // namespace gaccd
