#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "collectives/base/strings.h"
#include "daemon/report/chart.h"
#include "daemon/report/format_number.h"
#include "daemon/report/sections.h"

namespace gaccd {
namespace {

struct Phase {
  Bilingual name;
  const char* style;
  double PhaseSum::*seconds;
};

// From the bottom to the top of the chart.
constexpr std::array<Phase, 6> kPhases{
    Phase{{"forward and backward", "前向与反向"}, "p0", &PhaseSum::compute_s},
    Phase{{"reduce", "归约"}, "p1", &PhaseSum::reduce_s},
    Phase{{"wait for the slowest rank", "等待最慢的 rank"}, "p2", &PhaseSum::wait_s},
    Phase{{"optimizer", "优化器"}, "p3", &PhaseSum::optimizer_s},
    Phase{{"data", "数据"}, "p4", &PhaseSum::data_s},
    Phase{{"other", "其他"}, "p5", &PhaseSum::other_s}};

// The area between the phases below and those with it, as a closed path.
std::string PhaseAreas(const ReportData& story, const StepRange& steps, const AxisScale& y) {
  const auto& sums = story.phases.sums();
  const double shift = steps.first == steps.last ? -0.5 : 0;  // one update fills the chart
  std::vector<double> below(sums.size());
  std::string svg;
  for (const Phase& phase : kPhases) {
    std::string there;
    std::string back;
    std::size_t at = 0;
    for (const auto& [index, sum] : sums) {
      const double width = static_cast<double>(story.phases.width());
      const double begin = static_cast<double>(index) * width + shift;
      const double top = below[at] + sum.*phase.seconds / static_cast<double>(sum.updates);
      for (const double step : {begin, begin + width}) {
        const std::string x = ChartX(steps, step);
        there += StrCat(there.empty() ? "M" : "L", x, " ", ChartY(y, top));
        back.insert(0, StrCat("L", x, " ", ChartY(y, below[at])));
      }
      below[at++] = top;
    }
    svg += StrCat("<path class='area ", phase.style, "' d='", there, back, "z'/>");
  }
  return svg;
}

PhaseSum SumOf(const ReportData& story, double* highest) {
  PhaseSum all;
  for (const auto& [index, sum] : story.phases.sums()) {
    all += sum;
    double top = 0;
    for (const Phase& phase : kPhases) top += sum.*phase.seconds;
    *highest = std::max(*highest, top / static_cast<double>(sum.updates));
  }
  return all;
}

void WritePhaseTable(const PhaseSum& all, Html& out) {
  double total = 0;
  for (const Phase& phase : kPhases) total += all.*phase.seconds;
  out << "<div class=scroll><table>";
  WriteHead({{"phase", "阶段"}, {"mean", "平均", true}, {"share", "占比", true}}, out);
  for (const Phase& phase : kPhases) {
    ((out << "<tr><td><i class=" << phase.style << "></i>").Say(phase.name)) << "</td>";
    WriteNumber(FormatSeconds(all.*phase.seconds / static_cast<double>(all.updates)), out);
    WriteNumber(FormatPercent(total > 0 ? all.*phase.seconds / total : 0), out);
    out << "</tr>";
  }
  out << "</table></div>";
}

// A row of the map: a rank, or all ranks of a host.
struct MapRow {
  std::string name;
  std::int64_t updates = 0;
};
constexpr std::size_t kMaxRows = 40;

// The rows of the map, and the row of each rank.
struct MapRows {
  std::vector<MapRow> rows;
  std::map<std::int64_t, std::size_t> row_of;
  std::int64_t left_out = 0;  // rows
};

// Ranks one by one while they are few, else by host.
MapRows AllRows(const ReportData& story) {
  const bool by_host = story.slow_ranks.size() > kMaxRows;
  MapRows all;
  std::map<std::string, std::size_t> known;
  for (const auto& [rank, slow] : story.slow_ranks) {
    const std::string name = by_host ? slow.host : StrCat(rank, " ", slow.host);
    const auto [found, is_new] = known.emplace(name, all.rows.size());
    if (is_new) all.rows.push_back({.name = name});
    all.rows[found->second].updates += slow.updates;
    all.row_of[rank] = found->second;
  }
  return all;
}

// Those that were slowest most often, in the order of their ranks.
MapRows RowsOf(const ReportData& story) {
  MapRows all = AllRows(story);
  if (all.rows.size() <= kMaxRows) return all;
  std::vector<std::size_t> order(all.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return all.rows[i].updates; });
  order.resize(kMaxRows);
  std::ranges::sort(order);
  MapRows kept{.left_out = std::ssize(all.rows) - std::ssize(order)};
  for (const std::size_t row : order) kept.rows.push_back(all.rows[row]);
  for (const auto& [rank, row] : all.row_of) {
    const auto found = std::ranges::lower_bound(order, row);
    if (found == order.end() || *found != row) continue;
    kept.row_of[rank] = static_cast<std::size_t>(found - order.begin());
  }
  return kept;
}

constexpr std::array<double, 4> kLevels{0.1, 0.25, 0.5, 0.75};  // of the share of updates

void WriteMap(const ReportData& story, Html& out) {
  const auto [rows, row_of, left_out] = RowsOf(story);
  std::array<std::string, kLevels.size() + 1> cells;
  const auto& sums = story.slow.sums();
  const std::int64_t first = sums.begin()->first;
  for (const auto& [index, sum] : sums) {
    std::map<std::size_t, std::int64_t> counts;
    for (const auto& [rank, count] : sum.ranks) {
      const auto row = row_of.find(rank);
      if (row != row_of.end()) counts[row->second] += count;
    }
    for (const auto& [row, count] : counts) {
      const double share = static_cast<double>(count) / static_cast<double>(sum.updates);
      const auto level = std::ranges::lower_bound(kLevels, share) - kLevels.begin();
      cells[static_cast<std::size_t>(level)] += StrCat("M", index - first, " ", row, "h1v1h-1z");
    }
  }
  const std::int64_t columns = sums.rbegin()->first - first + 1;
  out << "<div class=map style='--rows:" << std::to_string(rows.size()) << "'><ol>";
  for (const MapRow& row : rows) (out << "<li>").Text(row.name) << "</li>";
  out << "</ol><svg viewBox='0 0 " << StrCat(columns, " ", rows.size())
      << "' preserveAspectRatio=none aria-hidden=true>";
  for (std::size_t level = 0; level < cells.size(); ++level) {
    out << "<path class=h" << std::to_string(level) << " d='" << cells[level] << "'/>";
  }
  out << "</svg></div>";
  if (left_out == 0) return;
  (out << "<p class=note>")
          .Say({"{0} more rows were slowest less often.", "另有 {0} 行更少成为最慢者，未绘出。"},
               {FormatCount(left_out)})
      << "</p>";
}

// Of straggler_phase; another word is shown as it is.
void WritePhaseCell(const std::string& phase, Html& out) {
  constexpr Bilingual kWords[] = {{"data", "数据"}, {"compute", "计算"}, {"stopped", "暂停"}};
  const auto* const found = std::ranges::find(
      kWords, phase, [](const Bilingual& words) { return std::string(words.en); });
  if (found == std::end(kWords)) return WriteCell(phase, out);
  (out << "<td>").Say(*found) << "</td>";
}

void WriteSlowTable(const ReportData& story, Html& out) {
  constexpr std::size_t kMaxShown = 8;
  std::vector<std::pair<std::int64_t, SlowestCount>> ranks(story.slow_ranks.begin(),
                                                           story.slow_ranks.end());
  std::ranges::stable_sort(ranks, std::greater(),
                           [](const auto& one) { return one.second.updates; });
  if (ranks.size() > kMaxShown) ranks.resize(kMaxShown);
  out << "<div class=scroll><table>";
  WriteHead({{"rank", "rank", true},
             {"host", "主机"},
             {"updates", "更新次数", true},
             {"worst, to the median", "最差（与中位数之比）", true},
             {"then in", "所处阶段"}},
            out);
  for (const auto& [rank, slow] : ranks) {
    out << "<tr>";
    WriteNumber(std::to_string(rank), out);
    WriteCell(slow.host, out);
    WriteNumber(FormatCount(slow.updates), out);
    WriteNumber(FormatFixed(slow.worst_ratio), out);
    WritePhaseCell(slow.phase, out);
    out << "</tr>";
  }
  out << "</table></div>";
}

}  // namespace

void WritePhases(const ReportData& story, Html& out) {
  if (story.phases.sums().empty()) return;
  double highest = 0;
  const PhaseSum all = SumOf(story, &highest);
  double slowest = 0;
  for (const CurvePiece& piece : story.slow_updates.Pieces()) {
    for (const CurvePoint& point : piece) slowest = std::max(slowest, point.value);
  }
  // Pauses may be far above; their figure is below the chart.
  const AxisScale y{
      .low = 0, .high = std::max(1e-9, 1.08 * std::max(highest, std::min(slowest, 3 * highest)))};
  const StepRange steps{story.first_step, story.last_step};
  std::string svg = PhaseAreas(story, steps, y);
  svg += LinePaths({.lines = {{"dur_p99_s", "p99", &story.slow_updates}}, .steps = steps}, y);
  out.BeginSection("phases", {"Where an update spends its time", "一次更新的时间去向"});
  (out << "<figure><figcaption>").Say({"seconds of an update, by phase", "一次更新各阶段的秒数"})
      << "</figcaption>";
  WriteChartFrame({.steps = steps, .y = y, .marks = {}}, svg, out);
  (out << "<p class=note>")
          .Say({"Areas are the times of rank 0; the line is the 99th percentile of the last 256 "
                "updates. Of "
                "all updates: median {0}, 99 % within {1}, the longest {2}.",
                "面积为 rank 0 的耗时；折线为最近 256 次更新的 99 百分位。全部更新：中位数 {0}，99 "
                "% 不超过 "
                "{1}，最长 {2}。"},
               {FormatSeconds(story.p50_s), FormatSeconds(story.p99_s),
                FormatSeconds(story.longest_s)})
      << "</p></figure>";
  WritePhaseTable(all, out);
  out.EndSection();
}

void WriteSlowRanks(const ReportData& story, Html& out) {
  if (story.slow_ranks.empty()) return;
  out.BeginSection("ranks", {"The slowest ranks", "最慢的 rank"}) << "<p>";
  out.Say(
      {"Rows are ranks, from left to right the updates {0} to {1}. The darker a cell, the larger "
       "the "
       "share of its {2} updates in which that row was busy for longest.",
       "每行一个 rank，从左到右为第 {0} 到 {1} 次更新；颜色越深，该格 {2} 次更新中其他 rank "
       "等待它的比例越高。"},
      {FormatCount(story.first_step), FormatCount(story.last_step),
       FormatCount(story.slow.width())})
      << "</p>";
  WriteMap(story, out);
  WriteSlowTable(story, out);
  out.EndSection();
}

}  // namespace gaccd
