#include <algorithm>
#include <optional>

#include "collectives/base/strings.h"
#include "daemon/plan/plan.h"
#include "daemon/report/format_number.h"
#include "daemon/report/sections.h"

namespace gaccd {
namespace {

constexpr std::int64_t kMaxRanks = 4096;  // that are drawn

// Of the plan event; nothing where it does not say enough.
std::optional<PlanRequest> RequestOf(const Event& event) {
  PlanRequest request;
  const std::pair<const char*, std::int64_t*> fields[] = {{"nodes", &request.nodes},
                                                          {"gpus_per_node", &request.gpus_per_node},
                                                          {"micro_batch", &request.micro_batch},
                                                          {"target_batch", &request.target_batch}};
  for (const auto& [key, value] : fields) {
    const auto found = event.Whole(key);
    if (!found) return std::nullopt;
    *value = *found;
  }
  for (const Rounding rounding :
       {Rounding::kExact, Rounding::kFloor, Rounding::kCeil, Rounding::kNearest}) {
    if (Name(rounding) == event.Text("mode")) request.rounding = rounding;
  }
  return request;
}

std::optional<Plan> PlanWith(PlanRequest request, Rounding rounding) {
  request.rounding = rounding;
  auto plan = Plan::Make(request);
  return plan.ok() ? std::optional(*plan) : std::nullopt;
}

// "7 + 6": what a rank of this load computes at once.
std::string PartsOf(const Plan& plan, std::int64_t load) {
  constexpr std::int64_t kMaxParts = 8;
  std::int64_t rank = 0;
  while (rank + 1 < plan.world() && plan.Load(rank) != load) ++rank;
  std::string text;
  for (std::int64_t step = 0; step < std::min(kMaxParts, plan.accum_steps()); ++step) {
    text += StrCat(step == 0 ? "" : " + ", plan.MicroBatch(rank, step));
  }
  return plan.accum_steps() > kMaxParts ? text + " + ..." : text;
}

Bilingual RoundingWords(Rounding rounding) {
  switch (rounding) {
    case Rounding::kExact:
      return {"exact", "精确"};
    case Rounding::kFloor:
      return {"floor", "向下"};
    case Rounding::kCeil:
      return {"ceil", "向上"};
    case Rounding::kNearest:
      break;
  }
  return {"nearest", "最近"};
}

void WriteBar(const Plan& plan, const Plan& chosen, std::int64_t largest, Html& out) {
  const auto percent = [&](std::int64_t batch) {
    return std::to_string(100.0 * static_cast<double>(batch) / static_cast<double>(largest));
  };
  const bool is_chosen = plan.request().rounding == chosen.request().rounding;
  (out << "<div class='bar" << (is_chosen ? " chosen" : "") << "'><span class=name>")
          .Say(RoundingWords(plan.request().rounding))
      << "</span><span class=track><i style='width:" << percent(plan.effective_batch())
      << "%'></i><u style='left:" << percent(plan.request().target_batch) << "%'></u></span><b>"
      << FormatCount(plan.effective_batch()) << "</b><span class=error>"
      << FormatSignedPercent(plan.error_ratio()) << "</span></div>";
}

// Every rank as a square, a column a node, or a row where nodes are few; those that take one
// sample more are darker.
void WriteRanks(const Plan& plan, Html& out) {
  if (plan.world() > kMaxRanks) return;
  const std::int64_t per_node = plan.request().gpus_per_node;
  const bool in_columns = plan.request().nodes >= per_node;
  std::string more;
  std::string less;
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    const std::int64_t node = rank / per_node * 10;
    const std::int64_t place = rank % per_node * 10;
    (plan.Load(rank) == plan.ranks_hi_samples() ? more : less) +=
        StrCat("M", in_columns ? node : place, " ", in_columns ? place : node, "h8v8h-8z");
  }
  const std::int64_t width = 10 * std::max(plan.request().nodes, per_node);
  const std::int64_t height = 10 * std::min(plan.request().nodes, per_node);
  out << "<svg class=ranks viewBox='0 0 " << StrCat(width, " ", height)
      << "' style='max-width:" << std::to_string(width * 2)
      << "px' aria-hidden=true><path class=more d='" << more << "'/><path class=less d='" << less
      << "'/></svg>";
}

void WriteLoads(const Plan& plan, Html& out) {
  const auto write = [&](const char* style, std::int64_t ranks, std::int64_t samples) {
    if (ranks == 0) return;
    out << "<span><i class=" << style << "></i>";
    out.Say({"{0} ranks take {1} samples: {2}", "{0} 个 rank 各取 {1} 个样本：{2}"},
            {FormatCount(ranks), FormatCount(samples), PartsOf(plan, samples)})
        << "</span>";
  };
  out << "<p class=legend>";
  write("more", plan.ranks_hi(), plan.ranks_hi_samples());
  write("less", plan.ranks_lo(), plan.ranks_lo_samples());
  out << "</p>";
}

void WriteChoices(const Plan& chosen, Html& out) {
  std::vector<Plan> plans;
  std::int64_t largest = chosen.request().target_batch;
  for (const Rounding rounding : {Rounding::kFloor, Rounding::kExact, Rounding::kCeil}) {
    if (const auto plan = PlanWith(chosen.request(), rounding)) {
      plans.push_back(*plan);
      largest = std::max(largest, plan->effective_batch());
    }
  }
  out << "<div class=bars>";
  for (const Plan& plan : plans) WriteBar(plan, chosen, largest, out);
  out << "</div>";
}

}  // namespace

void WritePlan(const ReportData& story, Html& out) {
  if (!story.figures.plan) return;
  const auto request = RequestOf(*story.figures.plan);
  if (!request) return;
  const auto plan = PlanWith(*request, request->rounding);
  if (!plan) return;
  out.BeginSection("plan", {"The batch that was asked for", "所要求的批量"}) << "<p>";
  out.Say(
      {"Asked for: {0} samples an update. {1} x {2} ranks hold {4} at once, {3} each; "
       "micro-steps: {5}.",
       "要求每次更新 {0} 个样本；{1} x {2} 个 rank 一次可容纳 {4} 个，每个 {3} 个；微步数：{5}。"},
      {FormatCount(request->target_batch), FormatCount(request->nodes),
       FormatCount(request->gpus_per_node), FormatCount(request->micro_batch),
       FormatCount(plan->base_batch()), FormatCount(plan->accum_steps())})
      << "</p>";
  WriteChoices(*plan, out);
  WriteLoads(*plan, out);
  WriteRanks(*plan, out);
  (out << "<p class=note>")
          .Say({"On average a rank computes {0} of what the busiest one does.",
                "各 rank 的平均负载为最忙者的 {0}。"},
               {FormatPercent(plan->balance_ratio())})
      << "</p>";
  out.EndSection();
}

}  // namespace gaccd
