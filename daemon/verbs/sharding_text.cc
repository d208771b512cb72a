#include <iomanip>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan_text.h"
#include "daemon/tensor/reproducible_sum.h"
#include "daemon/tensor/shard_layout.h"
#include "daemon/train/memory_choice.h"
#include "daemon/verbs/planned_run.h"

namespace gaccd {
namespace {

// A sharding mode on a number of ranks.
struct Division {
  Sharding mode = Sharding::kNone;
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  bool any_split = false;

  [[nodiscard]] std::vector<int> ranks_of_nodes() const {
    return std::vector<int>(static_cast<std::size_t>(nodes), static_cast<int>(ranks_per_node));
  }
  // Bins of the sums of the gradients.
  [[nodiscard]] std::int64_t BinBytes(const FlatLayout& layout) const {
    return any_split ? layout.size() * static_cast<std::int64_t>(kFloatBins * sizeof(double)) : 0;
  }
  [[nodiscard]] CommTraffic Traffic(const FlatLayout& layout) const {
    return any_split ? SumTraffic(BinBytes(layout), ranks_of_nodes())
                     : UpdateTraffic(mode, layout, ranks_of_nodes());
  }
  [[nodiscard]] int parts() const { return ShardGrid::Make(mode, ranks_of_nodes()).parts(); }
};

std::int64_t StateBytes(const Job& job, std::int64_t parameters) {
  return StateElements(job.optimizer, parameters) * std::int64_t{sizeof(float)};
}

// The maximum over the ranks.
std::int64_t MaxStateBytes(const Job& job, const FlatLayout& layout, const Division& division) {
  return StateBytes(job, ShardLayout::Make(layout, division.parts()).max_state_elements());
}

std::string Meaning(const Division& division, bool has_state) {
  if (division.mode == Sharding::kNone) {
    return has_state ? "none: every rank keeps the whole state of the optimizer"
                     : "none: this optimizer has no state";
  }
  const std::string name = StrCat(Name(division.mode), ": ");
  if (division.parts() == 1) return name + "divides nothing where a node has one rank";
  const std::string parts = StrCat(division.parts(), " parts, ");
  switch (division.mode) {
    case Sharding::kNode:
      return name + parts + "one for each rank of a node; every node has the whole state";
    case Sharding::kNodeOptimizer:
      return name + parts + "one for each rank; exchanged in the node, then between nodes";
    default:
      return name + parts + "one for each rank; exchanged among all ranks at once";
  }
}

// The mean over the ranks.
std::string SentText(const FlatLayout& layout, const Division& division) {
  const CommTraffic all = division.Traffic(layout);
  std::string text =
      StrCat("a rank sends ", Megabytes(all.sent / (division.nodes * division.ranks_per_node)),
             " an update");
  if (division.nodes > 1) {
    text += StrCat(", a node ", Megabytes(all.between_nodes / division.nodes), " to other nodes");
  }
  return text;
}

std::string Steps(const Division& division) {
  if (division.any_split) return "one all-reduce of the exact sums, two doubles for each gradient";
  if (division.parts() == 1) return "one all-reduce of the gradients";
  const std::string_view between =
      division.mode == Sharding::kNode && division.nodes > 1 ? ", summed between nodes" : "";
  return StrCat("gradients reduced and scattered", between,
                "; norms of blocks gathered; parameters gathered");
}

std::string TableRow(const Job& job, const FlatLayout& layout, const Division& division) {
  const CommTraffic all = UpdateTraffic(division.mode, layout, division.ranks_of_nodes());
  const std::int64_t ranks = division.nodes * division.ranks_per_node;
  std::ostringstream out;
  out << "  " << std::setw(7) << division.nodes << std::setw(7) << ranks << "  " << std::left
      << std::setw(14) << Name(division.mode) << std::right << std::setw(13)
      << Megabytes(MaxStateBytes(job, layout, division)) << std::setw(14)
      << Megabytes(all.sent / ranks) << std::setw(16)
      << Megabytes(all.between_nodes / division.nodes) << "\n";
  return std::move(out).str();
}

std::string OtherWorlds(const Job& job, const FlatLayout& layout, const Division& here) {
  std::string text =
      "    nodes  ranks  shard             optimizer    rank sends   node to others\n";
  for (const std::int64_t nodes : {here.nodes - 1, here.nodes, here.nodes + 1}) {
    if (nodes < 1) continue;
    text += TableRow(job, layout, {here.mode, nodes, here.ranks_per_node});
  }
  for (const Sharding mode : kShardingModes) {
    if (mode == here.mode) continue;
    text += TableRow(job, layout, {mode, here.nodes, here.ranks_per_node});
  }
  return text;
}

}  // namespace

std::string ShardingText(const Job& job, const FlatLayout& layout, const Plan& plan,
                         std::int64_t planned) {
  const Division here = {job.shard, plan.request().nodes, plan.request().gpus_per_node,
                         plan.any_split()};
  const std::int64_t parameters = layout.size() * std::int64_t{sizeof(float)};
  const std::int64_t gradients = parameters + here.BinBytes(layout);
  const std::int64_t state = MaxStateBytes(job, layout, here);
  const std::int64_t total_state = StateBytes(job, layout.trainable_size());
  std::string state_text;
  if (total_state > 0) {
    state_text = StrCat(", optimizer ", Megabytes(state),
                        state == total_state ? "" : StrCat(" of ", Megabytes(total_state)));
  }
  std::string text =
      PlanField("sharding", Meaning(here, total_state > 0)) +
      PlanField("bytes", StrCat("a rank: weights ", Megabytes(parameters), ", gradients ",
                                Megabytes(gradients), here.any_split ? " with exact sums" : "",
                                state_text, ",")) +
      PlanField("", StrCat(job.device == Device::kCuda ? "activations and copies of weights "
                                                       : "activations and packed weights ",
                           Megabytes(planned - parameters - gradients - state))) +
      PlanField("wire", StrCat(SentText(layout, here), ":")) + PlanField("", Steps(here));
  return here.mode == Sharding::kNone ? text : text + OtherWorlds(job, layout, here);
}

Result<std::string> FittingModesText(const PlannedTraining& training, const Plan& one_step,
                                     std::int64_t memory, std::int64_t process_bytes) {
  std::ostringstream out;
  out << "\nSharding by the memory of a rank\n"
         "  shard           micro-batch  micro-steps  recompute           memory\n";
  for (const Sharding mode : kShardingModes) {
    Job job = training.job;
    job.shard = mode;
    const PlannedTraining other = {.job = job,
                                   .model = training.model,
                                   .data = training.data,
                                   .schedule = training.schedule,
                                   .saves = training.saves,
                                   .any_load = training.any_load};
    GACCD_ASSIGN_OR_RETURN(const ChosenPlan chosen,
                           SearchForPlan(other, one_step, memory, process_bytes));
    const Plan& plan = chosen.choice.plan();
    out << "  " << std::left << std::setw(14) << Name(mode) << std::right << std::setw(13)
        << plan.request().micro_batch << std::setw(13) << plan.accum_steps() << std::setw(11)
        << Name(plan.request().recompute) << std::setw(17) << Megabytes(plan.memory()->bytes)
        << (chosen.choice.fits ? "" : "  does not fit") << "\n";
  }
  return std::move(out).str();
}

}  // namespace gaccd
