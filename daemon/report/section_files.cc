#include "collectives/base/strings.h"
#include "daemon/report/format_number.h"
#include "daemon/report/sections.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxChanges = 40;  // of one attempt, that are shown
constexpr std::size_t kMaxText = 400;    // bytes of a value

std::string Cut(const std::string& text) {
  return text.size() <= kMaxText ? text : text.substr(0, kMaxText) + " ...";
}

void WriteFailure(const RankFailure& failure, Html& out) {
  (out << "<li><b>")
      .Say({"rank {0} on {1}, after update {2}", "主机 {1} 上的 rank {0}，第 {2} 次更新之后"},
           {std::to_string(failure.rank), failure.host, FormatCount(failure.step)});
  if (failure.more_ranks > 0) {
    out.Say({"; ranks that failed alike: {0}", "；另有 {0} 个 rank 以同样方式失败"},
            {FormatCount(failure.more_ranks)});
  }
  ((out << "</b> <code>").Text(failure.what) << "</code><p>").Text(failure.message) << "</p></li>";
}

void WriteFailuresOf(const AttemptData& attempt, Html& out) {
  if (attempt.failures.empty() && attempt.more_failures == 0) return;
  (out << "<h3>").Text(attempt.name) << "</h3><ol class=failures>";
  for (const RankFailure& failure : attempt.failures) WriteFailure(failure, out);
  out << "</ol>";
  if (attempt.more_failures == 0) return;
  (out << "<p class=note>")
          .Say({"Also: {0} ranks exited later, or because others were lost.",
                "此外 {0} 个 rank 随后退出，或因其他 rank 丢失而退出。"},
               {FormatCount(attempt.more_failures)})
      << "</p>";
}

void WriteChangesOf(const AttemptData& attempt, Html& out) {
  if (attempt.changes.empty() && attempt.job_changes.empty()) return;
  (out << "<h3>").Text(attempt.name) << "</h3><div class=scroll><table>";
  WriteHead({{"what", "项目"}, {"before", "之前"}, {"now", "现在"}}, out);
  std::size_t shown = 0;
  for (const auto* changes : {&attempt.changes, &attempt.job_changes}) {
    for (const Change& change : *changes) {
      if (++shown > kMaxChanges) continue;
      out << "<tr>";
      WriteCell(change.name.empty() ? "job.txtpb" : change.name, out);
      WriteText(Cut(change.before), out);
      WriteText(Cut(change.after), out);
      out << "</tr>";
    }
  }
  out << "</table></div>";
  if (shown <= kMaxChanges) return;
  (out << "<p class=note>")
          .Say({"{0} more changes.", "另有 {0} 处变化。"},
               {FormatCount(static_cast<std::int64_t>(shown - kMaxChanges))})
      << "</p>";
}

}  // namespace

void WriteSaves(const ReportData& story, Html& out) {
  if (story.saves.empty()) return;
  const RunFigures& figures = story.figures;
  out.BeginSection("saves", {"Checkpoints", "检查点"}) << "<p>";
  out.Say({"{0} saved, {1} failed. A save took {2} on average, of which training waited for {3}.",
           "成功 {0} 次，失败 {1} 次；平均耗时 {2}，其中训练停顿 {3}。"},
          {FormatCount(figures.save_s.count), FormatCount(figures.failed_saves),
           FormatSeconds(figures.save_s.count > 0
                             ? figures.save_s.sum / static_cast<double>(figures.save_s.count)
                             : 0),
           FormatSeconds(figures.phase_s.contains("checkpoint")
                             ? figures.phase_s.at("checkpoint") /
                                   static_cast<double>(figures.save_s.count + figures.failed_saves)
                             : 0)})
      << "</p><div class=scroll><table>";
  WriteHead({{"after update", "更新之后", true},
             {"at (UTC)", "时间 (UTC)"},
             {"attempt", "启动"},
             {"size", "大小", true},
             {"took", "耗时", true},
             {"result", "结果"}},
            out);
  for (std::size_t i = story.saves.size(); i-- > 0;) {
    const Event& save = story.saves[i];
    out << "<tr>";
    WriteNumber(FormatCount(save.Whole("step").value_or(0)), out);
    WriteCell(FormatTime(save.at), out);
    WriteCell(save.attempt, out);
    WriteNumber(FormatBytes(save.Number("bytes").value_or(0)), out);
    WriteNumber(FormatSeconds(save.Number("dur_s").value_or(0)), out);
    out << "<td class=t>";
    out.Say(save.Is("ok") ? Bilingual{"ok", "成功"} : Bilingual{"failed: ", "失败："});
    if (!save.Is("ok")) out.Text(save.Text("reason"));
    out << "</td>";
    out << "</tr>";
  }
  out << "</table></div>";
  out.EndSection();
}

void WriteFailures(const ReportData& story, Html& out) {
  bool any = !story.warnings.empty() || !story.diagnosis.suspects.empty();
  for (const AttemptData& one : story.attempts) {
    any |= !one.failures.empty() || one.more_failures > 0;
  }
  if (!any) return;
  out.BeginSection("failures", {"Failures, the first one first", "失败（按先后）"});
  for (const AttemptData& one : story.attempts) WriteFailuresOf(one, out);
  for (const SuspectHost& one : story.diagnosis.suspects) {
    (out << "<p>")
            .Say({"Suspected host {0}; attempts that suspect it: {1}.",
                  "可疑主机 {0}；怀疑它的启动次数：{1}。"},
                 {one.host, std::to_string(one.attempts)})
        << "</p>";
  }
  if (!story.warnings.empty()) {
    (out << "<details><summary>").Say({"The last warnings", "最近的警告"}) << "</summary>";
    WriteLines(story.warnings, out);
    out << "</details>";
  }
  out.EndSection();
}

void WriteChanges(const ReportData& story, Html& out) {
  bool any = false;
  for (const AttemptData& one : story.attempts) {
    any |= !one.changes.empty() || !one.job_changes.empty();
  }
  if (!any) return;
  out.BeginSection("changes", {"What changed between attempts", "两次启动之间的变化"});
  for (const AttemptData& one : story.attempts) WriteChangesOf(one, out);
  out.EndSection();
}

void WriteJob(const ReportData& story, Html& out) {
  if (story.job.empty()) return;
  out.BeginSection("job", {"The resolved job", "完整的任务配置"}) << "<details><summary>";
  out.Say({"job.txtpb with all defaults; gaccd train --job=FILE starts it again",
           "含全部默认值的 job.txtpb；用 gaccd train --job=FILE 可再次启动"})
      << "</summary><pre>";
  out.Text(story.job) << "</pre></details>";
  out.EndSection();
}

void WriteNotes(const ReportData& story, Html& out) {
  if (story.diagnosis.notes.empty() && story.thinned == 0) return;
  out.BeginSection("notes", {"What is wrong with the files of this run", "此任务文件中的问题"});
  if (story.thinned > 0) {
    (out << "<p>")
            .Say({"Of {0} updates only sums are left (gaccd logs --compact): curves, percentiles "
                  "and the slowest ranks are those of the others.",
                  "{0} 次更新只保留了总和 (gaccd logs --compact)：曲线、百分位和最慢的 rank "
                  "取自其余更新。"},
                 {FormatCount(story.thinned)})
        << "</p>";
  }
  WriteLines(story.diagnosis.notes, out);
  out.EndSection();
}

}  // namespace gaccd
