#include <algorithm>
#include <array>

#include "collectives/base/strings.h"
#include "daemon/report/format_number.h"
#include "daemon/report/sections.h"
#include "daemon/telemetry/progress.h"
#include "daemon/watch/advice.h"

namespace gaccd {
namespace {

std::string ExportBest(const RunState& state) {
  return StrCat("gaccd ckpt export ", ShellWord(state.folder), " --best --out=best.safetensors");
}

// What to type next, whatever the advice is.
std::string NextCommand(const ReportData& story) {
  const RunState& state = story.diagnosis.state;
  const std::string folder = ShellWord(state.folder);
  switch (state.phase) {
    case RunPhase::kSubmitted:
    case RunPhase::kStarting:
    case RunPhase::kRunning:
      return StrCat("gaccd status --watch ", folder);
    case RunPhase::kDone:
      if (story.best_is_saved) return ExportBest(state);
      return StrCat("gaccd ckpt export ", folder, " --out=weights.safetensors");
    case RunPhase::kStale:
    case RunPhase::kStopped:
    case RunPhase::kFailed:
      break;
  }
  return StrCat("gaccd doctor ", folder);
}

void WriteProgress(const RunState& state, Html& out) {
  if (state.step <= 0) return;
  out << "<p class=where>";
  if (state.steps_total <= 0) {
    out.Say({"update {0}", "第 {0} 次更新"}, {FormatCount(state.step)}) << "</p>";
    return;
  }
  const double share = std::clamp(
      static_cast<double>(state.step) / static_cast<double>(state.steps_total), 0.0, 1.0);
  out.Say({"update {0} of {1}", "第 {0} 次更新，共 {1} 次"},
          {FormatCount(state.step), FormatCount(state.steps_total)});
  const bool lives = state.phase == RunPhase::kRunning;
  if (lives && state.eta_s) {
    out.Say({", {0} left", "，还需 {0}"}, {FormatLongTime(*state.eta_s)});
  }
  out << "</p><div class=progress><i style='width:" << std::to_string(100 * share)
      << "%'></i></div>";
}

// Which evaluation was the best, and how to get its weights, unless the next command does so.
void WriteBest(const ReportData& story, Html& out) {
  const RunState& state = story.diagnosis.state;
  if (!state.best) return;
  out << "<p class=where>";
  out.Say({"best evaluation: {0} {1}, after update {2}", "最佳评估：{0} {1}，第 {2} 次更新之后"},
          {state.best->metric, FormatNumber(state.best->value), FormatCount(state.best->step)});
  if (!story.best_is_saved) {
    out.Say({"; no checkpoint has its weights (evaluation.keep_best)",
             "；没有检查点保存其权重 (evaluation.keep_best)"});
  }
  out << "</p>";
  if (story.best_is_saved && state.phase != RunPhase::kDone) {
    (out << "<pre class=command>").Text(ExportBest(state)) << "</pre>";
  }
}

void WriteTile(const Bilingual& name, std::string_view value, Html& out) {
  (((out << "<div><dt>").Say(name) << "</dt><dd>").Text(value)) << "</dd></div>";
}

void WriteTile(const Bilingual& name, std::string_view value, const Bilingual& more,
               std::initializer_list<std::string> values, Html& out) {
  (((out << "<div><dt>").Say(name) << "</dt><dd>").Text(value) << "<small>").Say(more, values)
      << "</small></dd></div>";
}

void WriteFlops(const RunFigures& figures, Html& out) {
  if (figures.flops == 0 || figures.samples == 0) return;
  constexpr Bilingual kName{"model FLOP / s", "模型 FLOP / 秒"};
  const std::string speed = RateText(SamplesPerSecond(figures) * figures.flops / figures.samples);
  const auto mfu = figures.step->Number("mfu_ratio");
  if (!mfu) return WriteTile(kName, speed, out);
  WriteTile(kName, speed, {"last: {0} of the peak of {1}", "最新：{1} 峰值的 {0}"},
            {FormatPercent(*mfu), std::string(figures.start->Text("gpu"))}, out);
}

void WriteSpeed(const ReportData& story, Html& out) {
  const RunFigures& figures = story.figures;
  WriteTile({"samples / s", "样本 / 秒"}, RateText(SamplesPerSecond(figures)),
            {"{0} over {1}, stops included", "含停顿为 {0}（历时 {1}）"},
            {RateText(figures.elapsed_s > 0 ? figures.samples / figures.elapsed_s : 0),
             FormatLongTime(figures.elapsed_s)},
            out);
  WriteFlops(figures, out);
  WriteTile({"update, median", "更新耗时中位数"}, FormatSeconds(story.p50_s),
            {"99 % within {0}", "99 % 不超过 {0}"}, {FormatSeconds(story.p99_s)}, out);
}

}  // namespace

void WriteVerdict(const ReportData& story, Html& out) {
  const Diagnosis& diagnosis = story.diagnosis;
  const RunState& state = diagnosis.state;
  out << "<header class='card hero " << Name(state.phase) << "'><p class=state>";
  out.Say(PhaseName(state.phase));
  if (state.exit) out.Say({", exit {0}", "，退出码 {0}"}, {std::to_string(*state.exit)});
  (out << "</p><h1>").Text(state.run.empty() ? story.folder_name : state.run)
      << "</h1><p class=what>";
  if (story.figures.start) out.Text(StrCat(story.figures.start->Text("model"), " · "));
  if (state.world > 0) out.Say({"{0} ranks · ", "{0} 个 rank · "}, {FormatCount(state.world)});
  if (!state.device.empty()) out.Text(StrCat(state.device, " · "));
  out.Say({"job ", "作业 "}).Text(StrCat(state.job, " · ", state.folder)) << "</p>";
  WriteProgress(state, out);
  if (!state.reason.empty()) (out << "<p class=reason>").Text(state.reason) << "</p>";
  (out << "<h2>").Say({"What to do next", "下一步"}) << "</h2><pre class=command>";
  out.Text(NextCommand(story)) << "</pre>";
  WriteBest(story, out);
  if (state.phase != RunPhase::kDone && state.phase != RunPhase::kRunning) {
    out << "<ul class=advice>";
    for (const Advice& one : diagnosis.advice) {
      (out << "<li>").Say({"{0}", "{1}"}, {one.en, one.zh}) << "</li>";
    }
    out << "</ul>";
  }
  (out << "<p class=made>").Say({"Read at {0} UTC", "读取于 {0} UTC"}, {FormatTime(story.read_at)});
  if (state.phase == RunPhase::kRunning || state.phase == RunPhase::kStarting) {
    out.Say({", while the run was alive.", "，当时任务仍在运行。"});
  }
  out << "</p></header>\n";
}

void WriteFigures(const ReportData& story, Html& out) {
  const RunFigures& figures = story.figures;
  if (figures.updates == 0) return;
  out << "<section class=card id=figures><dl class=tiles>";
  if (const auto loss = figures.step->Number("loss")) {
    WriteTile({"training loss, last", "最新训练损失"}, FormatNumber(*loss), out);
  }
  int shown = 0;
  for (const auto& [metric, value] : figures.evals) {
    if (++shown > 3) break;
    WriteTile({"evaluation, last", "最新评估"}, FormatNumber(value), {"{0}", "{0}"}, {metric}, out);
  }
  const auto target = figures.plan ? figures.plan->Whole("effective_batch") : std::nullopt;
  WriteTile({"samples per update", "每次更新的样本数"}, target ? FormatCount(*target) : "?",
            {"counted exactly in {0} of {1} updates", "{1} 次更新中 {0} 次计数无误"},
            {FormatCount(story.on_target), FormatCount(figures.updates)}, out);
  WriteTile({"samples", "样本总数"}, FormatCount(static_cast<std::int64_t>(figures.samples)), out);
  WriteSpeed(story, out);
  WriteTile({"goodput", "有效时间占比"}, FormatPercent(Goodput(figures)),
            {"of the time in updates that count", "用于有效更新的时间"}, {}, out);
  WriteTile({"attempts", "启动次数"}, FormatCount(figures.attempts),
            {"{0} updates were repeated", "重做了 {0} 次更新"}, {FormatCount(figures.lost_updates)},
            out);
  const std::int64_t odd = figures.skipped + figures.nonfinite_losses;
  if (odd > 0) {
    WriteTile({"skipped updates", "跳过的更新"}, FormatCount(figures.skipped),
              {"{0} losses were not finite", "{0} 个损失非有限值"},
              {FormatCount(figures.nonfinite_losses)}, out);
  }
  out << "</dl></section>\n";
}

}  // namespace gaccd
