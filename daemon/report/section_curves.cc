#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/report/chart.h"
#include "daemon/report/format_number.h"
#include "daemon/report/sections.h"

namespace gaccd {
namespace {

std::vector<ChartMark> MarksOf(const ReportData& story) {
  std::vector<ChartMark> marks;
  for (const AttemptData& attempt : story.attempts) {
    if (attempt.first_step == 0 || &attempt == &story.attempts.front()) continue;
    marks.push_back({attempt.first_step, attempt.name.substr(0, attempt.name.find('-'))});
  }
  return marks;
}

}  // namespace

void WriteCurves(const ReportData& story, Html& out) {
  if (story.first_step == 0) return;
  const StepRange steps{story.first_step, story.last_step};
  const std::vector<ChartMark> marks = MarksOf(story);
  const auto write = [&](const Bilingual& title, const std::string& subject,
                         std::vector<ChartLine> lines, bool logarithmic) {
    WriteLineChart({.title = title,
                    .subject = subject,
                    .lines = std::move(lines),
                    .steps = steps,
                    .marks = marks,
                    .may_be_logarithmic = logarithmic},
                   out);
  };
  out.BeginSection("curves", {"Curves", "曲线"});
  std::vector<ChartLine> losses{{.name = "loss",
                                 .style = "c0",
                                 .curve = &story.loss,
                                 .words = Bilingual{"training", "训练"}}};
  const auto eval = story.evals.find("loss");
  if (eval != story.evals.end()) {
    losses.push_back({"eval/loss", "c1", &eval->second, true, Bilingual{"evaluation", "评估"}});
  }
  write({"loss", "损失"}, "", losses, true);
  out << "<div class=two>";
  for (const auto& [metric, curve] : story.evals) {
    if (metric == "loss") continue;
    write({"evaluation: ", "评估："}, metric, {{"eval/" + metric, "c2", &curve, true}}, false);
  }
  write({"gradient norm", "梯度范数"}, "", {{"grad_norm", "c4", &story.gradient_norm}}, true);
  write({"learning rate", "学习率"}, "", {{"lr", "c5", &story.learning_rate}}, false);
  out << "</div>";
  if (!marks.empty()) {
    (out << "<p class=note>")
            .Say({"A vertical line is where an attempt begins; faint lines are updates that a "
                  "later attempt "
                  "did again.",
                  "竖线表示一次启动的开始；浅色曲线是之后被重做的更新。"})
        << "</p>";
  }
  if (story.loss.width() > 1) {
    (out << "<p class=note>")
            .Say({"Of each {0} updates the first, the last, the smallest and the largest value are "
                  "drawn.",
                  "每 {0} 次更新绘出首、末、最小、最大四个值。"},
                 {FormatCount(story.loss.width())})
        << "</p>";
  }
  out.EndSection();
}

}  // namespace gaccd
