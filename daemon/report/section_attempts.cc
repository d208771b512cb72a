#include <algorithm>
#include <array>
#include <span>

#include "collectives/base/strings.h"
#include "daemon/report/format_number.h"
#include "daemon/report/sections.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxAttempts = 60;  // that are shown

struct TimeRange {
  WallTime begin;
  double seconds = 1;

  [[nodiscard]] std::string Percent(double seconds_of) const {
    return std::to_string(100 * std::clamp(seconds_of / seconds, 0.0, 1.0));
  }
};

TimeRange RangeOf(std::span<const AttemptData> attempts) {
  WallTime begin = attempts.front().begin;
  WallTime end = attempts.front().end;
  for (const AttemptData& one : attempts) {
    begin = std::min(begin, one.begin);
    end = std::max(end, one.end);
  }
  return {begin, std::max(1e-3, SecondsBetween(begin, end))};
}

void WriteTimeline(std::span<const AttemptData> attempts, Html& out) {
  const TimeRange range = RangeOf(attempts);
  out << "<div class=timeline>";
  for (const AttemptData& one : attempts) {
    const double all = SecondsBetween(one.begin, one.end);
    const double init = one.updates > 0 ? std::min(one.init_s, all) : all;
    (out << "<div><span class=name>").Text(one.name)
        << "</span><span class=track><i class=init style='left:"
        << range.Percent(SecondsBetween(range.begin, one.begin))
        << "%;width:" << range.Percent(init) << "%'></i><i class=train style='left:"
        << range.Percent(SecondsBetween(range.begin, one.begin) + init)
        << "%;width:" << range.Percent(all - init) << "%'></i></span></div>";
  }
  out << "</div><p class=legend><span><i class=init></i>";
  out.Say({"start", "启动"}) << "</span><span><i class=train></i>";
  out.Say({"training", "训练"}) << "</span></p>";
}

// What the attempt left as its verdict; another word is shown as it is.
void WriteVerdictCell(const std::string& verdict, Html& out) {
  constexpr std::pair<std::string_view, const char*> kZh[] = {
      {"done", "完成"}, {"requeue", "重新排队"}, {"norequeue", "不再排队"}, {"fail", "失败"}};
  for (const auto& [en, zh] : kZh) {
    if (verdict != en) continue;
    (out << "<td>").Say({en.data(), zh}) << "</td>";
    return;
  }
  WriteCell(verdict.empty() ? "-" : verdict, out);
}

void WriteAttemptRow(const AttemptData& one, Html& out) {
  out << "<tr>";
  WriteCell(one.name, out);
  WriteCell(FormatTime(one.begin), out);
  WriteNumber(FormatSeconds(SecondsBetween(one.begin, one.end)), out);
  WriteNumber(one.updates == 0
                  ? "-"
                  : StrCat(FormatCount(one.first_step), " – ", FormatCount(one.last_step)),
              out);
  WriteNumber(one.exit ? std::to_string(*one.exit) : "-", out);
  WriteVerdictCell(one.verdict, out);
  out << "</tr>";
  if (one.reason.empty()) return;
  // A row of its own, which does not scroll: a phone shows all of it.
  (out << "<tr class=why><td colspan=6><div>").Text(one.reason) << "</div></td></tr>";
}

}  // namespace

void WriteAttempts(const ReportData& story, Html& out) {
  if (story.attempts.empty()) return;
  std::span<const AttemptData> shown(story.attempts);
  out.BeginSection("attempts", {"Attempts", "各次启动"});
  if (shown.size() > kMaxAttempts) {
    (out << "<p class=note>")
            .Say({"The newest {0} of {1}.", "共 {1} 次，此处为最新的 {0} 次。"},
                 {FormatCount(kMaxAttempts), FormatCount(std::ssize(story.attempts))})
        << "</p>";
    shown = shown.last(kMaxAttempts);
  }
  WriteTimeline(shown, out);
  out << "<div class=scroll><table>";
  WriteHead({{"attempt", "启动"},
             {"began (UTC)", "开始 (UTC)"},
             {"lasted", "时长", true},
             {"updates", "更新", true},
             {"exit", "退出码", true},
             {"verdict and reason", "判定与原因"}},
            out);
  for (const AttemptData& one : shown) WriteAttemptRow(one, out);
  out << "</table></div>";
  out.EndSection();
}

void WriteGoodput(const ReportData& story, Html& out) {
  const RunFigures& figures = story.figures;
  if (figures.elapsed_s <= 0) return;
  constexpr std::array<Bilingual, kBadputNames.size() + 1> kNames{
      Bilingual{"updates that count", "有效更新"},
      Bilingual{"start", "启动"},
      Bilingual{"data", "数据"},
      Bilingual{"checkpoint save", "保存检查点"},
      Bilingual{"checkpoint load", "读取检查点"},
      Bilingual{"lost progress", "丢失的进度"},
      Bilingual{"between attempts", "两次启动之间"},
      Bilingual{"other", "其他"}};
  std::array<double, kNames.size()> seconds{figures.good_s};
  std::ranges::copy(figures.badput_s, seconds.begin() + 1);
  const auto share = [&](std::size_t i) {
    return std::clamp(seconds[i] / figures.elapsed_s, 0.0, 1.0);
  };
  out.BeginSection("goodput", {"Where the time went", "时间去向"});
  (out << "<p>")
          .Say({"{0} of {1} went into updates that count.", "{1} 中有 {0} 用于有效更新。"},
               {FormatPercent(Goodput(figures)), FormatSeconds(figures.elapsed_s)})
      << "</p><div class=stack>";
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    out << "<i class=g" << StrCat(i, " style='width:", 100 * share(i), "%'></i>");
  }
  out << "</div><div class=scroll><table>";
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    (out << "<tr><td><i class=g" << std::to_string(i) << "></i>").Say(kNames[i]) << "</td>";
    WriteNumber(FormatSeconds(seconds[i]), out);
    WriteNumber(FormatPercent(share(i)), out);
    out << "</tr>";
  }
  out << "</table></div>";
  out.EndSection();
}

}  // namespace gaccd
