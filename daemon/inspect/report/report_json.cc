#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/report/report_command.h"
#include "daemon/inspect/watch/advice.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/speeds.h"

namespace gaccd {
namespace {

using Array = Json::Array;
using Object = Json::Object;

constexpr std::size_t kMaxBins = 1600;           // per figure, for all runs together
constexpr std::int64_t kMaxPlannedRanks = 4096;  // with listed samples
constexpr std::int64_t kMaxParts = 8;            // listed micro-batches of a rank

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

template <typename Values, typename ToJson>
Json List(const Values& values, const ToJson& to_json) {
  Array list;
  for (const auto& value : values) list.emplace_back(std::invoke(to_json, value));
  return list;
}

Json TextsJson(const std::vector<std::string>& texts) { return Array(texts.begin(), texts.end()); }

Json CurveJson(Curve curve, std::size_t max_bins) {
  curve.Limit(max_bins);
  Array pieces;
  for (const CurvePiece& piece : curve.Pieces()) {
    const std::int64_t lost_from = curve.lost_from()[pieces.size()];
    const auto lost = std::ranges::lower_bound(piece, lost_from, {}, &CurvePoint::step);
    pieces.push_back(Object{{"steps", List(piece, &CurvePoint::step)},
                            {"values", List(piece, &CurvePoint::value)},
                            {"count", lost - piece.begin()}});
  }
  return Object{{"width", curve.width()}, {"pieces", std::move(pieces)}};
}

Json FiguresJson(const ReportData& run) {
  const RunFigures& figures = run.figures;
  const auto last = [&](const char* key) {
    return figures.step ? OrNull(figures.step->Number(key)) : Json();
  };
  Object lost_s;
  for (std::size_t i = 0; i < kBadputNames.size(); ++i) {
    lost_s.emplace_back(kBadputNames[i], figures.badput_s[i]);
  }
  return Object{{"loss", last("loss")},
                {"mfu_ratio", last("mfu_ratio")},
                {"gpu", figures.start ? Json(figures.start->Text("gpu")) : Json()},
                {"evals", List(figures.evals,
                               [](const auto& eval) {
                                 return Object{{"metric", eval.first}, {"value", eval.second}};
                               })},
                {"effective_batch", OrNull(figures.target ? figures.target->Whole("target")
                                           : figures.plan ? figures.plan->Whole("effective_batch")
                                                          : std::nullopt)},
                {"updates", figures.updates},
                {"on_target", run.on_target},
                {"lost_updates", figures.lost_updates},
                {"skipped", figures.skipped},
                {"nonfinite_losses", figures.nonfinite_losses},
                {"samples", figures.samples},
                {"flops", figures.flops},
                {"updates_s", figures.update_s.sum},
                {"p50_s", run.p50_s},
                {"p99_s", run.p99_s},
                {"longest_s", run.longest_s},
                {"attempts", figures.attempts},
                {"elapsed_s", figures.elapsed_s},
                {"good_s", figures.good_s},
                {"lost_s", std::move(lost_s)},
                {"saves", figures.save_s.count},
                {"failed_saves", figures.failed_saves},
                {"saves_s", figures.save_s.sum},
                {"stalls_s",
                 figures.phase_s.contains("checkpoint") ? figures.phase_s.at("checkpoint") : 0.0}};
}

// The part that is also shown for several runs.
Object RunJson(const ReportData& run, std::size_t max_bins) {
  const RunState& state = run.diagnosis.state;
  const auto& start = run.figures.start;
  Json best;
  if (state.best) {
    best = Object{{"metric", state.best->metric},
                  {"value", state.best->value},
                  {"step", state.best->step},
                  {"is_saved", run.best_is_saved}};
  }
  const auto eval_json = [&](const auto& eval) {
    return Object{{"metric", eval.first}, {"curve", CurveJson(eval.second, max_bins)}};
  };
  return {{"name", run.folder_name},
          {"run", state.run},
          {"job", state.job},
          {"folder", state.folder},
          {"model", start ? Json(start->Text("model")) : Json()},
          {"world", state.world},
          {"device", state.device},
          {"phase", Name(state.phase)},
          {"exit", OrNull(state.exit)},
          {"reason", state.reason},
          {"step", state.step},
          {"steps_total", state.steps_total},
          {"eta_s", OrNull(state.eta_s)},
          {"best", std::move(best)},
          {"figures", FiguresJson(run)},
          {"first_step", run.first_step},
          {"last_step", run.last_step},
          {"curves", Object{{"loss", CurveJson(run.loss, max_bins)},
                            {"grad_norm", CurveJson(run.gradient_norm, max_bins)},
                            {"lr", CurveJson(run.learning_rate, max_bins)},
                            {"dur_p99_s", CurveJson(run.slow_updates, max_bins)}}},
          {"evals", List(run.evals, eval_json)}};
}

std::string ExportBest(const RunState& state) {
  return StrCat("gaccd ckpt export ", ShellWord(state.folder), " --best --out=best.safetensors");
}

// The next command for the user.
std::string NextCommand(const ReportData& run) {
  const RunState& state = run.diagnosis.state;
  const std::string folder = ShellWord(state.folder);
  if (state.phase == RunPhase::kDone) {
    if (run.best_is_saved) return ExportBest(state);
    return StrCat("gaccd ckpt export ", folder, " --out=weights.safetensors");
  }
  return StrCat(ExitCode(state.phase) == 0 ? "gaccd status --watch " : "gaccd doctor ", folder);
}

// From the plan event and the newest change of its loads. Missing values are 0, which Plan::Make()
// rejects.
PlanRequest MakePlanRequest(const Event& event, const std::optional<Event>& change) {
  const auto whole = [&](const char* key) { return event.Whole(key).value_or(0); };
  PlanRequest request{.nodes = whole("nodes"),
                      .gpus_per_node = whole("gpus_per_node"),
                      .micro_batch = whole("micro_batch"),
                      .target_batch = whole("target_batch"),
                      .stages = event.Whole("stages").value_or(1)};
  for (const Rounding rounding : {Rounding::kFloor, Rounding::kCeil, Rounding::kNearest}) {
    if (Name(rounding) == event.Text("mode")) request.rounding = rounding;
  }
  for (const Event* one : {&event, change ? &*change : nullptr}) {
    if (one == nullptr) continue;
    auto speeds = ParseSpeeds(one->Text("speeds"), whole("world"));
    if (speeds.ok()) request.speeds = *std::move(speeds);
  }
  return request;
}

std::optional<Plan> PlanWith(PlanRequest request, Rounding rounding) {
  request.rounding = rounding;
  auto plan = Plan::Make(request);
  return plan.ok() ? std::optional(*plan) : std::nullopt;
}

// A group of ranks with equal numbers of samples, and the first micro-batches of one of them.
Json LoadJson(const Plan& plan, std::int64_t ranks, std::int64_t samples) {
  std::int64_t rank = 0;
  while (rank + 1 < plan.world() && plan.Load(rank) != samples) ++rank;
  Array parts;
  for (std::int64_t step = 0; step < std::min(kMaxParts, plan.accum_steps()); ++step) {
    parts.emplace_back(plan.MicroBatch(rank, step));
  }
  return Object{{"ranks", ranks}, {"samples", samples}, {"parts", std::move(parts)}};
}

// The plan is that of the first stage of batch.target_schedule.
Json PlanJson(const RunFigures& figures) {
  if (!figures.plan) return {};
  const auto& change = figures.rebalance;
  const auto& target = figures.target;
  const PlanRequest request = MakePlanRequest(*figures.plan, change);
  const auto plan = PlanWith(request, request.rounding);
  if (!plan) return {};
  Array choices;
  for (const Rounding rounding :
       {Rounding::kFloor, Rounding::kExact, Rounding::kCeil, Rounding::kNearest}) {
    // Equal to floor or ceil, so only listed if the run uses it.
    if (rounding == Rounding::kNearest && request.rounding != rounding) continue;
    const auto one = PlanWith(request, rounding);
    if (!one) continue;
    choices.push_back(Object{{"mode", Name(rounding)},
                             {"effective_batch", one->effective_batch()},
                             {"error_ratio", one->error_ratio()}});
  }
  Array loads;
  for (const LoadGroup& group : LoadGroups(*plan)) {
    loads.push_back(LoadJson(*plan, group.ranks, group.samples));
  }
  Array rank_samples;
  for (std::int64_t rank = 0; plan->world() <= kMaxPlannedRanks && rank < plan->world(); ++rank) {
    rank_samples.emplace_back(plan->Load(rank));
  }
  return Object{{"mode", Name(request.rounding)},
                {"nodes", request.nodes},
                {"gpus_per_node", request.gpus_per_node},
                {"micro_batch", request.micro_batch},
                {"target_batch", request.target_batch},
                {"base_batch", plan->base_batch()},
                {"accum_steps", plan->accum_steps()},
                {"balance_ratio", plan->balance_ratio()},
                {"choices", std::move(choices)},
                {"loads", std::move(loads)},
                {"rank_samples", std::move(rank_samples)},
                {"changed_after", change ? change->Whole("step").value_or(0) : 0},
                {"new_loads", change ? change->Text("loads") : ""},
                {"stage_after", target ? target->Whole("step").value_or(0) : 0},
                {"stage_batch", target ? target->Whole("target").value_or(0) : 0},
                {"stage_loads", target ? target->Text("loads") : ""}};
}

Json PhasesJson(const BinSums<PhaseSum>& phases) {
  const auto bin_json = [](const auto& bin) {
    const auto& [index, sum] = bin;
    return Object{
        {"index", index},           {"updates", sum.updates}, {"compute_s", sum.compute_s},
        {"reduce_s", sum.reduce_s}, {"wait_s", sum.wait_s},   {"optimizer_s", sum.optimizer_s},
        {"data_s", sum.data_s},     {"other_s", sum.other_s}};
  };
  return Object{{"width", phases.width()}, {"bins", List(phases.sums(), bin_json)}};
}

// {"ranks": [[rank, updates in which it was the slowest], ...]}
Json SlowJson(const BinSums<SlowSum>& slow) {
  const auto rank_json = [](const auto& rank) { return Array{rank.first, rank.second}; };
  const auto bin_json = [&](const auto& bin) {
    const auto& [index, sum] = bin;
    return Object{
        {"index", index}, {"updates", sum.updates}, {"ranks", List(sum.ranks, rank_json)}};
  };
  return Object{{"width", slow.width()}, {"bins", List(slow.sums(), bin_json)}};
}

Json SlowRankJson(const std::pair<const std::int64_t, SlowestCount>& rank) {
  return Object{{"rank", rank.first},
                {"host", rank.second.host},
                {"phase", rank.second.phase},
                {"updates", rank.second.updates},
                {"worst_ratio", rank.second.worst_ratio}};
}

Json ChangeJson(const Change& change) {
  return Object{{"name", change.name}, {"before", change.before}, {"after", change.after}};
}

Json FailureJson(const RankFailure& failure) {
  return Object{{"rank", failure.rank},       {"host", failure.host},
                {"step", failure.step},       {"what", failure.what},
                {"message", failure.message}, {"more_ranks", failure.more_ranks}};
}

Json AttemptJson(const AttemptData& attempt) {
  return Object{{"name", attempt.name},
                {"begin", SecondsSinceEpoch(attempt.begin)},
                {"end", SecondsSinceEpoch(attempt.end)},
                {"init_s", attempt.init_s},
                {"updates", attempt.updates},
                {"first_step", attempt.first_step},
                {"last_step", attempt.last_step},
                {"exit", OrNull(attempt.exit)},
                {"verdict", attempt.verdict},
                {"reason", attempt.reason},
                {"failures", List(attempt.failures, FailureJson)},
                {"more_failures", attempt.more_failures},
                {"changes", List(attempt.changes, ChangeJson)},
                {"job_changes", List(attempt.job_changes, ChangeJson)}};
}

Json SaveJson(const Event& save) {
  return Object{{"step", save.Whole("step").value_or(0)},
                {"at", SecondsSinceEpoch(save.at)},
                {"attempt", save.attempt},
                {"bytes", save.Number("bytes").value_or(0)},
                {"dur_s", save.Number("dur_s").value_or(0)},
                {"ok", save.Is("ok")},
                {"reason", save.Text("reason")}};
}

void AppendDetails(const ReportData& run, Object* json) {
  const Diagnosis& diagnosis = run.diagnosis;
  const auto advice_json = [](const Advice& one) { return Object{{"en", one.en}, {"zh", one.zh}}; };
  const auto suspect_json = [](const SuspectHost& one) {
    return Object{{"host", one.host}, {"attempts", one.attempts}};
  };
  Object more{{"next_command", NextCommand(run)},
              {"export_best", run.best_is_saved ? Json(ExportBest(diagnosis.state)) : Json()},
              {"advice", List(diagnosis.advice, advice_json)},
              {"plan", PlanJson(run.figures)},
              {"phases", PhasesJson(run.phases)},
              {"slow", SlowJson(run.slow)},
              {"slow_ranks", List(run.slow_ranks, SlowRankJson)},
              {"attempts", List(run.attempts, AttemptJson)},
              {"saves", List(run.saves, SaveJson)},
              {"suspects", List(diagnosis.suspects, suspect_json)},
              {"warnings", TextsJson(run.warnings)},
              {"job_text", run.job},
              {"notes", TextsJson(diagnosis.notes)},
              {"thinned", run.thinned}};
  std::ranges::move(more, std::back_inserter(*json));
}

}  // namespace

std::string ReportJson(std::span<const ReportData> runs, PageLanguage language) {
  Array list;
  for (const ReportData& run : runs) {
    Object json = RunJson(run, kMaxBins / runs.size());
    if (runs.size() == 1) {
      AppendDetails(run, &json);
    } else {
      json.emplace_back("job_changes", List(LineChanges(runs[0].job, run.job), ChangeJson));
    }
    list.emplace_back(std::move(json));
  }
  const Json all(Object{{"language", Name(language)},
                        {"read_at", SecondsSinceEpoch(runs[0].read_at)},
                        {"runs", std::move(list)}});
  std::string text;
  for (const char c : all.Dump()) text.append(c == '<' ? "\\u003c" : std::string(1, c));
  return text;
}

}  // namespace gaccd
