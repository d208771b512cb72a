#include <algorithm>
#include <array>
#include <set>

#include "collectives/base/strings.h"
#include "daemon/report/attempt_changes.h"
#include "daemon/report/chart.h"
#include "daemon/report/format_number.h"
#include "daemon/report/page.h"
#include "daemon/report/sections.h"
#include "daemon/telemetry/progress.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxComparedMetrics = 4;
constexpr std::size_t kMaxBins = 1600;  // of all lines of a chart

std::set<std::string> MetricsOf(std::span<const ReportData> stories) {
  std::set<std::string> metrics;
  for (const ReportData& story : stories) {
    for (const auto& [metric, curve] : story.evals) {
      if (metrics.size() < kMaxComparedMetrics) metrics.insert(metric);
    }
  }
  return metrics;
}

void WriteHeads(const std::set<std::string>& metrics, Html& out) {
  out << "<tr>";
  WriteColumns({{"run", "任务"},
                {"state", "状态"},
                {"updates", "更新", true},
                {"samples per update", "每次更新样本数", true},
                {"loss", "损失", true},
                {"best", "最佳"}},
               out);
  for (const std::string& metric : metrics) {
    (out << "<th class=n>").Say({"eval ", "评估 "}).Text(metric) << "</th>";
  }
  WriteColumns({{"update, median", "更新中位数", true},
                {"samples / s", "样本 / 秒", true},
                {"goodput", "有效时间占比", true},
                {"attempts", "启动次数", true}},
               out);
  out << "</tr>";
}

std::string NumberOrNone(const std::optional<double>& value) {
  return value ? FormatNumber(*value) : "-";
}

void WriteRow(const ReportData& story, const std::string& style,
              const std::set<std::string>& metrics, Html& out) {
  const RunFigures& figures = story.figures;
  const auto batch = figures.plan ? figures.plan->Whole("effective_batch") : std::nullopt;
  (out << "<tr><td><i class=" << style << "></i>").Text(story.folder_name) << "</td><td>";
  out.Say(PhaseName(story.diagnosis.state.phase)) << "</td>";
  WriteNumber(FormatCount(story.last_step), out);
  WriteNumber(batch ? FormatCount(*batch) : "-", out);
  WriteNumber(NumberOrNone(figures.step ? figures.step->Number("loss") : std::nullopt), out);
  const auto& best = story.diagnosis.state.best;
  WriteCell(best ? StrCat(best->metric, " ", FormatNumber(best->value), " @ ", best->step) : "-",
            out);
  for (const std::string& metric : metrics) {
    const auto found = figures.evals.find(metric);
    WriteNumber(found == figures.evals.end() ? "-" : FormatNumber(found->second), out);
  }
  WriteNumber(story.first_step > 0 ? FormatSeconds(story.p50_s) : "-", out);
  WriteNumber(story.first_step > 0 ? RateText(SamplesPerSecond(figures)) : "-", out);
  WriteNumber(FormatPercent(Goodput(figures)), out);
  WriteNumber(FormatCount(figures.attempts), out);
  out << "</tr>";
}

std::string StyleOf(std::size_t run) { return StrCat("c", run % 8); }

// One chart of a curve of each run.
class Overlay {
 public:
  explicit Overlay(std::span<const ReportData> stories) : stories_(stories) {
    bool any = false;
    for (const ReportData& story : stories) {
      if (story.first_step == 0) continue;
      steps_.first = any ? std::min(steps_.first, story.first_step) : story.first_step;
      steps_.last = any ? std::max(steps_.last, story.last_step) : story.last_step;
      any = true;
    }
  }

  template <typename CurveOf>
  void Write(const Bilingual& title, const std::string& subject, bool logarithmic,
             const CurveOf& curve_of, Html& out) const {
    std::vector<Curve> curves;
    curves.reserve(stories_.size());
    LineChart chart{
        .title = title, .subject = subject, .steps = steps_, .may_be_logarithmic = logarithmic};
    for (std::size_t i = 0; i < stories_.size(); ++i) {
      const Curve* curve = curve_of(stories_[i]);
      if (curve == nullptr) continue;
      curves.push_back(*curve);
      curves.back().Limit(kMaxBins / stories_.size());
      chart.lines.push_back({stories_[i].folder_name, StyleOf(i), &curves.back()});
    }
    WriteLineChart(chart, out);
  }

 private:
  std::span<const ReportData> stories_;
  StepRange steps_;
};

void WriteJobs(std::span<const ReportData> stories, Html& out) {
  out.BeginSection("jobs", {"Where the jobs differ from the first one", "与第一个任务的配置差异"});
  for (const ReportData& story : stories.subspan(1)) {
    (out << "<h3>").Text(story.folder_name) << "</h3>";
    const std::vector<Change> changes = LineChanges(stories[0].job, story.job);
    if (changes.empty()) {
      (out << "<p class=note>").Say({"nowhere", "无差异"}) << "</p>";
      continue;
    }
    out << "<pre class=diff>";
    for (const Change& change : changes) {
      const bool gone = !change.before.empty();
      (out << (gone ? "<del>- " : "<ins>+ ")).Text(gone ? change.before : change.after)
          << (gone ? "</del>\n" : "</ins>\n");
    }
    out << "</pre>";
  }
  out.EndSection();
}

}  // namespace

void WriteComparison(std::span<const ReportData> stories, Html& out) {
  const std::set<std::string> metrics = MetricsOf(stories);
  (out << "<header class='card hero'><h1>")
          .Say({"{0} runs side by side", "{0} 个任务的对比"},
               {FormatCount(static_cast<std::int64_t>(stories.size()))})
      << "</h1>";
  out << "<div class=scroll><table>";
  WriteHeads(metrics, out);
  for (std::size_t i = 0; i < stories.size(); ++i) WriteRow(stories[i], StyleOf(i), metrics, out);
  out << "</table></div>";
  (out << "<p class=made>")
          .Say({"Read at {0} UTC", "读取于 {0} UTC"}, {FormatTime(stories[0].read_at)})
      << "</p></header>\n";
  const Overlay overlay(stories);
  out.BeginSection("curves", {"Curves", "曲线"});
  overlay.Write(
      {"loss", "损失"}, "", true, [](const ReportData& one) { return &one.loss; }, out);
  out << "<div class=two>";
  for (const std::string& metric : metrics) {
    const auto find = [&](const ReportData& one) {
      const auto found = one.evals.find(metric);
      return found == one.evals.end() ? nullptr : &found->second;
    };
    overlay.Write({"evaluation: ", "评估："}, metric, false, find, out);
  }
  overlay.Write(
      {"gradient norm", "梯度范数"}, "", true,
      [](const ReportData& one) { return &one.gradient_norm; }, out);
  overlay.Write(
      {"learning rate", "学习率"}, "", false,
      [](const ReportData& one) { return &one.learning_rate; }, out);
  overlay.Write(
      {"seconds of an update, 99th percentile", "更新耗时的 99 百分位（秒）"}, "", true,
      [](const ReportData& one) { return &one.slow_updates; }, out);
  out << "</div>";
  out.EndSection();
  WriteJobs(stories, out);
}

}  // namespace gaccd
