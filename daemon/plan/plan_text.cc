#include "daemon/plan/plan_text.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/plan/alternatives.h"
#include "daemon/plan/speeds.h"

namespace gaccd {

namespace {

std::string Left(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}
std::string Right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

// A right-aligned table cell, separated by a space even if the value is too wide.
std::string Cell(const std::string& text, std::size_t width) {
  return StrCat(" ", Right(text, width - 1));
}

// "98.46 %", "100 %".
std::string Percent(double ratio) { return ratio == 1 ? "100 %" : Format("%.2f %%", 100 * ratio); }

// "0 %", "+1.56 %", "-21.88 %"; more digits for an error that would be shown as 0.
std::string ErrorPercent(double ratio) {
  if (ratio == 0) return "0 %";
  return Format(std::abs(ratio) < 5e-5 ? "%+.1e %%" : "%+.2f %%", 100 * ratio);
}

std::string_view Mark(Origin origin) {
  switch (origin) {
    case Origin::kGiven:
      return "";
    case Origin::kDefault:
      return " (default)";
    case Origin::kJob:
      return " (job)";
    case Origin::kMemory:
      return " (auto)";
  }
  return "";
}

std::string_view Name(RankKind kind) { return kind == RankKind::kGpu ? "GPU" : "rank"; }

std::string Inputs(const Plan& plan, const PlanOrigins& from, RankKind kind) {
  const PlanRequest& asked = plan.request();
  std::string text;
  text += PlanField("target batch",
                    StrCat(asked.target_batch, Mark(from.target_batch), " samples per update"));
  text += PlanField(
      "ranks", StrCat(plan.world(), " = ", Counted(asked.nodes, "node"), Mark(from.nodes), " x ",
                      Counted(asked.gpus_per_node, Name(kind)), Mark(from.gpus_per_node)));
  if (plan.stages() > 1) {
    text += PlanField("pipelines", StrCat(plan.pipelines(), ", of ", plan.stages(),
                                          " ranks each, through which the same samples pass"));
  }
  text += PlanField("micro-batch", StrCat(asked.micro_batch, Mark(from.micro_batch),
                                          ", the most samples a rank holds at once"));
  if (asked.recompute == Recompute::kBlocks) {
    text +=
        PlanField("recompute", "blocks: the backward pass computes each block of the model again");
  }
  text += PlanField("base batch", StrCat(plan.base_batch(), " = ", plan.pipelines(), " x ",
                                         asked.micro_batch, "; target / base = ", plan.ratio()));
  text += PlanField("rounding", StrCat(Name(asked.rounding), Mark(from.rounding)));
  return text;
}

std::string Times(std::int64_t count, std::int64_t size) {
  return count == 1 ? StrCat(size) : StrCat(count, " x ", size);
}

// "192 ranks take 13 samples: 7 + 6", "80 ranks of speed 0.6 take 9 samples: 9 + 0"
std::string RankLine(const Plan& plan, const LoadGroup& group, std::size_t width) {
  const std::string_view takers = plan.stages() > 1 ? " pipeline" : " rank";
  std::string text = StrCat(Right(StrCat(group.ranks), width), takers, group.ranks == 1 ? "" : "s");
  if (plan.uneven()) {
    text += StrCat(" of speed ", group.min_speed);
    if (group.max_speed > group.min_speed) text += StrCat(" to ", group.max_speed);
  }
  text += group.ranks == 1 ? " takes " : " take ";
  if (group.samples == 0) return PlanField("", text + "none");
  if (plan.any_split()) return PlanField("", text + Counted(group.samples, "sample"));
  const std::int64_t steps = plan.accum_steps();
  const std::int64_t empty =
      plan.uneven() ? steps - CeilDiv(group.samples, plan.request().micro_batch) : 0;
  return PlanField("", text + StrCat(Counted(group.samples, "sample"), ": ",
                                     MicroBatchText(group.samples, steps - empty),
                                     empty == 0 ? "" : StrCat(" + ", Times(empty, 0))));
}

// With measured speeds nearly every rank has its own load: only the largest are shown.
std::string RankLines(const Plan& plan) {
  constexpr std::size_t kMaxLines = 6;
  std::vector<LoadGroup> groups = LoadGroups(plan);
  for (LoadGroup& group : groups) group.ranks /= plan.stages();
  const std::size_t shown = std::min(groups.size(), kMaxLines);
  std::int64_t most = 0;
  std::int64_t others = plan.pipelines();
  for (const LoadGroup& group : std::span(groups).first(shown)) {
    most = std::max(most, group.ranks);
    others -= group.ranks;
  }
  std::string text;
  for (const LoadGroup& group : std::span(groups).first(shown)) {
    text += RankLine(plan, group, StrCat(most).size());
  }
  if (others == 0) return text;
  return text + PlanField("", StrCat(others, " other ranks take ", groups.back().samples, " to ",
                                     groups[shown].samples, " samples"));
}

std::string Balance(const Plan& plan) {
  const double mean =
      static_cast<double>(plan.effective_batch()) / static_cast<double>(plan.pipelines());
  if (!plan.uneven()) {
    return PlanField("balance",
                     StrCat(Percent(plan.balance_ratio()), " = mean load ", Format("%.10g", mean),
                            " / largest load ", plan.ranks_hi_samples()));
  }
  const double slowest = plan.slowest_time();
  const double equal = plan.equal_loads_time();
  return PlanField("time", StrCat(slowest, " = largest samples / speed of a rank; idle share ",
                                  Percent(1 - plan.balance_ratio()))) +
         PlanField("", StrCat("equal loads: ", equal, ", so a gain of ",
                              Format("%.2f", equal / slowest), " x"));
}

std::string Decision(const Plan& plan) {
  std::string text =
      PlanField("micro-steps", StrCat(plan.accum_steps(), " per update, then one reduction"));
  text += PlanField("samples", StrCat(plan.effective_batch(), " per update, error ",
                                      ErrorPercent(plan.error_ratio())));
  if (plan.any_split()) {
    const std::int64_t most = plan.request().micro_batch;
    text += PlanField("bits", StrCat("any split: ", plan.micro_batches(),
                                     " micro-batches, the same on any number of ranks, of at most ",
                                     most, " samples"));
  }
  return text + RankLines(plan) + Balance(plan);
}

std::string LearningRate(const Plan& plan, const PlanOrigins& from) {
  const PlanRequest& asked = plan.request();
  std::string text =
      StrCat("x ", plan.lr_factor(), ", rule ", Name(asked.lr_rule), Mark(from.lr_rule));
  if (asked.lr_rule != LrRule::kNone) {
    text += StrCat(" of ", plan.effective_batch(), " / reference ", plan.reference_batch());
  }
  text = PlanField("learning rate", text);
  if (asked.lr_rule != LrRule::kNone && asked.reference_batch == 0) {
    text += PlanField("", "the reference is the target; set --reference-batch=N to the");
    text += PlanField("", "batch that the job's learning rate was tuned for");
  }
  return text;
}

// One row of the table of alternatives.
std::string Row(const std::string& label, const Plan& plan, double error, double cost) {
  std::string loads = StrCat(plan.ranks_hi_samples());
  if (plan.ranks_lo() > 0) {
    loads += StrCat(plan.uneven() ? " to " : " or ", plan.ranks_lo_samples());
  }
  return StrCat("  ", Left(label, 29), Cell(StrCat(plan.accum_steps()), 5),
                Cell(StrCat(plan.effective_batch()), 9), Cell(ErrorPercent(error), 11),
                Cell(Format("%.2f", cost), 7), "  ", loads, "\n");
}
std::string Row(const std::string& label, const Alternative& other) {
  return Row(label, other.plan, other.error_ratio, other.cost_ratio);
}

// Roundings with the same result share a row: "--rounding=floor or nearest".
std::string ModeRows(const std::vector<Alternative>& modes) {
  std::string text;
  for (std::size_t i = 0; i < modes.size();) {
    std::string label = StrCat("--rounding=", Name(modes[i].plan.request().rounding));
    std::size_t next = i + 1;
    for (; next < modes.size() &&
           modes[next].plan.effective_batch() == modes[i].plan.effective_batch();
         ++next) {
      label += StrCat(" or ", Name(modes[next].plan.request().rounding));
    }
    if (next - i == modes.size()) label = "every other rounding";
    text += Row(label, modes[i]);
    i = next;
  }
  return text;
}

// Remarks below the table.
std::string Remarks(const Plan& plan, const Alternatives& found, RankKind kind) {
  const PlanRequest& asked = plan.request();
  const std::string_view taker = plan.stages() > 1 ? "pipeline" : "rank";
  std::string text;
  if (asked.target_batch < plan.pipelines() && plan.exact()) {
    text += StrCat("The target is smaller than the number of ", taker,
                   "s: ", plan.ranks_lo() / plan.stages(), " ", taker, "s have no work.\n");
  }
  if (found.divides) {
    text += StrCat(asked.target_batch, " divides over ", Counted(plan.pipelines(), taker), ".\n");
    return text;
  }
  text += StrCat("No micro-batch divides it: ", asked.target_batch, " / ", plan.pipelines(), " ",
                 taker, "s is not whole.\n");
  if (plan.stages() == 1 && asked.target_batch % asked.gpus_per_node != 0) {
    text += StrCat("No node count does: ", asked.target_batch, " is not a multiple of ",
                   Counted(asked.gpus_per_node, Name(kind)), " per node.\n");
  } else if (found.nodes.empty()) {
    text += StrCat("No node count from ", found.nodes_from, " to ", found.nodes_to, " does.\n");
  }
  return text;
}

std::string WhatWouldDivide(const Plan& plan, RankKind kind) {
  const Alternatives found = FindAlternatives(plan);
  const bool others = found.divides || plan.uneven();
  std::string text =
      StrCat("\n", Left(others ? "Other plans" : "What would make it divide", 31),
             "steps  samples      error   ", plan.uneven() ? "time" : "load", "  per rank\n");
  text += Row(StrCat(Name(plan.request().rounding), " (this plan)"), plan, plan.error_ratio(),
              found.requested_cost);
  text += ModeRows(found.modes);
  for (const Alternative& other : found.equal_loads) text += Row("without --speed", other);
  for (const Alternative& other : found.targets) {
    text += Row(StrCat("--target-batch=", other.plan.request().target_batch), other);
  }
  for (const Alternative& other : found.nodes) {
    text += Row(StrCat("--nodes=", other.plan.request().nodes), other);
  }
  for (const Alternative& other : found.micro_batches) {
    text += Row(StrCat("--micro-batch=", other.plan.request().micro_batch), other);
  }
  if (plan.uneven()) {
    return text + "time: samples / speed of the slowest rank, relative to the exact plan.\n";
  }
  return text + "load: samples of the busiest rank per update, relative to the exact plan.\n" +
         Remarks(plan, found, kind);
}

}  // namespace

std::string PlanField(std::string_view name, const std::string& value) {
  return StrCat("  ", Left(std::string(name), 15), value, "\n");
}

std::string MicroBatchText(std::int64_t load, std::int64_t accum_steps) {
  const std::int64_t large = load % accum_steps;
  const std::int64_t small_size = load / accum_steps;
  if (accum_steps == 2) return StrCat(small_size + large, " + ", small_size);
  if (large == 0) return Times(accum_steps, small_size);
  return StrCat(Times(large, small_size + 1), " + ", Times(accum_steps - large, small_size));
}

std::string PlanText(const Plan& plan, const PlanOrigins& origins, RankKind kind) {
  return Inputs(plan, origins, kind) + Decision(plan) + LearningRate(plan, origins) +
         (plan.any_split() ? "" : WhatWouldDivide(plan, kind));
}

namespace {

std::string MemoryRow(const Plan& plan, double time) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << "  " << std::setw(11) << plan.request().micro_batch
      << ' ' << std::setw(12) << plan.accum_steps() << ' ' << std::setw(10)
      << Name(plan.request().recompute) << ' ' << std::setw(16) << Megabytes(plan.memory()->bytes)
      << ' ' << std::setw(7) << time;
  return std::move(out).str();
}

}  // namespace

std::string MemoryTableText(const MicroBatchChoice& choice, const UpdateCost& cost,
                            std::string_view limit) {
  std::string text =
      StrCat("\nMicro-batches by the memory of a rank\n  limit          ", limit, "\n",
             "  micro-batch  micro-steps  recompute           memory    time\n");
  for (std::size_t i = 0; i < choice.plans.size(); ++i) {
    const Plan& plan = choice.plans[i];
    text += MemoryRow(plan, RelativeTime(plan, cost));
    if (!plan.memory()->fits()) text += "  does not fit";
    if (i == choice.chosen && choice.fits) text += "  this plan";
    text += "\n";
  }
  return text + "time: of an update, predicted, relative to one micro-step without recompute.\n";
}

}  // namespace gaccd
